import numpy as np
import pytest
import torch
from torch import nn

from proxyhash.methods import TrainingData, build_method
from proxyhash.models.backbones import create_backbone
from proxyhash.models.network import HashHead, HeadConfig, NormalizedBackbone
from proxyhash.training.config import OptimConfig
from proxyhash.training.model import ModelEma, MultiHeadModel, build_optimizer, set_lr


def build_model(method: str = "learned", lengths: tuple[int, ...] = (8, 12)) -> MultiHeadModel:
    torch.manual_seed(0)
    trunk = NormalizedBackbone(create_backbone("convnet", pretrained=False))
    objectives = [build_method(method, TrainingData.from_arrays(bits, None, np.arange(4)), {}) for bits in lengths]
    return MultiHeadModel(trunk, [HashHead(HeadConfig(256, bits, hidden_dim=16)) for bits in lengths], objectives)


def test_heads_share_the_features_of_the_trunk() -> None:
    model = build_model().eval()
    pixels = torch.rand(5, 3, 8, 8) * 255
    short, long = model(pixels)
    assert (short.shape, long.shape) == ((5, 8), (5, 12))
    torch.testing.assert_close(long, model.heads[1](model.trunk(pixels)))
    targets = torch.tensor([0, 1, 2, 3, 0])
    losses = [objective(nu, targets, targets) for objective, nu in zip(model.objectives, (short, long), strict=True)]
    torch.testing.assert_close(model.loss([short, long], targets, targets), (losses[0] + losses[1]) / 2)


def test_parameter_groups_have_their_lr_and_only_matrices_decay() -> None:
    model = build_model()
    optim = OptimConfig(lr=0.1, backbone_lr=0.01, weight_decay=0.5)
    optimizer = build_optimizer(model, optim)
    found = {id(p): group for group in optimizer.param_groups for p in group["params"]}
    assert len(found) == len(list(model.parameters()))
    for name, parameter in model.named_parameters():
        group = found[id(parameter)]
        assert group["max_lr"] == (0.01 if name.startswith("trunk") else 0.1)
        decays = parameter.ndim > 1 and not name.startswith("objectives")
        assert group["weight_decay"] == (0.5 if decays else 0.0), name
    set_lr(optimizer, 0.25)
    assert {group["lr"] for group in optimizer.param_groups} == {0.0025, 0.025}


def test_parameters_of_a_method_may_have_their_own_lr() -> None:
    model = build_model("bhc")
    optimizer = build_optimizer(model, OptimConfig(lr=0.1))
    rates = {id(p): group["max_lr"] for group in optimizer.param_groups for p in group["params"]}
    for name, parameter in model.named_parameters():
        if not name.startswith("trunk"):
            assert rates[id(parameter)] == (1.0 if "classifier" in name else 0.1), name


def test_momentum_encoder_follows_trunk_and_heads() -> None:
    model = build_model("mdsh").train()
    slow = model.momentum_encoder
    assert slow is not None
    pixels = torch.rand(5, 3, 8, 8) * 255
    first = [weight.clone() for weight in slow.heads.parameters()]
    with torch.no_grad():
        for weight in model.heads.parameters():
            weight.add_(1.0)
    short, long = model.momentum_embeddings(pixels)
    assert (short.shape, long.shape) == ((5, 8), (5, 12))
    assert not short.requires_grad
    for before, now in zip(first, slow.heads.parameters(), strict=True):
        torch.testing.assert_close(now, before + 0.1)
    torch.testing.assert_close(long, slow.heads[1](slow.trunk(pixels)))
    optimized = {
        id(p) for group in build_optimizer(model, OptimConfig(backbone_lr=0.1)).param_groups for p in group["params"]
    }
    assert not optimized & {id(p) for p in slow.parameters()}


def test_methods_without_momentum_have_no_second_encoder() -> None:
    model = build_model("learned")
    assert model.momentum_encoder is None
    assert model.momentum_embeddings(torch.rand(5, 3, 8, 8)) == []


def test_freeze_bn_holds_for_the_momentum_encoder_too() -> None:
    model = build_model("mdsh")
    model.freeze_bn = True
    model.train()
    assert model.momentum_encoder is not None
    norms = [module for module in model.momentum_encoder.trunk.modules() if isinstance(module, nn.BatchNorm2d)]
    assert norms
    assert not any(module.training for module in norms)


def test_fixed_proxies_are_not_optimized() -> None:
    model = build_model("random")
    optimized = {id(p) for group in build_optimizer(model, OptimConfig()).param_groups for p in group["params"]}
    assert not optimized & {id(p) for p in model.objectives.parameters()}


def test_ema_averages_parameters_and_copies_buffers() -> None:
    model = build_model(lengths=(8,))
    ema = ModelEma(model, 0.9)
    start = model.heads[0].layers[-1].weight.detach().clone()  # type: ignore[index, union-attr]
    expected = start.clone()
    for step in range(1, 31):
        with torch.no_grad():
            model.heads[0].layers[-1].weight.add_(1.0)  # type: ignore[index, union-attr]
        model.trunk.backbone.layers[1].running_mean.fill_(float(step))  # type: ignore[union-attr, index]
        ema.update_parameters(model)
        decay = min(0.9, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * (start + step)
    torch.testing.assert_close(ema.module.heads[0].layers[-1].weight, expected)  # type: ignore[index, union-attr]
    assert ema.module.trunk.backbone.layers[1].running_mean[0] == 30  # type: ignore[union-attr, index]
    assert not any(parameter.requires_grad for parameter in ema.module.parameters())


@pytest.mark.parametrize("frozen", [True, False])
def test_freeze_bn_affects_the_trunk_only(frozen: bool) -> None:
    model = MultiHeadModel(
        nn.Sequential(nn.BatchNorm1d(4)), [HashHead(HeadConfig(4, 2, hidden_dim=3))], [], freeze_bn=frozen
    )
    model.train()
    assert model.trunk[0].training is not frozen  # type: ignore[index]
    assert model.heads[0].layers[1].training  # type: ignore[index, union-attr]
    assert not model.eval().training
