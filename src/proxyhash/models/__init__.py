"""Networks: backbones q(x), heads, and trained hashers."""
