"""Files that release 0.1 wrote, and comparisons with the answers that it gave."""

import io
import json
import lzma
import re
import shutil
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

FILES = Path(__file__).parents[1] / "fixtures" / "release-0.1"
MARGIN = 0.02  # codes are compared where outputs are at least this far from zero, as in the script that made the files


def read_json(name: str) -> Any:
    return json.loads((FILES / name).read_text(encoding="utf-8"))


def read_arrays(name: str) -> dict[str, NDArray[Any]]:
    with np.load(FILES / name) as archive:
        return {name: archive[name] for name in archive.files}


def copy_of(name: str, tmp_path: Path) -> Path:
    """Return a copy of a folder that a test may change."""
    return Path(shutil.copytree(FILES / name, tmp_path / Path(name).name))


def index_folder(name: str, tmp_path: Path) -> Path:
    """Return a copy of an index, unpacked, with its copy of the model."""
    folder = copy_of(name, tmp_path)
    (folder / "expected.json").unlink()
    if (folder / "index.sqlite.xz").is_file():
        (folder / "index.sqlite").write_bytes(lzma.decompress((folder / "index.sqlite.xz").read_bytes()))
        (folder / "index.sqlite.xz").unlink()
    else:
        model = read_json("expected-models.json")["model"]["fingerprint"]
        shutil.copytree(FILES / "model", folder / "models" / model)
    return folder


def same_processor() -> bool:
    """Return whether this is the kind of processor that the files were made with, so that floats round the same way."""
    made = read_json("made.json")
    try:
        names = re.findall(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        names = []
    here = (torch.backends.cpu.get_cpu_capability(), torch.__version__, names[:1])
    return here == (made["cpu"], made["versions"]["torch"], [made["machine"]["processor"]])


def assert_floats(found: Any, expected: Any, tolerance: float = 1e-3) -> None:
    """Compare bit for bit on the processor that the files were made with, and closely on others."""
    if same_processor():
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def assert_signs(codes: NDArray[np.uint8], expected: NDArray[np.uint8], outputs: NDArray[np.floating[Any]]) -> None:
    """Compare the bits of codes whose outputs are not near zero; all bits on the processor that the files were made with."""
    if same_processor():
        np.testing.assert_array_equal(codes, expected)
    bits = outputs.shape[1]
    certain = np.abs(outputs) > MARGIN
    assert certain.mean() > 0.8
    found, known = (np.unpackbits(each, axis=1, count=bits, bitorder="little") for each in (codes, expected))
    np.testing.assert_array_equal(found[certain], known[certain])


def run_command(*words: object) -> Any:
    """Run a command of the command line and return the JSON that it prints."""
    from proxyhash.cli.app import main

    printed = io.StringIO()
    with redirect_stdout(printed):
        main([*(str(word) for word in words), "--json"])
    return json.loads(printed.getvalue())


class StepCounter:
    """A progress callback that counts training steps."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, work: str, _: float) -> None:
        self.count += work.startswith("training")


def as_lists(matches: Any) -> dict[str, Any]:
    return {
        "keys": [match.key for match in matches],
        "distances": [match.distance for match in matches],
        "labels": [list(match.labels) for match in matches],
        "expected_precision": [match.expected_precision for match in matches],
        "matched": matches.matched,
    }
