"""One training of a comparison: a method, its settings, a seed, and the lengths that it is trained to."""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any

from proxyhash.methods import check_settings, get_method
from proxyhash.training.config import OptimConfig
from proxyhash.utils.errors import InputError
from proxyhash.utils.legacy_names import downgrade_optim_config

_NOT_IN_RESULTS = ("checkpoint_seconds",)  # of a plan: how often it is saved changes nothing that it learns


@dataclass(frozen=True)
class Trial:
    """What is trained once; several lengths share one network. Shallow methods have a seed, but no plan."""

    label: str  # what results are listed under: the method, and the settings that make it another row
    method: str
    settings: dict[str, Any]
    code_lengths: tuple[int, ...]
    seed: int
    fold: int
    optim: OptimConfig

    def __post_init__(self) -> None:
        """Refuse a setting that the method does not have."""
        self.resolved_settings()

    def resolved_settings(self, *, tags: bool = False) -> dict[str, Any]:
        """Return all settings of the method, those that nobody gave at their defaults: others for tags, or if all learns."""
        check_settings(self.method, self.settings)
        settings = get_method(self.method).settings(**self.settings)
        return asdict(settings.resolve(tags=tags, finetune=self.optim.backbone_lr > 0))

    def as_dict(self, *, tags: bool) -> dict[str, Any]:
        """Return everything that the result on classes or tags may depend on: a changed default is another trial."""
        optim = {key: value for key, value in asdict(self.optim).items() if key not in _NOT_IN_RESULTS}
        return {
            "label": self.label,
            "method": self.method,
            "settings": self.resolved_settings(tags=tags),
            "lengths": list(self.code_lengths),
            "seed": self.seed,
            "round": self.fold,
            "plan": downgrade_optim_config(optim, self.seed) if get_method(self.method).trains else None,
        }

    def title(self) -> str:
        """Return what a progress bar calls it."""
        lengths = ", ".join(map(str, self.code_lengths))
        return f"{self.label}, {lengths} bits, seed {self.seed}" + (f", round {self.fold}" if self.fold else "")


def parse_method(text: str) -> tuple[str, dict[str, Any]]:
    """Return name and settings of a method as people type it: `shclm`, or `shclm:triplet=1:loss=nca`."""
    name, *pairs = text.split(":")
    settings: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not (key and equals and value):
            raise InputError(f"A method with settings is typed name:setting=value, not {text}.")
        try:
            settings[key] = json.loads(value)
        except ValueError:
            settings[key] = value
    return name, settings


def fingerprint(facts: dict[str, Any]) -> str:
    """Return 12 hexadecimal digits that stand for these facts."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]
