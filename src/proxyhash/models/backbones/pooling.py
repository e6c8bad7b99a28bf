"""Global average pooling."""

from torch import Tensor, nn


class GlobalAveragePool(nn.Module):
    """Mean over the positions of feature maps (N, F, H, W); features (N, F) stay as they are."""

    def forward(self, features: Tensor) -> Tensor:
        """Return features (N, F)."""
        return features.mean((2, 3)) if features.ndim == 4 else features
