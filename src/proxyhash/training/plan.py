"""What a training run is told. Every default stands beside its reason; the paper leaves them open."""

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Self

from proxyhash.utils.errors import InputError
from proxyhash.utils.validation import check_int


@dataclass(frozen=True)
class Plan:
    """How long, how fast, and with what regularization a network is trained."""

    epochs: int = 12  # frozen features: twice as many as give nine tenths of what is to be had
    batch: int = 256
    rate: float = 5e-3  # AdamW's, of the head; on CIFAR-100's validation set better than 1e-3 and 2e-3
    backbone_rate: float = 0.0  # of the backbone; 0 keeps it frozen
    weight_decay: float = 0.02  # of matrices; biases and normalization have none
    warmup: float = 0.2  # share of the steps in which the rates rise; then they fall to zero along a cosine
    hidden: int = 2048  # units between frozen features and code: linear maps of them reach too few corners
    dropout: float = 0.0  # before the last layer; the database is what was learned, and better fitted it is better searched
    growth: float = 1.0  # share of its side that an image has in the first epoch: small images teach early epochs as well
    ema: float = 0.0  # decay of an average of the weights that is used instead of them; 0: none
    momentum: float = 0.1  # of batch normalization: the pretrained networks' 0.01 lags behind a few fast epochs
    freeze_statistics: bool = False  # of the backbone's batch normalization: for batches too small to have good ones
    clip: float = 5.0  # the longest gradient: a guard against a single bad batch; 0: none
    checkpoint_seconds: float = 120.0  # what a kill loses at most
    seed: int = 0

    @classmethod
    def frozen(cls, **changes: Any) -> Self:
        """Return the plan for a head on frozen features."""
        return cls()._changed(changes)

    @classmethod
    def finetune(cls, **changes: Any) -> Self:
        """Return the plan for a network that is trained end to end; it bends its own features and needs no hidden layer."""
        return cls(epochs=12, batch=128, rate=4e-3, backbone_rate=1e-3, hidden=0, growth=0.5)._changed(changes)

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        # Batches are cut as equally as can be: with 4 and more, none is of a single image, which cannot be normalized.
        for name, least in (("epochs", 1), ("batch", 4), ("hidden", 0), ("seed", 0)):
            check_int(name, getattr(self, name), least)
        for name in ("rate", "checkpoint_seconds"):
            if not 0 < getattr(self, name) < math.inf:
                raise InputError(f"{name} must be above 0, not {getattr(self, name)}.")
        for name in ("warmup", "dropout", "ema", "momentum"):
            if not 0 <= getattr(self, name) < 1:
                raise InputError(f"{name} must be at least 0 and below 1, not {getattr(self, name)}.")
        if not 0 < self.growth <= 1:
            raise InputError(f"growth must be above 0 and at most 1, not {self.growth}.")
        for name in ("backbone_rate", "weight_decay", "clip"):
            if not 0 <= getattr(self, name) < math.inf:
                raise InputError(f"{name} must be 0 or above, not {getattr(self, name)}.")

    def rate_factor(self, fraction: float) -> float:
        """Return what the rates are multiplied by when this fraction of all steps is done: a rise, then half a cosine."""
        if fraction < self.warmup:
            return fraction / self.warmup
        return 0.5 * (1 + math.cos(math.pi * (fraction - self.warmup) / (1 - self.warmup)))

    def image_share(self, epoch: int) -> float:
        """Return what share of their side images have in an epoch: it grows evenly, and is 1 in the last third."""
        grown = min(1.0, 1.5 * epoch / self.epochs)
        return self.growth + (1 - self.growth) * grown

    def _changed(self, changes: dict[str, Any]) -> Self:
        known = [field.name for field in fields(self)]
        for name in changes:
            if name not in known:
                raise InputError(f"A training plan has no setting {name}; it has {', '.join(known)}.")
        return replace(self, **{name: value for name, value in changes.items() if value is not None})
