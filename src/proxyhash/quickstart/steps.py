"""Choices as the commands that a person would type."""

import shlex
from dataclasses import dataclass
from pathlib import Path

from proxyhash.quickstart.choices import Choices


@dataclass(frozen=True)
class Places:
    """Where everything goes."""

    images: str  # as the person wrote it
    out: Path

    @property
    def model(self) -> Path:
        """Return the folder of the model."""
        return self.out / "model"

    @property
    def index(self) -> Path:
        """Return the folder of the index."""
        return self.out / "index"

    @property
    def results(self) -> Path:
        """Return the folder of the records."""
        return self.out / "results"

    @property
    def report(self) -> Path:
        """Return the page."""
        return self.out / "report.html"


@dataclass(frozen=True)
class Step:
    """One command, without its first word: what it is for, and what is there once it is done."""

    title: str
    command: tuple[str, ...]
    made: Path

    @property
    def line(self) -> str:
        """Return what to type."""
        return shlex.join(["proxyhash", *self.command])


def steps_for(choices: Choices, places: Places) -> list[Step]:
    """Return the commands in their order."""
    model, index, report = str(places.model), str(places.index), str(places.report)
    steps = [Step("training", ("train", places.images, *_training(choices), "-o", model), places.model)]
    gallery = ("--gallery", model, "--title", f"Quickstart of {Path(places.images).resolve().name}", "-o", report)
    if not choices.learns:
        steps[0] = Step("fitting", steps[0].command, places.model)
        return [*steps, _indexing(places.images, model, index), Step("report", ("report", *gallery), places.report)]
    steps.append(Step("measuring", ("evaluate", "model", model, "--save"), places.model / "metrics.json"))
    if choices.calibrate:
        steps.append(Step("calibrating", ("index", "calibrate", model), places.model / "calibration.json"))
    compared = ("benchmark", "--dataset", places.images, *_compared(choices), "-o", str(places.results))
    steps.append(Step("comparing", compared, places.results))
    if choices.transfer:
        steps.append(Step("unseen classes", (*compared, "--protocol", "transfer"), places.results))
    steps.append(_indexing(places.images, model, index))
    return [*steps, Step("report", ("report", str(places.results), *gallery), places.report)]


def upgrade(places: Places) -> Step:
    """Return what moves an index of an earlier model to the present one."""
    command = ("index", "upgrade", str(places.index), "--model", str(places.model), "--drop-unreadable")
    return Step("upgrading the index", command, places.index)


def _indexing(images: str, model: str, index: str) -> Step:
    return Step("indexing", ("index", "add", images, "--model", model, "--index", index, "--prune"), Path(index))


def _training(choices: Choices) -> list[str]:
    protocol = [] if choices.learns else ["--protocol", "none"]
    return ["--method", choices.method, *_shared(choices), *protocol]


def _compared(choices: Choices) -> list[str]:
    """Compare with what learns nothing from labels; a network that is trained whole, with an ordinary classifier."""
    other = "learned" if choices.finetune else "itq"
    return ["--methods", f"{other},{choices.method}", *_shared(choices)]


def _shared(choices: Choices) -> list[str]:
    options = ["--bits", str(choices.bits), "--backbone", choices.backbone]
    options += ["--finetune"] if choices.finetune else []
    for name in ("image_size", "epochs", "batch"):
        value = getattr(choices, name)
        option = "--batch-size" if name == "batch" else f"--{name.replace('_', '-')}"
        options += [] if value is None else [option, str(value)]
    return options
