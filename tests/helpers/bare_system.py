"""A run of the core on a system without the names of Python that only Linux or POSIX has. It is a script of its own.

The names are removed before proxyhash is imported, so that constants of its modules are computed without them too.
"""

import os
import platform
import signal
import sys
from importlib import import_module
from pathlib import Path

MISSING = {
    os: ("O_DIRECTORY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "pread", "pwrite", "preadv", "sched_getaffinity", "geteuid",
         "getuid", "sysconf", "posix_fadvise", "posix_fallocate", "link", "uname"),
    signal: ("SIGKILL", "SIGHUP", "SIGUSR1"),
}  # fmt: skip
PACKAGES = ("numpy", "numba", "torch", "onnxruntime", "onnxscript", "onnx", "sklearn.datasets", "scipy.optimize",
            "PIL.Image", "rich.console", "platformdirs", "cyclopts", "msgspec", "tenacity", "safetensors.torch")  # fmt: skip
MODULES = ("fcntl", "resource", "pwd", "grp", "termios")


def remove_names() -> None:
    """Remove what a system such as Windows lacks, after other packages were imported, which have checks of their own."""
    import shutil

    for package in PACKAGES:
        import_module(package)
    platform.platform()  # it is cached
    disk_usage = shutil.disk_usage(".")
    shutil.disk_usage = lambda path: disk_usage  # noqa: ARG005  of Windows it has another implementation
    for owner, names in MISSING.items():
        for name in names:
            if hasattr(owner, name):
                delattr(owner, name)
    os.supports_dir_fd.clear()
    os.supports_effective_ids.clear()
    for module in MODULES:
        sys.modules[module] = None  # type: ignore[assignment]  # an import of it fails


def use_core(folder: Path) -> None:
    """Write, index, search, back up, restore and salvage codes; read images; train and encode."""
    import numpy as np
    from PIL import Image

    from proxyhash import Index
    from proxyhash.data.images import FileImages
    from proxyhash.data.loader import load_batches
    from proxyhash.data.transforms import get_transform
    from proxyhash.index.backup import backup, restore
    from proxyhash.index.local.index import LocalIndex
    from proxyhash.index.maintenance import compact, verify
    from proxyhash.index.salvage import salvage
    from proxyhash.utils.atomic_io import atomic_folder, atomic_write
    from proxyhash.utils.diagnostics import collect_diagnostics
    from proxyhash.utils.json_lines import append_json_line
    from proxyhash.utils.memory import keep_freed_memory

    for text in ("one", "two"):
        with atomic_write(folder / "file") as temporary:
            temporary.write_text(text, encoding="utf-8")
        with atomic_folder(folder / "folder") as new:
            (new / text).write_bytes(b"")
        append_json_line(folder / "lines.jsonl", {"text": text})
    assert (folder / "file").read_text(encoding="utf-8") == "two"
    assert [path.name for path in (folder / "folder").iterdir()] == ["two"]
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]

    codes = np.random.default_rng(0).integers(0, 256, (300, 4), dtype=np.uint8)
    with Index.open(folder / "index", bits=32) as index:
        assert isinstance(index, LocalIndex)
        index.add(codes, keys=[f"item {number}" for number in range(300)])
        assert index.search(codes[:1], k=1)[0].matches[0].key == "item 0"
        backup(index, folder / "copy")
        compact(index)
        assert verify(index).ok
    assert restore(folder / "copy", folder / "restored") == 300
    assert salvage(folder / "index", folder / "saved").saved == 300

    (folder / "images" / "a").mkdir(parents=True)
    for number in range(6):
        Image.new("RGB", (9, 9), (40 * number, 0, 0)).save(folder / "images" / "a" / f"{number}.png")
    images = FileImages(folder / "images", [f"a/{number}.png" for number in range(6)])
    batches = list(load_batches(images, [np.arange(4), np.arange(4, 6)], get_transform("small", 8)))
    assert [len(batch.images) for batch in batches] == [4, 2]
    keep_freed_memory()
    assert collect_diagnostics(folder)["threads"]["cores"] >= 1


def run_commands(folder: Path) -> None:
    """Train, index and search by the command line."""
    from proxyhash.cli.app import main

    model, index = str(folder / "model"), str(folder / "images.index")
    main(["train", "digits", "--method", "lsh", "--backbone", "convnet", "--bits", "16", "-o", model, "--quiet"])
    main(["index", "add", str(folder / "images"), "--model", model, "--index", index, "--quiet"])
    main(["search", index, str(folder / "images" / "a" / "2.png"), "-k", "1"])
    main(["index", "verify", index])
    main(["doctor"])


if __name__ == "__main__":
    target = Path(sys.argv[1])
    remove_names()
    use_core(target)
    run_commands(target)
