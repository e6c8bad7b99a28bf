"""Networks: backbones q(x), the hash layer, and the `Hasher` that a person keeps."""
