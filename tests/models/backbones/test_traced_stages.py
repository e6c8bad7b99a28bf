"""Stages of small traced networks."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from proxyhash.models.backbones.traced_stages import cut_network

Code = Callable[["Network", Tensor], Tensor]


class Network(nn.Module):
    """Three convolutions and a normalization, with code of the test around them."""

    mean: Tensor
    var: Tensor
    pair: nn.Module

    def __init__(self, code: Code) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.third = nn.Conv2d(3, 4, 1), nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 1)
        self.norm = nn.BatchNorm2d(4)
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("var", torch.ones(4))
        self.code = code

    def forward(self, images: Tensor) -> Tensor:
        return self.code(self, images)


class Pair(nn.Module):
    """A submodule that returns two tensors."""

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        return inputs, inputs + 1


def pixels() -> Tensor:
    return torch.randn(6, 3, 4, 4, generator=torch.Generator().manual_seed(1))


def run(modules: list[nn.Module], *, training: bool) -> Tensor:
    torch.manual_seed(2)
    values = pixels()
    with torch.no_grad():
        for module in modules:
            values = module.train(training)(values)
    return values


def check(code: Code, *names: str) -> list[nn.Module]:
    """Cut a network and compare its stages with it in both modes, running statistics included; return the stages."""
    network = Network(code)
    whole = copy.deepcopy(network)
    stages = cut_network(network, names, pixels())
    assert len(stages) == len(names) + 1
    for training in (False, True, False):  # the second evaluation has the statistics of the training
        torch.testing.assert_close(run(stages, training=training), run([whole], training=training))
        torch.testing.assert_close(network.state_dict(), whole.state_dict())
    return stages


def plain(network: Network, images: Tensor) -> Tensor:
    return network.third(network.second(network.first(images)).relu()).mean((2, 3))  # type: ignore[no-any-return]


def residual(network: Network, images: Tensor) -> Tensor:
    inputs = network.first(images).relu()
    outputs: Tensor = network.third(inputs + network.second(inputs))
    return outputs.mean((2, 3))


def with_dropout(network: Network, images: Tensor) -> Tensor:
    dropped = functional.dropout(network.first(images), 0.5, training=network.training)
    return functional.dropout(network.second(dropped).mean((2, 3)), 0.5, network.training)


def with_norm(network: Network, images: Tensor) -> Tensor:
    outputs: Tensor = network.second(network.norm(network.first(images)))
    return outputs.mean((2, 3))


def with_functional_norm(network: Network, images: Tensor) -> Tensor:
    maps = network.first(images)
    normalized = functional.batch_norm(maps, network.mean, network.var, training=network.training)
    outputs: Tensor = network.second(normalized)
    return outputs.mean((2, 3))


@pytest.mark.parametrize("names", [("first",), ("second",), ("third",), ("first", "second"), ("first", "second", "third")])
def test_stages_in_a_row_are_the_network_at_one_or_several_cuts(names: tuple[str, ...]) -> None:
    check(plain, *names)


@pytest.mark.parametrize("names", [("first",), ("third",), ("first", "third")])
def test_residual_inside_a_stage_is_kept(names: tuple[str, ...]) -> None:
    check(residual, *names)


@pytest.mark.parametrize("names", [("second",), ("first", "second")])
def test_residual_across_a_cut_is_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"^relu is used on both sides of a cut$"):
        cut_network(Network(residual), names, pixels())


def test_dropout_follows_the_mode_of_its_own_stage() -> None:
    lower, upper = check(with_dropout, "first")
    upper.train()
    lower.eval()
    maps = lower(pixels())
    torch.testing.assert_close(lower(pixels()), maps)
    assert not torch.equal(upper(maps), upper(maps))
    upper.eval()
    assert torch.equal(upper(maps), upper(maps))


@pytest.mark.parametrize("names", [("first",), ("norm",), ("second",), ("first", "norm", "second")])
def test_batch_norm_module_follows_the_mode(names: tuple[str, ...]) -> None:
    check(with_norm, *names)


@pytest.mark.parametrize("names", [("first",), ("second",)])
def test_batch_norm_function_follows_the_mode_and_changes_the_buffers_of_the_network(names: tuple[str, ...]) -> None:
    network = Network(with_functional_norm)
    stages = cut_network(network, names, pixels())
    assert not torch.equal(run(stages, training=False), run(stages, training=True))
    assert network.mean.abs().sum() > 0
    check(with_functional_norm, *names)


def test_frozen_lower_stage_keeps_its_statistics_while_the_upper_one_is_trained() -> None:
    network = Network(with_norm)
    lower, upper = cut_network(network, ["second"], pixels())
    lower.eval()
    upper.train()
    upper(lower(pixels()))
    assert network.norm.num_batches_tracked == 0
    lower.train()
    lower(pixels())
    assert network.norm.num_batches_tracked == 1


def _adds(network: Network, images: Tensor) -> Tensor:
    maps: Tensor = network.first(images)
    return maps + 1 if network.training else maps


def _scales(network: Network, images: Tensor) -> Tensor:
    maps: Tensor = network.first(images)
    return maps * (2.0 if network.training else 3.0)


def _another_function(network: Network, images: Tensor) -> Tensor:
    maps: Tensor = network.first(images)
    return maps.relu() if network.training else maps.sigmoid()


def _another_module(network: Network, images: Tensor) -> Tensor:
    maps: Tensor = network.first(images)
    outputs: Tensor = network.second(maps) if network.training else network.third(maps)
    return outputs


def _the_opposite(network: Network, images: Tensor) -> Tensor:
    return functional.dropout(network.first(images), 0.5, not network.training)


@pytest.mark.parametrize("code", [_adds, _scales, _another_function, _another_module, _the_opposite])
def test_code_that_differs_between_modes_is_refused(code: Code) -> None:
    with pytest.raises(ValueError, match=r"not the same in training and in evaluation$"):
        cut_network(Network(code), ["first"], pixels())


def test_submodule_that_is_called_twice_or_never_is_refused() -> None:
    def twice(network: Network, images: Tensor) -> Tensor:
        outputs: Tensor = network.second(network.second(network.first(images)))
        return outputs

    for name in ("second", "third", "absent"):
        with pytest.raises(ValueError, match=r"^not every feature stage is called once$"):
            cut_network(Network(twice), [name], pixels())
    check(twice, "first")


def test_stage_that_gives_a_tuple_is_refused() -> None:
    def paired(network: Network, images: Tensor) -> Tensor:
        both = network.pair(network.first(images))
        outputs: Tensor = both[0] * both[1]
        return outputs

    network = Network(paired)
    network.pair = Pair()
    with pytest.raises(TypeError, match=r"^a stage gives a tuple$"):
        cut_network(network, ["pair"], pixels())
    assert len(cut_network(network, ["first"], pixels())) == 2


def test_stages_that_do_not_give_the_features_are_refused() -> None:
    def random(network: Network, images: Tensor) -> Tensor:
        maps: Tensor = network.first(images)
        return maps + torch.rand(4, 1, 1).add(1)  # drawn once when it is traced

    def undefined(network: Network, images: Tensor) -> Tensor:
        maps: Tensor = network.first(images)
        return maps / 0

    for code in (random, undefined):
        with pytest.raises(ValueError, match=r"^the stages do not give the features of the network$"):
            cut_network(Network(code), ["first"], pixels())


def test_submodules_inside_others_are_cut() -> None:
    network = nn.Sequential(nn.Sequential(nn.Conv2d(3, 4, 1), nn.ReLU()), nn.Sequential(nn.Conv2d(4, 5, 1), nn.ReLU()))
    stages = cut_network(network.eval(), ["0.0", "1.0"], pixels())
    torch.testing.assert_close(run(stages, training=False), network(pixels()))
    assert [len(list(stage.parameters())) for stage in stages] == [2, 2, 0]


def pad_to_even(maps: Tensor) -> Tensor:
    """Decide by the shape, which is not known while a network is traced."""
    return functional.pad(maps, (0, 1)) if maps.shape[-1] % 2 else maps


def test_functions_that_decide_by_shapes_are_called_as_they_are() -> None:
    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 1)

        def forward(self, images: Tensor) -> Tensor:
            return pad_to_even(self.conv(images))

    with pytest.raises(torch.fx.proxy.TraceError):
        cut_network(Padded(), ["conv"], pixels())
    stages = cut_network(Padded(), ["conv"], pixels(), untraced=[pad_to_even])
    for side in (3, 4):
        assert stages[1](stages[0](torch.zeros(1, 3, 4, side))).shape[-1] == 4


def test_network_stays_as_it_is_and_shares_its_weights() -> None:
    def with_constant(network: Network, images: Tensor) -> Tensor:
        outputs: Tensor = network.second(network.first(images) + torch.ones(4, 1, 1))
        return outputs

    network = Network(with_constant).train()
    network.second.eval()
    names, state = set(vars(network)), copy.deepcopy(network.state_dict())
    stages = cut_network(network, ["first"], pixels())
    assert set(vars(network)) == names
    assert [network.training, network.first.training, network.second.training] == [True, True, False]
    torch.testing.assert_close(network.state_dict(), state)
    assert {id(weight) for weight in stages[0].parameters()} == {id(weight) for weight in network.first.parameters()}
    assert {id(weight) for weight in stages[1].parameters()} == {id(weight) for weight in network.second.parameters()}
