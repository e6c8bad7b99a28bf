"""Models pushed to a local stub of the Hugging Face Hub by its own client, and loaded back."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

constants = pytest.importorskip("huggingface_hub.constants")

from helpers.hub_stub import TOKEN, HubStub, running_hub  # noqa: E402
from helpers.models import make_model  # noqa: E402
from proxyhash import Hasher, InputError  # noqa: E402
from proxyhash.models.storage import PROXIES, fingerprint  # noqa: E402

PIXELS = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), dtype=np.uint8)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubStub]:
    """Serve a hub, and point the client to it as the variable HF_ENDPOINT does."""
    with running_hub() as stub:
        monkeypatch.setattr(constants, "ENDPOINT", stub.url)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", stub.url + "/{repo_id}/resolve/{revision}/{filename}")
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        yield stub


def test_a_pushed_model_loads_back(hub: HubStub, model: Path) -> None:
    hasher = Hasher.load(model)
    commit = hasher.push_to_hub("someone/photos", token=TOKEN)
    number, files = hub.head("someone/photos")
    assert commit == number
    assert {name: data for name, data in files.items() if name != ".gitattributes"} == {
        file.name: file.read_bytes() for file in model.iterdir()
    }
    assert {"README.md", "config.json", "model.safetensors", "model.onnx"} <= set(files)
    loaded = Hasher.load("someone/photos", revision=commit)
    assert loaded.folder is not None
    assert fingerprint(loaded.folder) == fingerprint(model)
    assert not any("model.onnx" in request for request in hub.requests)  # a network of others is not fetched
    hasher.onnx = None
    np.testing.assert_array_equal(loaded.encode(PIXELS), hasher.encode(PIXELS))


def test_a_hasher_without_a_folder_is_saved_on_the_way(hub: HubStub, model: Path) -> None:
    hasher = Hasher.load(model)
    hasher.folder = None
    commit = hasher.push_to_hub("someone/photos", token=TOKEN, commit_message="A first model")
    assert hasher.folder is None
    loaded = Hasher.load(f"someone/photos@{commit}")
    np.testing.assert_allclose(loaded.embed(PIXELS), hasher.embed(PIXELS), atol=1e-4)
    assert json.loads(hub.head("someone/photos")[1]["config.json"])["head"]["bits"] == 32


def test_files_of_the_model_before_are_deleted_and_others_stay(hub: HubStub, model: Path, tmp_path: Path) -> None:
    Hasher.load(model).push_to_hub("someone/photos", token=TOKEN)
    hub.commit("someone/photos", {**hub.head("someone/photos")[1], "LICENSE": b"mine"})
    other = Hasher.load(make_model(16, 3, tmp_path / "other"))
    other.proxies, other.folder = None, None
    commit = other.push_to_hub("someone/photos", token=TOKEN)
    files = hub.head("someone/photos")[1]
    assert PROXIES not in files
    assert files["LICENSE"] == b"mine"
    assert Hasher.load(f"someone/photos@{commit}").bits == 16


def test_the_token_of_the_environment_is_used(hub: HubStub, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert Hasher.load(model).push_to_hub("someone/photos") == hub.head("someone/photos")[0]


def test_without_a_token_one_sentence_says_what_to_do(hub: HubStub, model: Path) -> None:
    with pytest.raises(
        InputError, match=r"^someone/photos cannot be pushed to: the Hugging Face Hub answers 401; log in"
    ) as refused:
        Hasher.load(model).push_to_hub("someone/photos")
    assert str(refused.value).count(". ") == 0
    assert hub.repositories == {}


def test_without_a_network_one_sentence_says_so(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(InputError, match=r"^someone/photos cannot be pushed to: "):
        Hasher.load(model).push_to_hub("someone/photos", token=TOKEN)


@pytest.mark.parametrize("name", ["photos", "a/b/c", "some one/photos", "someone/photos@main", "../photos", ""])
def test_names_of_no_repository_are_refused(name: str, hub: HubStub, model: Path) -> None:
    with pytest.raises(InputError, match="is no name of a repository of the Hugging Face Hub, such as OWNER/NAME"):
        Hasher.load(model).push_to_hub(name, token=TOKEN)
    assert hub.requests == []


def test_a_damaged_folder_is_not_pushed(hub: HubStub, tmp_path: Path) -> None:
    folder = make_model(8, 1, tmp_path / "model")
    hasher = Hasher.load(folder)
    with (folder / "model.safetensors").open("ab") as handle:
        handle.write(b"x")
    with pytest.raises(InputError, match="is damaged: its checksum differs"):
        hasher.push_to_hub("someone/photos", token=TOKEN)
    assert hub.requests == []


def test_without_the_package_one_sentence_says_what_to_type(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match=r'run pip install "proxyhash\[hub\]".'):
        Hasher.load(model).push_to_hub("someone/photos")
