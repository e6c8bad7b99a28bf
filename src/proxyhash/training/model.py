"""Trained module, its optimizer and the moving averages of its weights."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from proxyhash.methods import HashingMethod
from proxyhash.models.heads import Head
from proxyhash.training.config import OptimConfig

Item = TypeVar("Item", bound=nn.Module)


class TypedModuleList(nn.ModuleList, Generic[Item]):
    """`nn.ModuleList` that knows the type of its modules."""

    def __iter__(self) -> Iterator[Item]:
        """Iterate over the modules."""
        return super().__iter__()  # type: ignore[return-value]

    def __getitem__(self, index: int) -> Item:  # type: ignore[override]
        """Return one module."""
        return super().__getitem__(index)  # type: ignore[return-value]


class MomentumEncoder(nn.Module):
    """A copy of trunk and heads whose weights follow theirs slowly. It has no gradients, and batch statistics of its own."""

    def __init__(self, trunk: nn.Module, heads: TypedModuleList[Head], momentum: float) -> None:
        super().__init__()
        self.momentum = momentum
        self.trunk, self.heads = deepcopy(trunk), deepcopy(heads)
        self.requires_grad_(False)

    @torch.no_grad()
    def update(self, trunk: nn.Module, heads: TypedModuleList[Head]) -> None:
        """Move the weights w towards those of trunk and heads, v: w = m w + (1 - m) v."""
        for own, followed in ((self.trunk, trunk), (self.heads, heads)):
            for slow, fast in zip(own.parameters(), followed.parameters(), strict=True):
                slow.lerp_(fast, 1 - self.momentum)

    @torch.no_grad()
    def forward(self, inputs: Tensor) -> list[Tensor]:
        """Return the embeddings (N, bits) of each code length."""
        features = self.trunk(inputs)
        return [head(features) for head in self.heads]


class MultiHeadModel(nn.Module):
    """One trunk, and a head and an objective for each code length. The trunk is the identity for frozen features."""

    heads: TypedModuleList[Head]
    objectives: TypedModuleList[HashingMethod]
    momentum_encoder: MomentumEncoder | None

    def __init__(
        self,
        trunk: nn.Module,
        heads: Sequence[Head],
        objectives: Sequence[HashingMethod],
        *,
        freeze_bn: bool = False,
    ) -> None:
        super().__init__()
        self.freeze_bn = freeze_bn
        self.trunk = trunk
        self.heads = TypedModuleList(heads)
        self.objectives = TypedModuleList(objectives)
        momentum = max((each.momentum for each in objectives if each.momentum is not None), default=None)
        self.momentum_encoder = None if momentum is None else MomentumEncoder(trunk, self.heads, momentum)

    def train(self, mode: bool = True) -> Self:
        """Switch to training mode; with `freeze_bn` the batch normalization of the trunk stays in evaluation mode."""
        super().train(mode)
        trunks = [self.trunk] if self.momentum_encoder is None else [self.trunk, self.momentum_encoder.trunk]
        for module in (module for trunk in trunks for module in trunk.modules()):
            if self.freeze_bn and isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()
        return self

    def forward(self, inputs: Tensor) -> list[Tensor]:
        """Return the embeddings nu (N, bits) of each code length."""
        features = self.trunk(inputs)
        return [head(features) for head in self.heads]

    def momentum_embeddings(self, inputs: Tensor) -> list[Tensor]:
        """Return the embeddings by the momentum encoder, after a step of its weights; an empty list without one."""
        if self.momentum_encoder is None:
            return []
        self.momentum_encoder.update(self.trunk, self.heads)
        found: list[Tensor] = self.momentum_encoder(inputs)
        return found

    def loss(self, embeddings: Sequence[Tensor], targets: Tensor, indices: Tensor) -> Tensor:
        """Return the mean loss over the code lengths, which gives each head the same weight in the trunk's gradient."""
        losses = [objective(nu, targets, indices) for objective, nu in zip(self.objectives, embeddings, strict=True)]
        return torch.stack(losses).mean()


def build_optimizer(model: MultiHeadModel, optim: OptimConfig) -> torch.optim.AdamW:
    """Return AdamW with learning rates of their own for trunk and objectives, and weight decay for matrices only."""
    groups = []
    parts = [(list(model.trunk.parameters()), optim.backbone_lr, optim.weight_decay)]
    parts += [(list(model.heads.parameters()), optim.lr, optim.weight_decay)]
    # No weight decay on proxies: it would rescale the logits.
    parts += [(own, optim.lr * factor, 0.0) for factor, own in _parameters_by_lr_factor(model.objectives)]
    for parameters, lr, weight_decay in parts:
        trained = [parameter for parameter in parameters if parameter.requires_grad]
        matrices = [parameter for parameter in trained if parameter.ndim > 1]
        vectors = [parameter for parameter in trained if parameter.ndim <= 1]
        groups += [
            {"params": matrices, "max_lr": lr, "weight_decay": weight_decay},
            {"params": vectors, "max_lr": lr, "weight_decay": 0.0},
        ]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=optim.lr, fused=True)


def _parameters_by_lr_factor(objectives: TypedModuleList[HashingMethod]) -> list[tuple[float, list[nn.Parameter]]]:
    """Return the parameters of all objectives, grouped by their learning rate relative to that of the heads."""
    groups: dict[float, list[nn.Parameter]] = defaultdict(list)
    for objective in objectives:
        factors = objective.lr_factors()
        for name, parameter in objective.named_parameters():
            groups[factors.get(name, 1.0)].append(parameter)
    return sorted(groups.items())


def set_lr(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Set the learning rate of every parameter group to `factor` times its peak."""
    for group in optimizer.param_groups:
        group["lr"] = group["max_lr"] * factor


@dataclass(frozen=True)
class InitialWeights:
    """Weights that a trunk starts from, to be averaged with the trained ones (WiSE-FT, Wortsman et al. 2022).

    Parameters
    ----------
    state
        The state of the trunk before training.
    share
        The share s of these weights w0 in the average s w0 + (1 - s) w, running statistics included.
    """

    state: dict[str, Tensor]
    share: float

    @classmethod
    def of(cls, trunk: nn.Module, share: float) -> Self:
        """Return a copy of the present weights of a trunk."""
        return cls({name: tensor.clone() for name, tensor in trunk.state_dict().items()}, share)

    def averaged(self, model: MultiHeadModel) -> MultiHeadModel:
        """Return a copy of a model with the average in its trunk."""
        copied = deepcopy(model)
        for name, tensor in copied.trunk.state_dict().items():
            if tensor.is_floating_point():
                tensor.lerp_(self.state[name], self.share)
        return copied


class ModelEma(AveragedModel):
    """Exponential moving average of a model's parameters, with its current buffers.

    The decay of step n is min(decay, (1 + n) / (10 + n)), so that the initial weights lose their influence quickly.
    """

    module: MultiHeadModel

    def __init__(self, model: MultiHeadModel, decay: float) -> None:
        def average(averaged: list[Tensor], current: list[Tensor], _: Tensor | int) -> None:
            steps = int(self.n_averaged)  # on the CPU; the argument is a copy on the device, which would have to be awaited
            weight = 1 - min(decay, (1 + steps) / (10 + steps))
            for mean, value in zip(averaged, current, strict=True):
                mean.lerp_(value, weight)

        super().__init__(model, multi_avg_fn=average)  # type: ignore[arg-type]
        self.n_averaged.fill_(1)  # The initial weights count; at 0 torch would replace them by those of the first step.
        self.requires_grad_(False)

    def copy_buffers(self, model: MultiHeadModel) -> None:
        """Copy the buffers of a model."""
        for ours, theirs in zip(self.module.buffers(), model.buffers(), strict=True):
            ours.copy_(theirs)
