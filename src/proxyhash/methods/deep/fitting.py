"""A deep method on given features: its objective and a head with a hidden layer, by the shared trainer."""

import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from proxyhash.codes import pack
from proxyhash.methods.lesson import Lesson
from proxyhash.models.heads import Head, HeadConfig, Queries, describe_head, create_head
from proxyhash.training.learner import Learner
from proxyhash.training.objectives import Task, build_objective
from proxyhash.training.plan import Plan
from proxyhash.training.run_folder import RunFolder
from proxyhash.training.sources import FeatureSource
from proxyhash.training.trainer import Material, Trainer
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.errors import InputError

FORMAT = "proxyhash.head-hasher/1"
TRAINING_CODES = "training_codes"  # no parameter of a head has this name

Floats = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class HeadHasher:
    """A trained head on given features, nu = tanh(L' h(q) + b) and its signs if the method has no other."""

    method: str
    head: Head
    training_codes: NDArray[np.uint8] | None = None  # of the training images, if they were learned apart from the head

    @property
    def searches(self) -> str:
        """Return how its codes are compared."""
        return self.head.searches

    @property
    def bits(self) -> int:
        """Return the length of its codes."""
        return self.head.config.bits

    def embed(self, features: Floats) -> Floats:
        """Return nu (N, bits), or what else the head puts out."""
        if features.ndim != 2 or features.shape[1] != self.head.config.in_features:
            raise InputError(f"{self.method} was fitted on features of width {self.head.config.in_features}, not {features.shape}.")
        with torch.inference_mode():
            pieces = (features[first : first + 4096] for first in range(0, len(features), 4096))
            parts = [self.head(torch.from_numpy(np.array(piece, np.float32))).numpy() for piece in pieces]
        return np.concatenate([np.zeros((0, self.head.out_features), np.float32), *parts])

    def encode(self, features: Floats) -> NDArray[np.uint8]:
        """Return packed codes (N, ceil(bits / 8))."""
        return self.head.encode(self.embed(features))

    def queries(self, features: Floats) -> Queries:
        """Return what is compared with the codes of a database."""
        return self.head.encode_queries(self.embed(features))

    def save(self, path: Path) -> None:
        """Write a .safetensors file."""
        facts = {"format": FORMAT, "method": self.method, "head": json.dumps(describe_head(self.head))}
        tensors = {name: tensor.contiguous() for name, tensor in self.head.state_dict().items()}
        if self.training_codes is not None:
            tensors[TRAINING_CODES] = torch.from_numpy(self.training_codes)
        with atomic_write(path) as temporary:
            save_file(tensors, temporary, facts)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file that `save` wrote; it gives the same codes."""
        try:
            with safe_open(path, "pt") as file:
                facts = file.metadata() or {}
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  it is no dictionary
            if facts.get("format") != FORMAT:
                raise InputError(f"{path} is not a saved method of this version.")
            head = create_head(json.loads(facts["head"]))
            codes = tensors.pop(TRAINING_CODES, None)
            head.load_state_dict(tensors)
        except FileNotFoundError:
            raise InputError(f"There is no file {path}.") from None
        except (OSError, SafetensorError, RuntimeError, KeyError, TypeError, json.JSONDecodeError) as error:
            raise InputError(f"{path} is not a saved method: {error}.") from error
        return cls(facts["method"], head.eval(), None if codes is None else codes.numpy())


def fit_head(name: str, lesson: Lesson, settings: Any, plan: Plan | None = None) -> HeadHasher:
    """Train a head on the features of a lesson by a method's objective."""
    plan = plan or Plan.frozen(seed=lesson.seed)
    names = tuple(str(number) for number in range(lesson.indicator().shape[1]))
    task = Task(lesson.bits, names, lesson.labels, lesson.tags, lambda: lesson.features, lesson.seed, lesson.progress)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(lesson.seed)
        objective = build_objective(name, task, asdict(settings))
        head = objective.head(HeadConfig(lesson.features.shape[1], lesson.bits, plan.hidden, plan.dropout))
        targets = lesson.labels if lesson.labels is not None else lesson.indicator().astype(np.float32)
        with tempfile.TemporaryDirectory(prefix="proxyhash-") as run:
            trainer = Trainer(
                Learner(nn.Identity(), [head], [objective]),
                plan,
                FeatureSource(lesson.features),
                Material(np.arange(len(lesson.features)), targets),
                RunFolder(Path(run), writes=False),
                progress=lesson.progress,
            )
            learner = trainer.fit()
    codes = learner.methods[0].training_codes()
    return HeadHasher(name, learner.coders[0].eval(), None if codes is None else pack(codes.numpy() >= 0))
