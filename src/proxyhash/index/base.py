"""`Index`: what every engine offers, the embedded one here or a cluster."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from proxyhash.codes.bits import Packed
from proxyhash.index.calibration import THRESHOLD
from proxyhash.index.local.items import Item, Labels
from proxyhash.index.milvus.location import is_milvus
from proxyhash.index.queries import Anything
from proxyhash.index.results import Added, Info, Matches

if TYPE_CHECKING:
    from proxyhash.models.hasher import Hasher


class Index(ABC):
    """Items with a key each, searched by the Hamming distance of their codes.

    >>> import tempfile, numpy as np
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Index.open(f"{folder.name}/index", bits=8) as index:
    ...     index.add(np.array([[0b0000_0000], [0b0000_0111]], np.uint8), keys=["none", "three"])
    ...     index.search(np.array([[0b0000_0011]], np.uint8), k=2)[0].found
    Added(2)
    (Match('three', 1 bits), Match('none', 2 bits))
    >>> folder.cleanup()
    """

    @staticmethod
    def open(location: str | Path, *, model: "str | Path | Hasher | None" = None, bits: int | None = None) -> "Index":
        """Open the index in a folder; one that is not there is made, if a `model` or the `bits` of its codes are given.

        An index that is there keeps its model: codes of another model or of another length are refused. An address such as
        milvus://host:19530/photos is an index on a server, see `proxyhash.index.milvus`.
        """
        if isinstance(location, str) and is_milvus(location):
            from proxyhash.index.milvus.index import MilvusIndex

            return MilvusIndex.open_address(location, model=model, bits=bits)
        from proxyhash.index.local.index import EmbeddedIndex

        return EmbeddedIndex.open_folder(Path(location), model=model, bits=bits)

    @property
    @abstractmethod
    def bits(self) -> int:
        """Return the length of the codes."""

    @property
    @abstractmethod
    def model(self) -> str | None:
        """Return the fingerprint of the model, None if the codes came from elsewhere."""

    @property
    @abstractmethod
    def hasher(self) -> "Hasher":
        """Return the model."""

    @abstractmethod
    def __len__(self) -> int:
        """Return how many items there are."""

    @abstractmethod
    def add(self, items: Anything, keys: Sequence[str] | None = None, labels: Labels | None = None) -> Added:
        """Add packed codes (N, bytes) or images; an item whose key is there already is replaced.

        When it returns, everything is on disk. Image files are named by their paths if no `keys` are given.
        """

    @abstractmethod
    def remove(self, keys: Sequence[str]) -> int:
        """Remove items: all of them, or none if one is unknown. Returns how many."""

    @abstractmethod
    def search(
        self,
        queries: Anything,
        k: int = 10,
        *,
        rerank: int = 0,
        approximate: int = 0,
        threshold: float = THRESHOLD,
        threads: int | None = None,
    ) -> list[Matches]:
        """Return the k nearest items of each query, nearest first, ties by the order of adding.

        `rerank` orders that many candidates by the query's real-valued embedding. `approximate` looks only at that many
        groups, so that items may be missed. Matches are marked as none if the nearest one's expected precision is below
        `threshold`, where the model was calibrated.
        """

    @abstractmethod
    def within(self, queries: Anything, radius: int, *, threads: int | None = None) -> list[Matches]:
        """Return all items at most `radius` bits from each query, nearest first."""

    @abstractmethod
    def item(self, key: str) -> Item:
        """Return what is known of an item."""

    @abstractmethod
    def code(self, key: str) -> Packed:
        """Return the packed code (1, bytes) of an item."""

    @abstractmethod
    def info(self) -> Info:
        """Say what is in it."""

    @abstractmethod
    def close(self) -> None:
        """Give everything back; nothing is lost without it."""

    def __enter__(self) -> Self:
        """Use it in a `with` statement."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close it."""
        self.close()
