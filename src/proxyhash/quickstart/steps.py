"""Steps of a quickstart, each with the command that does the same."""

import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxyhash.models.storage import CALIBRATION
from proxyhash.quickstart.config import OutputPaths, QuickstartConfig
from proxyhash.quickstart.pipeline import REFINEMENT, Pipeline
from proxyhash.utils.progress import Progress


@dataclass(frozen=True)
class Step:
    """One step of a quickstart.

    Attributes
    ----------
    title
        Name of the step, and its key in the state file.
    command
        Words of the equivalent command, without `proxyhash`.
    output
        File or folder that the step writes.
    run
        Function of a progress callback that does the step and returns its result for JSON.
    resume
        The same for a step that was interrupted; None if it starts again.
    """

    title: str
    command: tuple[str, ...]
    output: Path
    run: Callable[[Progress], Any]
    resume: Callable[[Progress], Any] | None = None

    @property
    def line(self) -> str:
        """Return the equivalent command as one line."""
        return shlex.join(["proxyhash", *self.command])


def quickstart_steps(config: QuickstartConfig, paths: OutputPaths, *, title: str | None = None) -> list[Step]:
    """Return the steps in order; `title` is that of the report."""
    title = title or f"Quickstart of {Path(paths.images).resolve().name}"
    pipeline = Pipeline(config, paths, title)
    model, index, results = str(paths.model), str(paths.index), str(paths.results)
    protocol = () if config.uses_labels else ("--protocol", "none")
    seed = ("--seed", str(config.seed)) if config.seed else ()
    device = () if config.device == "auto" else ("--device", config.device)
    options = ("--method", config.method, *_shared_options(config), *seed, *protocol, *device)
    training = ("train", paths.images, *options, "-o", model)
    indexing = ("index", "add", paths.images, "--model", model, "--index", index, "--refine", REFINEMENT, "--prune", *device)
    gallery = ("--gallery", model, "--title", title, "-o", str(paths.report))
    if not config.uses_labels:
        return [
            Step("fitting", training, paths.model, pipeline.fit),
            Step("indexing", indexing, paths.index, pipeline.index),
            Step("report", ("report", *gallery), paths.report, pipeline.report),
        ]
    methods = ",".join([*config.baselines, config.method])
    options_of_grids = (*_shared_options(config), *device, "-o", results)
    comparing = ("benchmark", "--dataset", paths.images, "--methods", methods, *options_of_grids)
    steps = [
        Step("training", training, paths.model, pipeline.train, pipeline.resume_training),
        Step("evaluating", ("evaluate", "model", model, "--save", *device), paths.model, pipeline.evaluate),
    ]
    if config.calibrate:
        calibrating = ("index", "calibrate", model, *device)
        steps.append(Step("calibrating", calibrating, paths.model / CALIBRATION, pipeline.calibrate))
    steps.append(Step("comparing", comparing, paths.results, pipeline.compare))
    if config.transfer:
        transfer = ("--protocol", "transfer")
        steps.append(Step("unseen classes", (*comparing, *transfer), paths.results, pipeline.compare_unseen))
        if not config.finetune:  # a network that starts from random weights has nothing to keep for new classes
            new_classes = ("benchmark", "--dataset", paths.images, "--for", "new-classes", *options_of_grids, *transfer)
            steps.append(Step("new classes", new_classes, paths.results, pipeline.compare_for_new_classes))
    return [
        *steps,
        Step("indexing", indexing, paths.index, pipeline.index),
        Step("report", ("report", results, *gallery), paths.report, pipeline.report),
    ]


def _shared_options(config: QuickstartConfig) -> list[str]:
    """Return the options that training and comparison share."""
    options = ["--bits", str(config.bits), "--backbone", config.backbone]
    options += ["--finetune", "all"] if config.finetune else []
    for name in ("image_size", "epochs", "batch_size"):
        value = getattr(config, name)
        options += [] if value is None else [f"--{name.replace('_', '-')}", str(value)]
    return options
