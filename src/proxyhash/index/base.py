"""`Index`: the interface of every engine, local or on a server."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import MAX_BITS, Packed
from proxyhash.columns import ColumnsLike, ColumnType
from proxyhash.index.calibration import THRESHOLD, Calibration
from proxyhash.index.local.items import Item, Labels, Source
from proxyhash.index.milvus.location import is_milvus
from proxyhash.index.plans import Plan
from proxyhash.index.queries import EncodedQueries, Features, QueriesLike
from proxyhash.index.results import AddResult, IndexInfo, Matches
from proxyhash.index.search_params import SearchParams, check_search_params
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress
from proxyhash.utils.validation import check_int

if TYPE_CHECKING:
    from proxyhash.index.exchange.content import CodeContent
    from proxyhash.index.folder_sync import FolderSync
    from proxyhash.index.refinement.refiner import Kind
    from proxyhash.index.vector_sync import VectorSync
    from proxyhash.models.encoder import ModelEncoder
    from proxyhash.models.hasher import Hasher


class Index(ABC):
    """Items with a key each, searched by the Hamming distance of their codes.

    An index is opened by `Index.open`. It is a context manager that closes itself.

    Examples
    --------
    >>> import tempfile, numpy as np
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Index.open(f"{folder.name}/index", bits=8) as index:
    ...     index.add(np.array([[0b0000_0000], [0b0000_0111]], np.uint8), keys=["none", "three"])
    ...     index.search(np.array([[0b0000_0011]], np.uint8), k=2)[0].matches
    AddResult(2)
    (Match('three', 1 bits), Match('none', 2 bits))
    >>> folder.cleanup()
    """

    @staticmethod
    def open(
        location: str | Path,
        *,
        model: "str | Path | ModelEncoder | None" = None,
        bits: int | None = None,
        device: str = "cpu",
        refine: "Kind | None" = None,
    ) -> "Index":
        """Open the index at a location, or create one there.

        Parameters
        ----------
        location
            A folder, or an address on a server such as milvus://host:19530/photos.
        model
            Model that encodes images or vectors, needed to create an index for these. An existing index keeps its model.
        bits
            Length of the codes, needed to create an index without a model.
        device
            Where the model encodes images: cpu, cuda, cuda:N, mps, or auto for a GPU if there is one.
        refine
            Store a second, finer representation of each item of a new index, by which items at the same distance are
            ordered: "code" (128 bits), "code256", "int8" (64 values) or "int8x256". It needs a model. None: none, or what
            an existing index has.

        Returns
        -------
        Index
            The open index.

        Raises
        ------
        InputError
            If there is no index and neither `model` nor `bits` is given, or if it has another model, code length or
            refinement.

        Examples
        --------
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder, Index.open(f"{folder}/index", bits=64) as index:
        ...     index.bits, len(index)
        (64, 0)
        """
        if isinstance(location, str) and is_milvus(location):
            from proxyhash.index.milvus.index import MilvusIndex

            if refine is not None:
                raise InputError(f"{location} is on a server, which stores no refinement; leave it out.")
            return MilvusIndex.open_address(location, model=model, bits=bits, device=device)
        from proxyhash.index.local.index import LocalIndex

        return LocalIndex.open_folder(Path(location), model=model, bits=bits, device=device, refine=refine)

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
    def encoder(self) -> "ModelEncoder":
        """Return the model for encoding; torch is not imported if it has an ONNX file and onnxruntime is installed."""

    @property
    @abstractmethod
    def hasher(self) -> "Hasher":
        """Return the model as a torch network, which also gives features and classifies."""

    @property
    @abstractmethod
    def width(self) -> int | None:
        """Return the number of values of the vectors that the model takes; None if it takes images, or without a model.

        This does not import torch.
        """

    @property
    def input(self) -> Literal["image", "vector", "code"]:
        """Return what the model encodes: images or vectors; "code" without a model."""
        if self.model is None:
            return "code"
        return "image" if self.width is None else "vector"

    @property
    def has_refinement(self) -> bool:
        """Return whether items have a second, finer representation, which orders items at the same distance."""
        return False

    def fit_refinement(self, sample: Features | None = None) -> None:  # noqa: ARG002
        """Fit the refinement, if the index has one that waits for items: on a sample of those that follow, or on all."""
        return

    @property
    @abstractmethod
    def calibration(self) -> Calibration | None:
        """Return the expected precision by distance, None if the model was not calibrated."""

    @property
    @abstractmethod
    def columns(self) -> Mapping[str, ColumnType]:
        """Return the types of the columns of items by name: "number", "text" or "date"."""

    @property
    @abstractmethod
    def generation(self) -> Hashable:
        """Return a value that is another one whenever the index has changed, by whatever process."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of items."""

    @abstractmethod
    def add(
        self,
        items: QueriesLike,
        keys: Sequence[str] | None = None,
        labels: Labels | None = None,
        *,
        columns: ColumnsLike | None = None,
        keep_vectors: bool = False,
    ) -> AddResult:
        """Add items; one whose key exists is replaced. When it returns, everything is on disk.

        Parameters
        ----------
        items
            Packed codes (N, bytes), or images. If the model of the index takes vectors: packed codes, or vectors (N, width)
            as floats. Floats are then always vectors, which are encoded, and never embeddings.
        keys
            A key for each item; image files are named by their paths without it.
        labels
            One label, several, or None for each item.
        columns
            Further values by the name of their column, one for each item: numbers, texts, dates, or None where a value is
            missing. They are found by `where`, and returned with matches. The first values of a column decide its type.
        keep_vectors
            Store the vectors too, as float16 or float32, so that `index upgrade` can encode them with another model.

        Returns
        -------
        AddResult
            The number of items that were added and replaced.

        Raises
        ------
        InputError
            For vectors of another width, with NaN or infinities, or all zeros if they are scaled to length 1; for codes
            that do not fit; for keys that are missing or occur twice; and for values of another type than their column's.
            Nothing is written then.

        Examples
        --------
        >>> import tempfile, numpy as np
        >>> codes = np.array([[0], [1]], np.uint8)
        >>> with tempfile.TemporaryDirectory() as folder, Index.open(f"{folder}/index", bits=8) as index:
        ...     index.add(codes, keys=["a", "b"], columns={"year": [2020, None], "title": ["Cats", "Dogs"]})
        ...     index.columns, dict(index.item("a").columns)
        AddResult(2)
        ({'title': 'text', 'year': 'number'}, {'title': 'Cats', 'year': 2020})
        """

    @abstractmethod
    def remove(self, keys: Sequence[str]) -> int:
        """Remove items by key, all of them, or none if one is unknown; return how many were removed."""

    def search(
        self,
        queries: QueriesLike,
        k: int = 10,
        *,
        radius: int | None = None,
        labels: Sequence[str] | str | None = None,
        where: str | None = None,
        nprobe: int | None = None,
        rerank: int | None = None,
        refine: bool | None = None,
        oversample: int | None = None,
        threshold: float = THRESHOLD,
        with_codes: bool = False,
        threads: int | None = None,
        plan: Plan | None = None,
    ) -> list[Matches]:
        """Return the k nearest items of each query, nearest first.

        Items at the same distance are ordered by their refinement, if the index has one and the queries are images or
        vectors; else, and among equal ones, the item that was added first comes first.

        Parameters
        ----------
        queries
            Packed codes (Q, bytes), embeddings (Q, bits) as floats, pixels (Q, side, side, 3), or image files. If the
            model of the index takes vectors: packed codes, or vectors (Q, width) as floats. Floats are then always vectors,
            which are encoded, and never embeddings.
        k
            Number of items to find for each query.
        radius
            Leave out items that are more than so many bits away.
        labels
            Find only items that have at least one of these labels, exactly. None: all items.
        where
            Find only items for which this is true, exactly, such as "label == 'cat' and year > 2020"; see
            `docs/the-index.md`. None: all items.
        nprobe
            Search only the nprobe nearest clusters, by faiss: faster, but items may be missed. None: exact search.
        rerank
            Sort the so many nearest items by the query's real-valued embedding, then keep k. None: by Hamming distance.
        refine
            Whether items at the same distance are ordered by their refinement. None: if the index has one, and the queries
            are images or vectors. True: an error if that is not so.
        oversample
            Find so many times k items, sort them by their refinement alone, and keep k. It needs a refinement; for codes
            of vectors it gives more of the true neighbors.
        threshold
            Expected precision of the nearest item below which a query has no match, where the model was calibrated.
        with_codes
            Return the codes of the items too.
        threads
            Number of threads; None: all cores.
        plan
            "scan", "clusters" or "mih" (multi-index hashing), which have the same results. None: the fastest, as far as it
            is known. The first search by "mih" builds tables, which takes seconds and memory; see `docs/the-index.md`.

        Returns
        -------
        list of Matches
            The matches of each query.

        Raises
        ------
        InputError
            If the queries do not fit the index, or the engine cannot search so.

        Examples
        --------
        >>> import tempfile, numpy as np
        >>> codes, query = np.array([[0], [1], [3]], np.uint8), np.array([[0]], np.uint8)
        >>> with tempfile.TemporaryDirectory() as folder, Index.open(f"{folder}/index", bits=8) as index:
        ...     index.add(codes, keys=["a", "b", "c"], labels=["cat", "dog", "dog"])
        ...     index.search(query, k=1, labels=["dog"])[0].matches
        AddResult(3)
        (Match('b', 1 bits),)
        """
        params = check_search_params(
            k=check_int("k", k, 1),
            radius=radius,
            labels=labels,
            where=where,
            nprobe=nprobe,
            rerank=rerank,
            refine=refine,
            oversample=oversample,
            threshold=threshold,
            with_codes=with_codes,
            threads=threads,
            plan=plan,
        )
        return self._search(queries, params)

    def range_search(
        self,
        queries: QueriesLike,
        radius: int,
        *,
        labels: Sequence[str] | str | None = None,
        where: str | None = None,
        refine: bool | None = None,
        threshold: float = THRESHOLD,
        with_codes: bool = False,
        threads: int | None = None,
        plan: Plan | None = None,
    ) -> list[Matches]:
        """Return all items at most `radius` bits from each query, nearest first; the parameters are those of `search`."""
        params = check_search_params(
            radius=check_int("radius", radius, 0),
            labels=labels,
            where=where,
            refine=refine,
            threshold=threshold,
            with_codes=with_codes,
            threads=threads,
            plan=plan,
        )
        return self._search(queries, params)

    @abstractmethod
    def _search(self, queries: QueriesLike, params: SearchParams) -> list[Matches]:
        """Return the matches of each query."""

    @abstractmethod
    def item(self, key: str) -> Item:
        """Return an item by its key; an unknown one is a KeyNotFoundError."""

    @abstractmethod
    def code(self, key: str) -> Packed:
        """Return the packed code (1, bytes) of an item; an unknown key is a KeyNotFoundError."""

    def stored_queries(self, keys: Sequence[str]) -> EncodedQueries:
        """Return items as queries: their codes and, if the index has a refinement, their rows of it.

        An unknown key is a KeyNotFoundError.
        """
        return EncodedQueries(list(keys), np.concatenate([self.code(key) for key in keys]))

    def list_items(self, after: str | None = None, limit: int = 100) -> list[Item]:
        """Return items in the order of their keys.

        Parameters
        ----------
        after
            Key after which the list begins, such as the last one of the list before; it need not exist. None: the first key.
        limit
            Number of items at most.

        Returns
        -------
        list of Item
            The items; fewer than `limit` at the end of the index.

        Examples
        --------
        >>> import tempfile, numpy as np
        >>> with tempfile.TemporaryDirectory() as folder, Index.open(f"{folder}/index", bits=8) as index:
        ...     index.add(np.zeros((3, 1), np.uint8), keys=["a", "b", "c"])
        ...     [item.key for item in index.list_items(after="a")]
        AddResult(3)
        ['b', 'c']
        """
        return self._list_items(after, check_int("limit", limit, 1))

    @abstractmethod
    def _list_items(self, after: str | None, limit: int) -> list[Item]:
        """Return items in the order of their keys."""

    def sample_items(self, count: int) -> list[Item]:
        """Return `count` random items in random order, all of them if there are fewer."""
        return self._sample_items(check_int("count", count, 1))

    @abstractmethod
    def _sample_items(self, count: int) -> list[Item]:
        """Return random items."""

    @abstractmethod
    def folder_sync(self, root: Path, prefix: str) -> "FolderSync":
        """Return the state of the items that came from a folder."""

    @abstractmethod
    def vector_sync(self, source: Source, *, keep_vectors: bool) -> "VectorSync":
        """Return the state of the items that came from a file of vectors."""

    @abstractmethod
    def info(self) -> IndexInfo:
        """Return a description of the index."""

    def export_file(self, path: str | Path, format: str | None = None, *, progress: Progress = no_progress) -> int:
        """Write all items and their codes for another program, and return how many there are.

        The file is complete or absent. An index in a folder is exported in one state, whatever others write meanwhile.

        Parameters
        ----------
        path
            The file to write. Beside one of faiss or usearch, which has codes and ids only, `path`.items.jsonl is written
            with the keys, labels and paths in the order of the ids.
        format
            "faiss", "usearch", "parquet" or "npz". None: by the ending of the file.
        progress
            Called with the share that is written.

        Raises
        ------
        InputError
            If the format is not known, its library is not installed, or the file cannot be written.

        Examples
        --------
        >>> import tempfile, numpy as np
        >>> with tempfile.TemporaryDirectory() as folder, Index.open(f"{folder}/index", bits=8) as index:
        ...     index.add(np.array([[3], [5]], np.uint8), keys=["a", "b"])
        ...     index.export_file(f"{folder}/codes.npz")
        ...     np.load(f"{folder}/codes.npz")["codes"].tolist()
        AddResult(2)
        2
        [[3], [5]]
        """
        from proxyhash.index.exchange.exporting import write_file

        with self._content() as content:
            return write_file(content, Path(path), format, progress)

    def import_file(self, path: str | Path, format: str | None = None, *, progress: Progress = no_progress) -> AddResult:
        """Add the codes of a file of another program, after all of it was checked.

        Parameters
        ----------
        path
            A file that `export_file` or another program wrote; see `docs/exchange.md`.
        format
            "faiss", "usearch", "parquet" or "npz". None: by the ending of the file.
        progress
            Called with the share that is checked, and added.

        Returns
        -------
        AddResult
            The number of items that were added and replaced.

        Raises
        ------
        InputError
            If the file is damaged, or its codes have another length or model than the index; nothing is added.

        Examples
        --------
        >>> import tempfile, numpy as np
        >>> with tempfile.TemporaryDirectory() as folder, Index.open(f"{folder}/index", bits=8) as index:
        ...     np.savez(f"{folder}/codes.npz", codes=np.array([[3], [5]], np.uint8), bits=8, keys=["a", "b"])
        ...     index.import_file(f"{folder}/codes.npz")
        AddResult(2)
        """
        from proxyhash.index.exchange.importing import add_content, open_codes

        with open_codes(Path(path), format, bits=self.bits, progress=progress) as content:
            return add_content(self, content, Path(path), progress)

    @abstractmethod
    def _content(self) -> "AbstractContextManager[CodeContent]":
        """Return all items and codes, read in batches."""

    @abstractmethod
    def close(self) -> None:
        """Close files and connections; nothing is lost without it."""

    def __enter__(self) -> Self:
        """Return the index itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close the index."""
        self.close()


def code_length(encoder: "ModelEncoder | None", bits: int | None) -> int:
    """Return the code length of a new index, from its model or as given."""
    bits = encoder.bits if encoder is not None else check_int("bits", bits, 1)
    if bits > MAX_BITS:
        raise InputError(f"Codes have at most {MAX_BITS} bits, not {bits}.")
    return bits


def check_keep_vectors(index: Index, items: QueriesLike) -> NDArray[Any]:
    """Return items as vectors that can be kept; anything else is an InputError."""
    if index.width is None:
        raise InputError("Only vectors can be kept, and the model of this index does not take vectors.")
    if not isinstance(items, np.ndarray) or items.dtype.kind != "f":
        raise InputError("Only vectors can be kept; give an array of floats (N, width).")
    return items
