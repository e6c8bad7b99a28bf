"""Which model an index loads, and what a search imports."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from helpers.models import make_vector_model, rewrite_json
from proxyhash.cli.app import main
from proxyhash.data import SkippedItems
from proxyhash.index import Index
from proxyhash.index.folder_sync import add_folder
from proxyhash.index.local.index import LocalIndex
from proxyhash.index.model_store import load_encoder, model_dir
from proxyhash.models.encoder import ModelEncoder
from proxyhash.models.hasher import Hasher
from proxyhash.models.linear_encoder import LinearVectorEncoder
from proxyhash.models.onnx_encoder import OnnxEncoder
from proxyhash.models.vector_hasher import VectorHasher
from proxyhash.utils.errors import InputError, MissingPackageError


@pytest.fixture
def index(model: Path, photos: Path, tmp_path: Path) -> LocalIndex:
    opened = LocalIndex.open_folder(tmp_path / "index", model=model)
    add_folder(opened, photos, SkippedItems())
    return opened


def without_torch(program: str, *arguments: object) -> None:
    """Run a program in a process; torch must not be imported there."""
    check = "\nimport sys\nassert 'torch' not in sys.modules, 'torch was imported'"
    subprocess.run([sys.executable, "-c", program + check, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)


def test_the_encoder_needs_no_torch_and_the_hasher_is_a_network(index: LocalIndex, photos: Path) -> None:
    files = sorted(photos.rglob("*.png"))
    encoder: ModelEncoder = index.encoder
    assert isinstance(encoder, OnnxEncoder)
    assert index.encoder is encoder
    hasher = index.hasher
    assert index.hasher is hasher
    assert isinstance(index.encoder, Hasher)  # a hasher encodes as well
    np.testing.assert_array_equal(encoder.encode(files), hasher.encode(files))


def test_a_model_without_an_onnx_file_encodes_by_torch(model: Path, photos: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(model, tmp_path / "model"))
    (folder / "model.onnx").unlink()
    (folder / "probe.safetensors").unlink()
    with Index.open(tmp_path / "index", model=folder) as index:
        assert isinstance(index.encoder, Hasher)
        index.add([photos / "cats" / "0.png"])
        assert index.search(photos / "cats" / "0.png", k=1)[0].matches[0].distance == 0


def test_a_hasher_that_is_given_stays(model: Path, tmp_path: Path) -> None:
    hasher = Hasher.load(model)
    with Index.open(tmp_path / "index", model=hasher) as index:
        assert index.encoder is hasher


def test_a_damaged_onnx_file_is_an_error_and_nothing_is_created(model: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(model, tmp_path / "model"))
    (folder / "model.onnx").write_bytes(b"garbage")
    with pytest.raises(InputError, match=r"model\.onnx is damaged"):
        Index.open(tmp_path / "index", model=folder)
    assert not (tmp_path / "index").exists()


def test_a_damaged_copy_is_found_by_a_search(index: LocalIndex, photos: Path) -> None:
    assert index.model is not None
    path = model_dir(index.folder, index.model) / "model.onnx"
    path.write_bytes(path.read_bytes()[:-1])
    with Index.open(index.folder) as opened, pytest.raises(InputError, match=r"model\.onnx is damaged"):
        opened.search(photos / "cats" / "0.png")


def test_without_torch_and_an_onnx_file_the_error_says_what_to_install(
    index: LocalIndex, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert index.model is not None
    (model_dir(index.folder, index.model) / "model.onnx").unlink()
    for name in list(sys.modules):
        if name in ("proxyhash.models.hasher", "torch"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(index, "_encoder", None)
    with pytest.raises(MissingPackageError, match=r"without torch; run pip install 'proxyhash\[train\]'"):
        index.search(photos / "cats" / "0.png")


@pytest.mark.parametrize("options", [[], ["--json"], ["--radius", "3"], ["--rerank", "5"], ["--label", "cats"]])
def test_the_search_command_does_not_import_torch(index: LocalIndex, photos: Path, options: list[str]) -> None:
    program = "import sys; from proxyhash.cli.app import main; main(['search', *sys.argv[1:]])"
    without_torch(program, index.folder, photos / "cats" / "0.png", *options)


def test_adding_and_searching_in_python_do_not_import_torch(model: Path, photos: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from proxyhash import Index\n"
        "folder, model, image = sys.argv[1:]\n"
        "with Index.open(folder, model=model) as index:\n"
        "    index.add([image])\n"
        "    assert index.search(image)[0].matches[0].distance == 0\n"
    )
    without_torch(program, tmp_path / "index", model, photos / "cats" / "0.png")


def test_the_index_add_command_does_not_import_torch(model: Path, photos: Path, tmp_path: Path) -> None:
    program = "import sys; from proxyhash.cli.app import main; main(['index', 'add', *sys.argv[1:]])"
    without_torch(program, photos, "--index", tmp_path / "index", "--model", model, "--quiet")


@pytest.mark.parametrize("normalize", [True, False])
def test_linear_encoder_of_vectors_gives_the_codes_of_the_hasher(tmp_path: Path, normalize: bool) -> None:
    folder = make_vector_model(12, 20, 0, tmp_path / "encoder", normalize=normalize)
    vectors = np.random.default_rng(0).normal(size=(500, 12)).astype(np.float32)
    linear, hasher = load_encoder(folder), VectorHasher.load(folder)
    assert isinstance(linear, LinearVectorEncoder)
    assert isinstance(hasher, VectorHasher)
    assert (linear.bits, linear.width, linear.normalizes) == (20, 12, normalize)
    np.testing.assert_array_equal(linear.encode(vectors), hasher.encode(vectors))
    np.testing.assert_allclose(linear.embed(vectors), hasher.embed(vectors), atol=1e-5)
    with pytest.raises(InputError, match="takes vectors of 12 values, not 5"):
        linear.encode(vectors[:, :5])


def test_search_by_vector_does_not_import_torch(tmp_path: Path) -> None:
    folder = make_vector_model(12, 20, 0, tmp_path / "encoder")
    np.save(tmp_path / "v.npy", np.random.default_rng(0).normal(size=(50, 12)).astype(np.float32))
    main(["index", "add", str(tmp_path / "v.npy"), "--index", str(tmp_path / "i"), "--model", str(folder)])
    program = "import sys\nfrom proxyhash.cli.app import main\nmain(['search', *sys.argv[1:]])"
    without_torch(program, tmp_path / "i", "--vectors", tmp_path / "v.npy", "-k", "2")


def test_weights_that_do_not_fit_the_configuration_are_refused(tmp_path: Path) -> None:
    folder = make_vector_model(12, 20, 0, tmp_path / "encoder")
    config = json.loads((folder / "config.json").read_text())
    rewrite_json(folder / "config.json", head=config["head"] | {"in_features": 13})
    with pytest.raises(InputError, match="does not hold the head"):
        load_encoder(folder)
