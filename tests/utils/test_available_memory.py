"""Available memory of a machine and of control groups."""

from pathlib import Path

import pytest

from proxyhash import InputError
from proxyhash.utils import available_memory as memory


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the files of a system: 8,000 kB are available, and there is no control group."""
    (tmp_path / "meminfo").write_text("MemTotal:       16000 kB\nMemAvailable:    8000 kB\nHugePages_Total:   0\n")
    (tmp_path / "own").write_text("")
    for name, file in (("_MEMINFO", "meminfo"), ("_OWN_GROUPS", "own"), ("_GROUPS", "groups")):
        monkeypatch.setattr(memory, name, tmp_path / file)
    return tmp_path


def write_group(folder: Path, limit: str, used: str, names: tuple[str, str, str], cache: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / names[0]).write_text(f"{limit}\n")
    (folder / names[1]).write_text(f"{used}\n")
    (folder / "memory.stat").write_text(f"anon 5\n{names[2]} {cache}\n")


def test_machine_without_groups(system: Path) -> None:
    assert memory.available_memory() == 8_192_000
    (system / "meminfo").unlink()
    assert memory.available_memory() is None


@pytest.mark.parametrize(("line", "root", "files"), [("0::", "", memory._FILES_2), ("4:memory:", "memory", memory._FILES_1)])
def test_least_limit_of_groups_counts(system: Path, line: str, root: str, files: tuple[str, str, str]) -> None:
    (system / "own").write_text(f"3:cpu:/other\n{line}/a/b\n")
    folder = system / "groups" / root
    write_group(folder / "a" / "b", "max", "10", files, 0)
    assert memory.available_memory() == 8_192_000
    write_group(folder / "a" / "b", "5000000", "1000000", files, 200_000)
    assert memory.available_memory() == 4_200_000
    write_group(folder / "a", "3000000", "2999999", files, 0)
    assert memory.available_memory() == 1
    write_group(folder, "10", "99", files, 0)
    assert memory.available_memory() == 0


@pytest.mark.usefixtures("system")
def test_more_memory_than_there_is_is_refused_with_both_numbers() -> None:
    memory.check_memory(8_192_000, "The codes need", "buy more")
    with pytest.raises(InputError, match=r"^The codes need 2\.5 GB of memory, and 8\.2 MB are available; buy more\.$"):
        memory.check_memory(2_500_000_000, "The codes need", "buy more")
