"""Trials: single trainings of a comparison."""

from dataclasses import asdict, dataclass
from typing import Any

from proxyhash.methods import check_settings, get_method
from proxyhash.training.config import OptimConfig

_NO_EFFECT = ("checkpoint_seconds",)  # optimizer settings that do not change the result


@dataclass(frozen=True)
class Trial:
    """One training: a method with settings, a seed, a fold, and the code lengths that share one network."""

    label: str  # name of the row: the method, and the settings that tell it from other rows
    method: str
    settings: dict[str, Any]
    code_lengths: tuple[int, ...]
    seed: int
    fold: int
    optim: OptimConfig

    def __post_init__(self) -> None:
        """Check the settings."""
        self.resolved_settings()

    def resolved_settings(self, *, tags: bool = False) -> dict[str, Any]:
        """Return all settings of the method; defaults depend on the kind of labels and on fine-tuning."""
        check_settings(self.method, self.settings)
        settings = get_method(self.method).settings(**self.settings)
        return asdict(settings.resolve(tags=tags, finetune=self.optim.backbone_lr > 0))

    def as_dict(self, *, tags: bool) -> dict[str, Any]:
        """Return everything that the result depends on, defaults included, so that a changed default is another trial."""
        optim = {key: value for key, value in self.optim.as_dict().items() if key not in _NO_EFFECT}
        return {
            "label": self.label,
            "method": self.method,
            "settings": self.resolved_settings(tags=tags),
            "code_lengths": list(self.code_lengths),
            "seed": self.seed,
            "fold": self.fold,
            "optim": optim if get_method(self.method).trains else None,
        }

    def title(self) -> str:
        """Return the title of a progress bar."""
        lengths = ", ".join(map(str, self.code_lengths))
        return f"{self.label}, {lengths} bits, seed {self.seed}" + (f", fold {self.fold}" if self.fold else "")
