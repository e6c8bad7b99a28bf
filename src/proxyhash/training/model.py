"""Trained module, its optimizer and the moving average of its weights."""

from collections.abc import Iterator, Sequence
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


class MultiHeadModel(nn.Module):
    """One trunk, and a head and an objective for each code length. The trunk is the identity for frozen features."""

    heads: TypedModuleList[Head]
    objectives: TypedModuleList[HashingMethod]

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

    def train(self, mode: bool = True) -> Self:
        """Switch to training mode; with `freeze_bn` the batch normalization of the trunk stays in evaluation mode."""
        super().train(mode)
        for module in self.trunk.modules():
            if self.freeze_bn and isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.eval()
        return self

    def forward(self, inputs: Tensor) -> list[Tensor]:
        """Return the embeddings nu (N, bits) of each code length."""
        features = self.trunk(inputs)
        return [head(features) for head in self.heads]

    def loss(self, embeddings: Sequence[Tensor], targets: Tensor, indices: Tensor) -> Tensor:
        """Return the mean loss over the code lengths, which gives each head the same weight in the trunk's gradient."""
        losses = [objective(nu, targets, indices) for objective, nu in zip(self.objectives, embeddings, strict=True)]
        return torch.stack(losses).mean()


def build_optimizer(model: MultiHeadModel, optim: OptimConfig) -> torch.optim.AdamW:
    """Return AdamW with a learning rate of its own for the trunk, and weight decay for matrices only."""
    groups = []
    for module, lr in ((model.trunk, optim.backbone_lr), (model.heads, optim.lr), (model.objectives, optim.lr)):
        parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        matrices = [parameter for parameter in parameters if parameter.ndim > 1]
        vectors = [parameter for parameter in parameters if parameter.ndim <= 1]
        # No weight decay on proxies: it would rescale the logits.
        weight_decay = 0.0 if module is model.objectives else optim.weight_decay
        groups += [
            {"params": matrices, "max_lr": lr, "weight_decay": weight_decay},
            {"params": vectors, "max_lr": lr, "weight_decay": 0.0},
        ]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=optim.lr, fused=True)


def set_lr(optimizer: torch.optim.Optimizer, factor: float) -> None:
    """Set the learning rate of every parameter group to `factor` times its peak."""
    for group in optimizer.param_groups:
        group["lr"] = group["max_lr"] * factor


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
