"""Whether an index is whole: its file, its checksums, and that items and codes belong together."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from proxyhash.index.local import blocks
from proxyhash.index.local.index import EmbeddedIndex
from proxyhash.index.model_store import model_folder
from proxyhash.models.storage import check_files, fingerprint, read_config
from proxyhash.utils.errors import InputError


@dataclass(frozen=True)
class Verified:
    """What a check found: how many items and blocks there are, and what is wrong, a sentence each."""

    items: int
    blocks: int
    problems: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """Return whether nothing is wrong."""
        return not self.problems

    def as_dict(self) -> dict[str, Any]:
        """Return everything for JSON."""
        return {"whole": self.whole, **asdict(self)}


def verify(index: EmbeddedIndex) -> Verified:
    """Read everything there is and say what is wrong with it."""
    store, problems = index.store, []
    with store.reading():
        for (message,) in store.rows("PRAGMA integrity_check(10)"):
            if message != "ok":
                problems.append(f"SQLite says: {message}.")
        items = np.array([row[0] for row in store.rows("SELECT position FROM items ORDER BY position")], np.int64)
        edition = store.fact("live")
        places = blocks.places(store, edition)
        coded = [np.zeros(0, np.int64)]
        for number in places:
            try:
                coded.append(blocks.read_block(store, edition, number).positions.astype(np.int64))
            except InputError as error:
                problems.append(str(error))
        problems += _mismatches(items, np.concatenate(coded), store.fact("next"))
        problems += _model_problems(index)
    return Verified(len(items), len(places), tuple(problems))


def _mismatches(items: np.ndarray[Any, Any], coded: np.ndarray[Any, Any], following: int) -> list[str]:
    problems = []
    if (np.diff(coded) <= 0).any():
        problems.append("Positions do not ascend from block to block.")
    if len(lost := np.setdiff1d(items, coded)):
        problems.append(f"{len(lost):,} items have no code.")
    if len(lost := np.setdiff1d(coded, items)):
        problems.append(f"{len(lost):,} codes have no item.")
    if len(items) and items[-1] >= following:
        problems.append("An item lies beyond the last position that was given.")
    return problems


def _model_problems(index: EmbeddedIndex) -> list[str]:
    if index.model is None:
        return []
    folder = model_folder(index.folder, index.model)
    try:
        if fingerprint(folder) != index.model:
            return [f"The copy of the model in {folder} is another one."]
        check_files(folder, read_config(folder)["sha256"])
    except (InputError, OSError, KeyError) as error:
        return [str(error)]
    return []
