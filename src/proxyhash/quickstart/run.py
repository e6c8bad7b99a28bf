"""Running the steps: what is done is noted, so that a second run goes on where the first stopped."""

import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from proxyhash.index.local.index import LocalIndex
from proxyhash.models.storage import fingerprint as model_fingerprint
from proxyhash.quickstart.steps import Places, Step, upgrade
from proxyhash.training.checkpoint import CHECKPOINT
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.errors import InputError

FORMAT = "proxyhash.quickstart/1"
NOTES = "quickstart.json"

Run = Callable[[Sequence[str]], Any]
"""Runs a command, given as its words, and returns what it answers as JSON."""


@dataclass
class Notes:
    """What was done with which images. `steps` holds the command and the answer of each, `begun` the one under way."""

    path: Path
    data: str
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)
    begun: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, folder: Path, data: str) -> Self:
        """Return the notes of an earlier run on the same images, or empty ones."""
        notes = cls(folder / NOTES, data)
        try:
            content = json.loads(notes.path.read_text(encoding="utf-8"))
            if content["format"] == FORMAT and content["data"] == data:
                notes.steps, notes.begun = dict(content["steps"]), list(content["begun"])
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise InputError(f"{notes.path} is damaged: {error}; delete it to start again.") from error
        return notes

    def write(self) -> None:
        """Write them, whole or not at all."""
        content = {"format": FORMAT, "data": self.data, "begun": self.begun, "steps": self.steps}
        with atomic_write(self.path) as temporary:
            temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")


def check_place(images: Path, out: Path) -> None:
    """Refuse to write among the images, where the next look would take it for a class; and over what others wrote."""
    if out.resolve().is_relative_to(images.resolve()):
        raise InputError(f"{out} lies among the images of {images}; choose a folder elsewhere with -o.")
    if out.is_file():
        raise InputError(f"{out} is a file; choose a folder with -o.")
    if out.is_dir() and any(out.iterdir()) and not (out / NOTES).is_file():
        raise InputError(f"{out} holds other things; choose another folder with -o.")


def run_steps(
    steps: Iterable[Step], places: Places, data: str, run: Run, tell: Callable[[Step, bool], None]
) -> dict[str, Any]:
    """Run what is not done yet and return the answers by title; `tell` hears of each step, and whether it had been done."""
    notes = Notes.read(places.out, data)
    if not notes.steps and not notes.begun:  # other images, or the first run
        shutil.rmtree(places.results, ignore_errors=True)
    anew = False
    for step in steps:
        noted = notes.steps.get(step.title)
        anew = anew or noted is None or noted["command"] != list(step.command) or not step.made.exists()
        if anew:
            resumes = notes.begun == list(step.command)
            notes.begun = list(step.command)
            notes.write()
            notes.steps[step.title] = {"command": list(step.command), "answer": _done(step, places, run, resumes)}
            notes.begun = []
            notes.write()
        tell(step, not anew)
    return {title: noted["answer"] for title, noted in notes.steps.items()}


def _done(step: Step, places: Places, run: Run, resumes: bool) -> Any:
    """Run one step: a training from its checkpoint, an index with the codes of an earlier model after an upgrade."""
    if step.title == "indexing" and _is_of_another_model(places):
        run(upgrade(places).command)
    checkpoint = places.model.with_name(f"{places.model.name}.run") / CHECKPOINT
    if step.title == "training" and resumes and checkpoint.is_file():
        return run((*step.command, "--resume"))
    return run(step.command)


def _is_of_another_model(places: Places) -> bool:
    if not places.index.is_dir():
        return False
    with LocalIndex.open_folder(places.index) as index:
        return index.model != model_fingerprint(places.model)
