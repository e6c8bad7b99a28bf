"""Models of the Hugging Face Hub, from a cache that is laid out as the Hub's client lays it out: no network is used."""

import pickle
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

huggingface_hub = pytest.importorskip("huggingface_hub")
constants = pytest.importorskip("huggingface_hub.constants")

from proxyhash.cli.app import main  # noqa: E402
from proxyhash.models.hasher import Hasher  # noqa: E402
from proxyhash.models.hub import FETCHED, local_folder  # noqa: E402
from proxyhash.utils.errors import InputError  # noqa: E402

COMMIT = "0123456789abcdef0123456789abcdef01234567"
PIXELS = np.random.default_rng(0).integers(0, 256, (4, 16, 16, 3), dtype=np.uint8)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache of the Hub's client, which may not use the network."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


@pytest.fixture
def shared(cache: Path, model: Path) -> Path:
    """Return a commit of someone/photos that was fetched before."""
    snapshot = cache / "models--someone--photos" / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    for name in FETCHED:
        if (model / name).is_file():
            shutil.copy(model / name, snapshot / name)
    return snapshot


def test_a_copy_works_without_a_network(shared: Path, model: Path) -> None:
    expected = Hasher.load(model)
    expected.onnx = None  # the shared model is run by torch: its ONNX file stays on the Hub
    codes = expected.encode(PIXELS)
    for found in (Hasher.load(f"someone/photos@{COMMIT}"), Hasher.load("someone/photos", revision=COMMIT)):
        assert np.array_equal(found.encode(PIXELS), codes)
        assert found.folder == shared


def test_commands_take_it_too(shared: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(f"index add {photos} --model someone/photos@{COMMIT} --index {tmp_path}/index".split())
    assert "holds 12 items" in capsys.readouterr().out
    main(f"encode someone/photos@{COMMIT} {photos} -o {tmp_path}/codes.npz".split())
    with pytest.raises(SystemExit):
        main(f"index calibrate someone/photos@{COMMIT} --data {photos}".split())
    assert "is the copy of a shared model; save it to a folder of your own" in capsys.readouterr().err
    assert not (shared / "calibration.json").exists()


@pytest.mark.parametrize("revision", [None, "main", "v1.0", COMMIT[:10], COMMIT.upper()])
def test_what_can_be_moved_is_refused_with_how_to_pin(revision: str | None) -> None:
    with pytest.raises(InputError, match="pin the 40 digits of a commit, someone/photos@COMMIT") as refused:
        Hasher.load("someone/photos", revision=revision)
    assert str(refused.value).count(". ") == 0
    if revision:
        with pytest.raises(InputError, match=f"{revision} can be moved to other weights"):
            Hasher.load(f"someone/photos@{revision}")


def test_without_a_copy_and_without_a_network_one_sentence_says_so(cache: Path) -> None:
    with pytest.raises(InputError) as refused:
        Hasher.load(f"someone/photos@{COMMIT}")
    assert str(refused.value) == (
        f"someone/photos@{COMMIT} is not in {cache} and cannot be fetched now; try again with a network."
    )


def test_without_the_package_one_sentence_says_what_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(InputError, match=r'run pip install "proxyhash\[hub\]".'):
        Hasher.load(f"someone/photos@{COMMIT}")


def test_only_tensors_json_and_the_card_are_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: dict[str, object] = {}

    def fetch(repository: str, **options: object) -> str:
        asked.update(options, repository=repository)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    assert local_folder(f"someone/photos@{COMMIT}") == tmp_path
    assert asked["revision"] == COMMIT
    assert {Path(name).suffix for name in asked["allow_patterns"]} == {".json", ".safetensors", ".md"}  # type: ignore[attr-defined]


def test_a_pickle_that_calls_itself_weights_is_never_opened(shared: Path, tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (Path.touch, (str(tmp_path / "sprung"),))

    (shared / "model.safetensors").write_bytes(pickle.dumps(Trap()))
    with pytest.raises(InputError, match="damaged: its checksum differs"):
        Hasher.load(f"someone/photos@{COMMIT}")
    assert not (tmp_path / "sprung").exists()


def test_folders_come_first_and_paths_are_no_repositories(
    tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copytree(model, "someone/photos")
    assert Hasher.load("someone/photos").bits == 32
    for path in ("absent", "./absent", "../absent", "a/b/c", "/absent/model"):
        assert local_folder(path) == Path(path)
    with pytest.raises(InputError, match="is not a repository of the Hugging Face Hub, so it has no revision"):
        Hasher.load("someone/photos", revision=COMMIT)


@pytest.mark.parametrize("name", ["o/..", "o/.", "o/-a", "o/a--b", "o/a..b", "o--o/a", f"o/{'a' * 97}"])
def test_names_that_the_hub_does_not_have_are_refused(name: str) -> None:
    with pytest.raises(InputError, match=r"is no name of a repository of the Hugging Face Hub.$"):
        local_folder(f"{name}@{COMMIT}")
