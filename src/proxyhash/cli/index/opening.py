"""Opening of an index for a command."""

from pathlib import Path
from typing import TYPE_CHECKING

from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress

if TYPE_CHECKING:
    from proxyhash.index import Index
    from proxyhash.index.local.index import LocalIndex
    from proxyhash.index.refinement.refiner import Kind


def open_index(
    location: str | Path,
    model: Path | None = None,
    bits: int | None = None,
    *,
    device: str = "cpu",
    refine: "Kind | None" = None,
) -> "Index":
    """Open an index, or create one for a model or for codes of some bits."""
    from proxyhash.index import Index

    return Index.open(location, model=model, bits=bits, device=device, refine=refine)


def open_local_index(location: str | Path, progress: Progress = no_progress, *, device: str = "cpu") -> "LocalIndex":
    """Open an index in a folder, for commands that a server does not offer."""
    from proxyhash.index.local.index import LocalIndex
    from proxyhash.index.milvus.location import is_milvus

    if is_milvus(location):
        raise InputError(f"This is for an index in a folder; {location} is on a server, which maintains itself.")
    return LocalIndex.open_folder(Path(location), device=device, progress=progress)
