"""DPN: each bit pushed past a margin on its class's side (Fan, Ng, Ju, Zhang, Liu, Chan and Yang 2020)."""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from proxyhash.methods.deep.centres import Centres, random_signs
from proxyhash.methods.registry import deep_method
from proxyhash.models.heads import HeadConfig, LinearHead
from proxyhash.training.objectives import Task
from proxyhash.utils.random import generator


@dataclass(frozen=True)
class DpnSettings:
    """The authors' margin."""

    TRIES: ClassVar[tuple[dict[str, Any], ...]] = ({"margin": 0.5}, {"margin": 1.0}, {"margin": 2.0})

    margin: float = 1.0


class Polarization(Centres):
    """The mean over images and bits of max(0, m - u_k t_k), u not bounded, t the random code of the image's class.

    The authors draw the codes with probability 1/2, as here, or adapt them to the classes. For tags t is the vote of the
    tags' codes.
    """

    def __init__(self, task: Task, settings: DpnSettings) -> None:
        super().__init__(task, random_signs((len(task.names), task.bits), generator(task.seed, "dpn")))
        self.margin = settings.margin

    def head(self, shape: HeadConfig) -> LinearHead:
        """Return a head without tanh, under which every bit would stay short of the margin."""
        return LinearHead(shape)

    def forward(self, nu: Tensor, targets: Tensor, indices: Tensor) -> Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        return polarization(nu, self.goal(targets), self.margin)


def polarization(u: Tensor, goal: Tensor, margin: float) -> Tensor:
    """Return the mean of max(0, m - u t), for u and t (N, bits): a hinge for every bit."""
    return (margin - u * goal).clamp(min=0).mean()


@deep_method("dpn", "DPN", "centres", 2020, DpnSettings)
def dpn(task: Task, settings: DpnSettings) -> Polarization:
    """Return the objective."""
    return Polarization(task, settings)
