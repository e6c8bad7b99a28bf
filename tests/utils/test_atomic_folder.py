import errno
import stat
from pathlib import Path

import pytest

from proxyhash.utils import atomic_io
from proxyhash.utils.atomic_io import atomic_folder, atomic_write, umask
from proxyhash.utils.errors import InputError


@pytest.mark.parametrize("exchange", [True, False], ids=["in one step", "where the system cannot"])
def test_a_folder_is_replaced_as_a_whole(tmp_path: Path, exchange: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not exchange:
        monkeypatch.setattr(atomic_io, "_exchange", lambda *_: False)
    path = tmp_path / "deep" / "model"
    for content in ("first", "second"):
        with atomic_folder(path) as temporary:
            (temporary / content).write_text(content)
            assert not (path / content).exists()
        assert [file.name for file in path.iterdir()] == [content]
    assert [child.name for child in path.parent.iterdir()] == ["model"]


def test_failed_work_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "model"
    with atomic_folder(path) as temporary:
        (temporary / "file").write_text("good")
    with pytest.raises(RuntimeError), atomic_folder(path) as temporary:
        (temporary / "file").write_text("bad")
        raise RuntimeError
    assert (path / "file").read_text() == "good"
    assert [child.name for child in tmp_path.iterdir()] == ["model"]


def test_others_may_read_what_they_may_usually_read(tmp_path: Path) -> None:
    with atomic_folder(tmp_path / "model") as temporary:
        (temporary / "file").write_text("")
        (temporary / "file").chmod(0o600)
    assert stat.S_IMODE((tmp_path / "model").stat().st_mode) == 0o777 & ~umask()
    assert stat.S_IMODE((tmp_path / "model" / "file").stat().st_mode) == 0o666 & ~umask()


def test_the_exchange_says_when_it_cannot(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    assert not atomic_io._exchange(tmp_path / "one", tmp_path / "absent")


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("kept")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InputError, match=r"Cannot write .*file"), atomic_folder(path) as temporary:
            (temporary / "new").write_text("")
    assert (tmp_path / "file").read_text() == "kept"
    assert [child.name for child in tmp_path.iterdir()] == ["file"]


def test_error_about_a_file_that_is_read_stays_as_it_is(tmp_path: Path) -> None:
    for writer in (atomic_write, atomic_folder):
        with pytest.raises(FileNotFoundError), writer(tmp_path / "new"):
            (tmp_path / "absent").read_text()
    assert not list(tmp_path.iterdir())


def test_write_that_the_system_refuses_is_one_sentence(tmp_path: Path) -> None:
    for writer in (atomic_write, atomic_folder):
        with pytest.raises(InputError, match=r"Cannot write .*new: Input/output error\.$"), writer(tmp_path / "new"):
            raise OSError(errno.EIO, "as the system says it")
        with pytest.raises(InputError, match=r"new: no space is left on its disk"), writer(tmp_path / "new"):
            raise RuntimeError("I/O error: No space left on device (os error 28)")  # as safetensors says it
