"""What is trained: one trunk, and for each code length a head and an objective."""

import copy
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn

from proxyhash.methods import HashingMethod
from proxyhash.models.heads import Head
from proxyhash.training.plan import Plan


class Learner(nn.Module):
    """Embeds inputs once and hashes them to several lengths; the trunk is the identity when features are frozen."""

    def __init__(
        self,
        trunk: nn.Module,
        heads: Sequence[Head],
        objectives: Sequence[HashingMethod],
        *,
        freeze_statistics: bool = False,
    ) -> None:
        super().__init__()
        self.freeze_statistics = freeze_statistics
        self.trunk = trunk
        self.heads = nn.ModuleList(heads)
        self.objectives = nn.ModuleList(objectives)

    @property
    def methods(self) -> list[HashingMethod]:
        """Return the objectives by their type, which torch's own list forgets."""
        return [objective for objective in self.objectives if isinstance(objective, HashingMethod)]

    @property
    def coders(self) -> list[Head]:
        """Return the heads by their type."""
        return [head for head in self.heads if isinstance(head, Head)]

    def train(self, mode: bool = True) -> Self:
        """Switch to training; the trunk's batch normalization keeps to its statistics if these are frozen."""
        super().train(mode)
        for module in self.trunk.modules():
            if self.freeze_statistics and isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()
        return self

    def forward(self, inputs: Tensor) -> list[Tensor]:
        """Return nu (N, bits) for each length."""
        features = self.trunk(inputs)
        return [head(features) for head in self.heads]

    def loss(self, nus: Sequence[Tensor], targets: Tensor, indices: Tensor) -> Tensor:
        """Return the mean of the lengths' losses: each head pulls the trunk with the same strength."""
        losses = [objective(nu, targets, indices) for objective, nu in zip(self.methods, nus, strict=True)]
        return torch.stack(losses).mean()


def optimizer_for(learner: Learner, plan: Plan) -> torch.optim.AdamW:
    """Return AdamW with the backbone's own rate, and weight decay for matrices only."""
    groups = []
    for module, rate in ((learner.trunk, plan.backbone_rate), (learner.heads, plan.rate), (learner.objectives, plan.rate)):
        parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        matrices = [parameter for parameter in parameters if parameter.ndim > 1]
        vectors = [parameter for parameter in parameters if parameter.ndim <= 1]
        # Proxies are places, not weights: shrinking them would change the temperature.
        decay = 0.0 if module is learner.objectives else plan.weight_decay
        groups += [
            {"params": matrices, "peak": rate, "weight_decay": decay},
            {"params": vectors, "peak": rate, "weight_decay": 0.0},
        ]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=plan.rate, fused=True)


def set_rates(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Scale every group's rate from its peak."""
    for group in optimizer.param_groups:
        group["lr"] = group["peak"] * factor


class MovingAverage:
    """An exponential average of a learner's weights; statistics of normalization are copied, not averaged."""

    def __init__(self, learner: Learner, decay: float) -> None:
        self.learner, self.decay, self.steps = copy.deepcopy(learner), decay, 0
        self.learner.requires_grad_(False)

    @torch.no_grad()
    def update(self, learner: Learner) -> None:
        """Move a little towards the learner; faster at first, so that the start is forgotten."""
        self.steps += 1
        weight = 1 - min(self.decay, (1 + self.steps) / (10 + self.steps))
        for ours, theirs in zip(self.learner.parameters(), learner.parameters(), strict=True):
            ours.lerp_(theirs, weight)
        self.copy_buffers(learner)

    def copy_buffers(self, learner: Learner) -> None:
        """Take over what is not averaged."""
        for kept, seen in zip(self.learner.buffers(), learner.buffers(), strict=True):
            kept.copy_(seen)
