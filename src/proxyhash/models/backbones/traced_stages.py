"""Stages of traced networks, cut after given submodules."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx.node import map_aggregate

from proxyhash.models.backbones.modes import in_mode

TOLERANCE = 1e-3  # relative to the largest feature


Functions = Sequence[Callable[..., Any]]


def cut_network(network: nn.Module, names: Sequence[str], images: Tensor, *, untraced: Functions = ()) -> list[nn.Module]:
    """Return the stages of a network: a stage ends after each of the submodules `names`, and the rest is the last one.

    The submodules are shared, and their own code is not traced. The code around them is traced in both modes. A flag that
    is the mode itself, such as that of a dropout, becomes the mode of the stage; any other difference is an error. Other
    settings, such as rates of dropout in that code, are fixed when the network is cut.

    Parameters
    ----------
    network
        A network from images to features.
    names
        Names of submodules. Each is called once, and later code uses its output and no other value from before.
    images
        A batch on which the stages must give the features of the network.
    untraced
        Functions that decide by shapes of tensors, and so are called as they are.

    Raises
    ------
    ValueError
        If the network cannot be cut, or the stages do not give its features. Tracing may raise other exceptions.
    """
    root = copy.copy(network)  # the tracer stores constants in its root, and they are not to change the network
    graph = _trace(root, names, untraced)
    cuts = _find_cuts(graph, names)
    stages = [_stage(root, graph, *ends) for ends in zip([None, *cuts], [*cuts, None], strict=True)]
    _compare(network, stages, images)
    return stages


class _Tracer(fx.Tracer):
    """Tracer that enters a submodule only if it holds one of the submodules `names`."""

    proxy_buffer_attributes = True  # so that what is computed from buffers is computed on their device

    def __init__(self, names: Sequence[str], untraced: Functions) -> None:
        super().__init__(autowrap_functions=tuple(untraced))
        self.holders = {name[:end] for name in names for end, letter in enumerate(name) if letter == "."}

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:  # noqa: ARG002
        return module_qualified_name not in self.holders


def _trace(root: nn.Module, names: Sequence[str], untraced: Functions) -> fx.Graph:
    """Return one graph for both modes."""
    with in_mode(root, training=True):
        training = _Tracer(names, untraced).trace(copy.copy(root))
    with in_mode(root, training=False):
        graph = _Tracer(names, untraced).trace(root)
    if len(graph.nodes) != len(training.nodes):
        raise ValueError("the code is not the same in training and in evaluation")
    pairs = list(zip(graph.nodes, training.nodes, strict=True))
    with graph.inserting_before(pairs[0][0]):
        mode = graph.create_node("get_attr", "training")
    for node, twin in pairs:
        _join(node, twin, mode)
    return graph


def _join(node: fx.Node, twin: fx.Node, mode: fx.Node) -> None:
    """Replace the arguments of a node that are False, and True for its twin in training, by the mode."""
    ours, theirs = _arguments(node), _arguments(twin)
    flags = [our is False and their is True for our, their in zip(ours, theirs, strict=True)]
    same = all(flag or our == their for flag, our, their in zip(flags, ours, theirs, strict=True))
    if not same or (node.op, node.target) != (twin.op, twin.target):
        raise ValueError(f"{node.name} is not the same in training and in evaluation")
    remaining = iter(flags)
    node.args = map_aggregate(node.args, lambda value: mode if next(remaining) else value)
    node.kwargs = map_aggregate(node.kwargs, lambda value: mode if next(remaining) else value)


def _arguments(node: fx.Node) -> list[Any]:
    """Return all arguments in one list, with names in place of nodes."""
    found: list[Any] = []
    map_aggregate((node.args, node.kwargs), lambda value: found.append(value.name if isinstance(value, fx.Node) else value))
    return found


def _find_cuts(graph: fx.Graph, names: Sequence[str]) -> list[fx.Node]:
    """Return the calls of the submodules, in their order."""
    cuts = [node for node in graph.nodes if node.op == "call_module" and node.target in names]
    if sorted(str(node.target) for node in cuts) != sorted(names):
        raise ValueError("not every feature stage is called once")
    return cuts


def _stage(root: nn.Module, graph: fx.Graph, first: fx.Node | None, last: fx.Node | None) -> nn.Module:
    """Return what is computed after the node `first` up to `last`; None is the input, or the output."""
    nodes = list(graph.nodes)
    source = next(node for node in nodes if node.op == "placeholder") if first is None else first
    begin, end = nodes.index(source) + 1, len(nodes) - 1 if last is None else nodes.index(last) + 1
    fixed = _without_inputs(graph)
    stage = fx.Graph()
    copies = {source: stage.placeholder("inputs")}

    def copied(node: fx.Node) -> fx.Node:
        if node not in copies:
            if node not in fixed:
                raise ValueError(f"{node.name} is used on both sides of a cut")
            copies[node] = stage.node_copy(node, copied)
        return copies[node]

    for node in nodes[begin:end]:
        if node not in fixed:
            copies[node] = stage.node_copy(node, copied)
    stage.output(copied(nodes[-1].args[0] if last is None else last))
    return fx.GraphModule(root, stage, "Stage")


def _without_inputs(graph: fx.Graph) -> set[fx.Node]:
    """Return the nodes that do not depend on the images, such as parameters; every stage has those that it needs."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        if node.op != "placeholder" and all(each in found for each in node.all_input_nodes):
            found.add(node)
    return found


def _compare(network: nn.Module, stages: list[nn.Module], images: Tensor) -> None:
    """Raise unless the stages pass on one tensor each, and end with the features of the network."""
    with in_mode(nn.ModuleList([network, *stages]), training=False), torch.no_grad():
        features = values = images
        for stage in stages:
            values = stage(values)
            if not isinstance(values, Tensor):
                raise TypeError(f"a stage gives a {type(values).__name__}")
        features = network(images)
    if not float((values - features).abs().max()) <= TOLERANCE * float(features.abs().max()):
        raise ValueError("the stages do not give the features of the network")
