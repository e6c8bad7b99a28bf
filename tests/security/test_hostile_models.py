"""Model folders by someone who wants to run code, read other files or exhaust memory."""

import json
import pickle
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from helpers.models import make_model, relist, rewrite_json
from proxyhash.models.hasher import Hasher
from proxyhash.models.onnx_encoder import OnnxEncoder
from proxyhash.proxies import ProxySet
from proxyhash.utils.errors import InputError

WRONG: list[Any] = [None, 0, -1, 1.5, "a", "", [], [[]], {"a": 1}, {"a": {"a": []}}, 10**400]
FLOATS = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(8, 0, tmp_path_factory.mktemp("models") / "model")


@pytest.fixture
def model(saved: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(saved, tmp_path / "model"))


Load = Callable[[Path], object]
with_and_without_torch = pytest.mark.parametrize("load", [Hasher.load, OnnxEncoder.load], ids=["Hasher", "OnnxEncoder"])


def assert_refused(model: Path, load: Load = Hasher.load) -> None:
    with pytest.raises(InputError) as error:
        load(model)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 1000


def safetensors(header: object, data: bytes = b"\0" * 16, length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


@pytest.mark.parametrize("name", ["model.safetensors", "proxies.safetensors", "probe.safetensors"])
@pytest.mark.parametrize(
    "content",
    [
        pytest.param(b"", id="empty"),
        pytest.param(safetensors({"weights": FLOATS}, length=2**63), id="header longer than any file"),
        pytest.param(safetensors({"weights": FLOATS}, length=2**32), id="header longer than the file"),
        pytest.param(safetensors({"a": FLOATS, "weights": FLOATS}), id="overlapping tensors"),
        pytest.param(safetensors({"weights": {**FLOATS, "data_offsets": [0, 2**40]}}), id="offsets behind the end"),
        pytest.param(safetensors({"weights": {**FLOATS, "data_offsets": [16, 0]}}), id="offsets backwards"),
        pytest.param(safetensors({"weights": {**FLOATS, "data_offsets": [-16, 0]}}), id="negative offsets"),
        pytest.param(safetensors({"weights": {**FLOATS, "shape": [2**40, 2**40]}}), id="shape beyond memory"),
        pytest.param(safetensors({"weights": {**FLOATS, "dtype": "OBJECT"}}), id="unknown type"),
        pytest.param(safetensors({"weights": {**FLOATS, "dtype": "F8_E5M2", "shape": [16]}}), id="type of eight bits"),
        pytest.param(safetensors({"weights": {**FLOATS, "dtype": "I32"}}), id="integers"),
        pytest.param(safetensors(b'{"weights": ' + b"[" * 100_000), id="deep nesting"),
        pytest.param(safetensors(b"\xff" * 100), id="header that is not text"),
        pytest.param(safetensors({"__metadata__": {"format": 7}, "weights": FLOATS}), id="metadata that is not text"),
        pytest.param(pickle.dumps({"weights": [1.0]}), id="pickle"),
    ],
)
def test_tensors_that_are_none_are_refused(model: Path, name: str, content: bytes) -> None:
    (model / name).write_bytes(content)
    relist(model, name)
    assert_refused(model)
    if name == "proxies.safetensors":
        with pytest.raises(InputError):
            ProxySet.load(model / name)


def test_pickled_weights_are_never_unpickled(model: Path, tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (Path.touch, (str(tmp_path / "sprung"),))

    for name in ("model.safetensors", "proxies.safetensors", "probe.safetensors", "model.onnx"):
        (model / name).write_bytes(pickle.dumps(Trap()))
        relist(model, name)
        assert_refused(model)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    "name", ["../../etc/passwd", "/etc/passwd", "..", "", "a/b", "config.json", "x" * 100_000, "\x1b[2J"]
)
def test_other_files_are_not_read_by_their_listed_names(model: Path, name: str) -> None:
    sums = json.loads((model / "config.json").read_text())["sha256"]
    rewrite_json(model / "config.json", sha256=sums | {name: "0" * 64})
    assert_refused(model)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (field, value)
        for field in ("format", "backbone", "head", "transform", "class_names", "sha256", "metadata")
        for value in WRONG
        if (field, value)
        not in (("metadata", {"a": 1}), ("metadata", {"a": {"a": []}}), ("metadata", []), ("class_names", []))
    ],
)
def test_values_of_the_wrong_type_are_refused(model: Path, field: str, value: object) -> None:
    rewrite_json(model / "config.json", **{field: value})
    assert_refused(model)


@with_and_without_torch
def test_an_onnx_file_that_is_not_listed_is_refused(load: Load, model: Path) -> None:
    sums = json.loads((model / "config.json").read_text())["sha256"]
    rewrite_json(model / "config.json", sha256={name: value for name, value in sums.items() if name != "model.onnx"})
    with pytest.raises(InputError, match=r"model.onnx is not listed in config.json; delete the file, or save the"):
        load(model)


@with_and_without_torch
def test_an_onnx_file_of_another_model_is_refused(load: Load, model: Path, tmp_path: Path) -> None:
    other = make_model(8, 1, tmp_path / "other")
    shutil.copy(other / "model.onnx", model / "model.onnx")
    with pytest.raises(InputError, match=r"model.onnx is damaged: its checksum differs."):
        load(model)
    relist(model, "model.onnx")
    with pytest.raises(InputError, match=r"model.onnx does not give the outputs of this model"):
        load(model)


@pytest.mark.parametrize("where", ["initializer", "constant", "nested graph"])
@pytest.mark.parametrize("location", ["../secret.bin", "/etc/passwd", "secret.bin", ""])
@with_and_without_torch
def test_an_onnx_file_that_reads_another_file_is_refused(load: Load, model: Path, where: str, location: str) -> None:
    for folder in (model, model.parent):
        (folder / "secret.bin").write_bytes(np.zeros(16, np.float32).tobytes())
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2, 8], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    (model / "model.onnx").write_bytes(graph_with(tensor, where).SerializeToString())
    relist(model, "model.onnx")
    with pytest.raises(InputError, match="refers to another file, which is not allowed"):
        load(model)


@with_and_without_torch
@pytest.mark.parametrize("where", ["initializer", "constant", "nested graph"])
def test_an_external_tensor_without_a_location_is_refused(load: Load, model: Path, where: str) -> None:
    """Such a file does not hold the bytes by which references are found; onnxruntime reads nothing for it."""
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2, 8], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="offset", value="0")
    content = graph_with(tensor, where).SerializeToString()
    assert b"location" not in content
    (model / "model.onnx").write_bytes(content)
    relist(model, "model.onnx")
    assert_refused(model, load)


@with_and_without_torch
def test_the_word_location_in_a_name_is_allowed(load: Load, model: Path) -> None:
    network = onnx.load(model / "model.onnx")
    network.graph.doc_string = "location"
    (model / "model.onnx").write_bytes(network.SerializeToString())
    relist(model, "model.onnx")
    load(model)


@with_and_without_torch
def test_another_format_of_onnxruntime_is_refused(load: Load, model: Path) -> None:
    """Its own format starts with these bytes; references in it are not looked for."""
    (model / "model.onnx").write_bytes(b"\x24\0\0\0ORTM" + bytes(100))
    relist(model, "model.onnx")
    assert_refused(model, load)


def graph_with(tensor: TensorProto, where: str) -> onnx.ModelProto:
    output = helper.make_tensor_value_info("nu", TensorProto.FLOAT, [2, 8])
    nodes = [helper.make_node("Identity", ["w"], ["nu"])] if where == "initializer" else []
    if where == "constant":
        nodes = [helper.make_node("Constant", [], ["nu"], value=tensor)]
    if where == "nested graph":
        inner = helper.make_graph([helper.make_node("Constant", [], ["nu"], value=tensor)], "inner", [], [output])
        yes = helper.make_tensor("yes", TensorProto.BOOL, [], [True])
        nodes = [
            helper.make_node("Constant", [], ["yes"], value=yes),
            helper.make_node("If", ["yes"], ["nu"], then_branch=inner, else_branch=inner),
        ]
    pixels = helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 3, 16, 16])
    initializers = [tensor] if where == "initializer" else []
    return helper.make_model(helper.make_graph(nodes, "graph", [pixels], [output], initializers))


@pytest.mark.parametrize("content", [b"", b"garbage", b"\x08\x07", b"\x0a" * 10_000])
@with_and_without_torch
def test_an_onnx_file_that_is_none_is_refused(load: Load, model: Path, content: bytes) -> None:
    (model / "model.onnx").write_bytes(content)
    relist(model, "model.onnx")
    assert_refused(model, load)


@pytest.mark.parametrize("output", [[1, 8], [2, 7], [2, 8, 1]])
@with_and_without_torch
def test_an_onnx_file_with_another_output_is_refused(load: Load, model: Path, output: list[int]) -> None:
    zeros = helper.make_tensor("zeros", TensorProto.FLOAT, output, np.zeros(output).ravel())
    info = helper.make_tensor_value_info("nu", TensorProto.FLOAT, output)
    pixels = helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 3, 16, 16])
    graph = helper.make_graph([helper.make_node("Constant", [], ["nu"], value=zeros)], "graph", [pixels], [info])
    content = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10).SerializeToString()
    (model / "model.onnx").write_bytes(content)
    relist(model, "model.onnx")
    assert_refused(model, load)
