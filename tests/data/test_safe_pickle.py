import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.datasets import python2_pickle
from proxyhash.data.safe_pickle import load_pickle
from proxyhash.utils.errors import InputError


class Runs:
    """An object whose pickle calls something."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def test_tables_of_arrays_are_read_as_python_2_and_3_wrote_them(tmp_path: Path) -> None:
    table = {"data": np.arange(12, dtype=np.uint8).reshape(3, 4), "labels": [1, 2, 250], "batch_label": "training batch"}
    contents = [python2_pickle(table)] + [pickle.dumps(table, protocol) for protocol in range(2, 6)]
    for content in contents[:4]:
        (tmp_path / "batch").write_bytes(content)
        found = load_pickle(tmp_path / "batch")
        assert found.keys() == table.keys()
        np.testing.assert_array_equal(found["data"], table["data"])
        assert found["labels"] == [1, 2, 250]
    assert b"numpy.core.multiarray" in contents[0]
    assert b"U\x04data" not in contents[0]  # long strings throughout, which is what the file's reader must also know
    assert b"T\x04\x00\x00\x00data" in contents[0]


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize(
    "attack",
    [
        lambda path: Runs(os.system, f"touch {path}"),
        lambda path: Runs(eval, f"open({str(path)!r}, 'w')"),
        lambda path: Runs(exec, f"open({str(path)!r}, 'w')"),
        lambda path: Runs(open, str(path), "w"),
        lambda path: Runs(np.save, str(path), 0),
        lambda path: Runs(np.ndarray.tofile, np.zeros(3), str(path)),
        lambda _: Runs(getattr, Runs(__import__, "os"), "system"),
    ],
    ids=["system", "eval", "exec", "open", "numpy save", "method of an allowed class", "getattr"],
)
def test_a_pickle_that_calls_is_refused_and_nothing_runs(
    attack: Callable[[Path], Any], protocol: int, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    (tmp_path / "batch").write_bytes(pickle.dumps({"data": attack(trace)}, protocol))
    with pytest.raises(InputError, match=r"was refused: it is not a plain table of arrays \(it asks for "):
        load_pickle(tmp_path / "batch")
    assert [path.name for path in tmp_path.iterdir()] == ["batch"]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "not a plain table"),
        (b"hello", "not a plain table"),
        (pickle.dumps({"a": np.zeros(99)}, 2)[:-30], "not a plain table"),
        (pickle.dumps([1, 2], 2), "holds no table"),
    ],
)
def test_what_is_no_table_is_refused(content: bytes, why: str, tmp_path: Path) -> None:
    (tmp_path / "batch").write_bytes(content)
    with pytest.raises(InputError, match=why):
        load_pickle(tmp_path / "batch")
