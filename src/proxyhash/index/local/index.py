"""`LocalIndex`: a folder with a SQLite file and a copy of the model, its codes searched in memory."""

import sqlite3
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from proxyhash.codes.bits import Packed, Words
from proxyhash.columns import ColumnsLike, ColumnType, check_columns
from proxyhash.index.base import Index, check_keep_vectors, code_length
from proxyhash.index.calibration import Calibration
from proxyhash.index.clusters.ivf import InvertedLists
from proxyhash.index.exchange.content import CodeContent
from proxyhash.index.hits import Hits, merge_hits, rerank_hits, rescore_hits
from proxyhash.index.local import item_arrays, items, transactions
from proxyhash.index.local.aligned_arrays import AlignedArrays
from proxyhash.index.local.blocks import list_blocks, read_block, sample_ids
from proxyhash.index.local.columns import add_columns, column_types, find_items
from proxyhash.index.local.commits import COMMITS_FILE
from proxyhash.index.local.content import stored_content
from proxyhash.index.local.filters import FilterCache
from proxyhash.index.local.items import Item, Labels, Source
from proxyhash.index.local.schema import VECTORS
from proxyhash.index.local.snapshots import RowsOf, Snapshot, SnapshotCache, add_codes, refine_segment
from proxyhash.index.local.store import Store
from proxyhash.index.model_store import (
    MODELS_DIR,
    check_model,
    copy_model,
    import_hasher,
    load_encoder,
    load_hasher,
    model_dir,
    proxy_codes,
)
from proxyhash.index.plans import plan_memory
from proxyhash.index.queries import EncodedQueries, Features, QueriesLike, encode_items, encode_queries
from proxyhash.index.refinement.cache import RefinementCache
from proxyhash.index.refinement.encoders import check_refined, check_refinement, feature_encoder
from proxyhash.index.refinement.refiner import Kind, StoredRows, check_kind
from proxyhash.index.refinement.storage import (
    Refinement,
    create_first_refinement,
    fit_if_due,
    fit_on_sample,
    rows_name,
    stored_rows,
)
from proxyhash.index.results import AddResult, IndexInfo, Matches, Refined, build_matches
from proxyhash.index.search_params import SearchParams, check_rerank
from proxyhash.models.encoder import ModelEncoder
from proxyhash.models.storage import CALIBRATION, config_sha256, fingerprint, vector_width
from proxyhash.utils.atomic_io import make_folder
from proxyhash.utils.errors import IndexChangedError, InputError
from proxyhash.utils.jit import cold_start
from proxyhash.utils.progress import Progress, no_progress

if TYPE_CHECKING:
    from proxyhash.index.folder_sync import FolderSync
    from proxyhash.index.vector_sync import VectorSync
    from proxyhash.models.hasher import Hasher

FILE = "index.sqlite"
UPGRADE_LOCK = "upgrade.lock"  # held by the process that upgrades the index
_ATTEMPTS = 3  # of a search, before it keeps others of this process from writing; and of a write

Result = TypeVar("Result")
Model = TypeVar("Model", bound=ModelEncoder)


class LocalIndex(Index):
    """An index in a folder of this machine. Several processes may have it open; one writes at a time."""

    def __init__(
        self,
        folder: Path,
        store: Store,
        encoder: "ModelEncoder | None" = None,
        *,
        item_cache_size: int = 0,
        device: str = "cpu",
    ) -> None:
        self.folder, self.device = folder, device
        self.store = store
        self.snapshots = SnapshotCache(store)
        self.aligned_arrays = AlignedArrays(store)
        self.filters = FilterCache(store, self.snapshots, self.aligned_arrays)
        self.refinements = RefinementCache(store, self.aligned_arrays)
        self.item_cache = items.ItemCache(store, item_cache_size, find_items)
        self._inverted_lists = InvertedLists()
        self._encoder = encoder
        self._encoder_of: str | None = self.model if encoder is not None else None
        self._width: tuple[str, int | None] | None = None  # of the vectors that a model takes

    @classmethod
    def open_folder(
        cls,
        folder: Path,
        *,
        model: str | Path | ModelEncoder | None = None,
        bits: int | None = None,
        item_cache_size: int = 0,
        device: str = "cpu",
        refine: Kind | None = None,
        progress: Progress = no_progress,
    ) -> "LocalIndex":
        """Open the index in a folder, or create one there; see `Index.open`.

        Up to `item_cache_size` items are kept in memory after they were found, for a process that searches again and again.
        `progress` is called while a file of an older release is migrated.
        """
        kind = None if refine is None else check_kind(refine)
        if (folder / FILE).is_file() and not _is_unfinished(folder / FILE):
            store = Store(folder / FILE, progress=progress)
            index = cls(folder, store, item_cache_size=item_cache_size, device=device)
            index._check(model, bits)
        else:
            if model is None and bits is None:
                raise InputError(
                    f"There is no index at {folder}; to make one, say which model or how many bits it is for, "
                    "or run proxyhash quickstart, which makes a model of your images first."
                )
            if kind is not None and model is None:
                raise InputError("A refinement is made of the features of a model; give the index a model, or leave it out.")
            index = cls._create(folder, model, bits, device)
        if kind is not None:
            create_first_refinement(index.store, kind)
            check_refinement(folder, index.refinement, kind)
        return index

    @classmethod
    def _create(cls, folder: Path, model: "str | Path | ModelEncoder | None", bits: int | None, device: str) -> "LocalIndex":
        encoder = None if model is None else load_encoder(model, device)
        bits = code_length(encoder, bits)
        if folder.is_dir() and any(not _is_own_file(child.name) for child in folder.iterdir()):
            raise InputError(f"{folder} holds other things than an index; choose another folder.")
        try:
            make_folder(folder)
        except OSError as error:
            raise InputError(f"Cannot make {folder}: {error.strerror}.") from error
        name = None if encoder is None else copy_model(encoder, folder)
        sha256 = None if name is None else config_sha256(model_dir(folder, name))
        if _is_unfinished(folder / FILE):  # release 0.1 left such files when the disk was full
            (folder / FILE).unlink()
        created = cls(folder, Store.create(folder / FILE, bits, name, sha256), encoder, device=device)
        if (created.model, created.bits) != (name, bits):
            raise InputError(
                f"Another process has just created {folder} for another model or code length; choose another folder."
            )
        return created

    def _check(self, model: str | Path | ModelEncoder | None, bits: int | None) -> None:
        if bits is not None and bits != self.bits:
            raise InputError(f"{self.folder} is an index of {self.bits} bits, not {bits}.")
        if model is None:
            return
        encoder = load_encoder(model, self.device)
        folder = encoder.folder
        if folder is None or fingerprint(folder) != self.model:
            advice = "leave --model out, or run: proxyhash index upgrade"
            raise InputError(f"{self.folder} was made with another model, whose codes cannot be compared; {advice}.")
        copy_model(encoder, self.folder)
        self._encoder, self._encoder_of = encoder, self.model

    @property
    def has_refinement(self) -> bool:
        """Return whether items have a second, finer representation."""
        return self.refinement is not None

    def fit_refinement(self, sample: Features | None = None) -> None:
        """Fit the refinement on a sample of items that follow, or on those that are stored; see `Index.fit_refinement`."""
        if sample is None:
            fit_if_due(self.store, self.store.active_version)
        else:
            fit_on_sample(self.store, self.store.active_version, sample)

    @property
    def refinement(self) -> Refinement | None:
        """Return the refinement of the active codes; None without one."""
        return self.refinements.latest()

    @property
    def bits(self) -> int:
        """Return the length of the codes."""
        return self.store.active_info().bits

    @property
    def model(self) -> str | None:
        """Return the fingerprint of the model, None if the codes came from elsewhere."""
        return self.store.active_info().model

    @property
    def encoder(self) -> ModelEncoder:
        """Return the model for encoding, from the copy in the index."""
        return self._load(ModelEncoder, load_encoder)  # type: ignore[type-abstract]

    @property
    def hasher(self) -> "Hasher":
        """Return the model as a torch network, from the copy in the index."""
        return self._load(import_hasher(), load_hasher)

    def _load(self, kind: type[Model], load: Callable[[Path, str], Model]) -> Model:
        """Return the model if it is loaded as this kind, or load it."""
        while True:
            info = self.store.active_info()
            if info.model is None:
                raise InputError(f"{self.folder} holds codes from elsewhere and has no model, so search it with codes.")
            if isinstance(self._encoder, kind) and self._encoder_of == info.model:
                return self._encoder
            folder = model_dir(self.folder, info.model)
            try:
                check_model(folder, info)
                model = load(folder, self.device)
                self._encoder, self._encoder_of = model, info.model
                return model  # noqa: TRY300
            except InputError:
                if self.model == info.model:
                    raise
                # An upgrade has just ended, and removed the old model.

    @property
    def width(self) -> int | None:
        """Return the number of values of the vectors that the model takes; None if it takes images, or without a model."""
        while True:
            model = self.model
            if model is None:
                return None
            if self._width is None or self._width[0] != model:
                try:
                    self._width = model, vector_width(model_dir(self.folder, model))
                except InputError:
                    if self.model == model:
                        raise
                    continue  # an upgrade has just ended, and removed the old model
            return self._width[1]

    @property
    def calibration(self) -> Calibration | None:
        """Return the expected precision by distance, None if the model was not calibrated."""
        info = self.store.active_info()
        return self._calibration(info.model, info.bits)

    @property
    def columns(self) -> Mapping[str, ColumnType]:
        """Return the types of the columns of items by name."""
        return column_types(self.store)

    @property
    def generation(self) -> Hashable:
        """Return the number of commits, of which file, and the state of its calibration, which is a file of its own."""
        with self.store.reading():
            info = self.store.active_info()
            calibration = None if info.model is None else _file_state(model_dir(self.folder, info.model) / CALIBRATION)
            return self.store.times_opened, self.store.generation, calibration

    def _calibration(self, model: str | None, bits: int) -> Calibration | None:
        return None if model is None else Calibration.load(model_dir(self.folder, model), bits)

    def __len__(self) -> int:
        """Return the number of items."""
        return self.store.active_info().num_codes

    def add(
        self,
        items: QueriesLike,
        keys: Sequence[str] | None = None,
        labels: Labels | None = None,
        *,
        columns: ColumnsLike | None = None,
        keep_vectors: bool = False,
    ) -> AddResult:
        """Add packed codes, vectors or images in transactions of some thousands; see `Index.add`."""
        start = time.monotonic()
        arrays = {VECTORS: check_keep_vectors(self, items)} if keep_vectors else {}

        def write() -> tuple[int, int]:
            codes_id = self.store.codes_id
            refines = self.has_refinement
            load = partial(feature_encoder, self) if refines else lambda: self.encoder
            encoded = encode_items(items, keys, self.bits, load, self.width, with_features=refines)
            checked = check_columns(columns or {}, len(encoded.codes), self.columns)
            batch = transactions.ItemBatch(
                codes_id,
                encoded.codes,
                encoded.names,
                labels,
                arrays=arrays,
                columns=checked,
                features=encoded.features,
            )
            return len(batch), self._add_batch(batch)

        count, replaced = self._repeat_if_replaced(write)
        return AddResult(count - replaced, replaced, seconds=time.monotonic() - start)

    def _repeat_if_replaced(self, write: Callable[[], Result]) -> Result:
        """Write, and write again if the folder was replaced by an index of the same model meanwhile."""
        for _ in range(_ATTEMPTS):
            before = self.store.active_info()
            try:
                return write()
            except IndexChangedError:
                now = self.store.active_info()
                if (now.bits, now.model) != (before.bits, before.model):
                    raise
        raise IndexChangedError(f"{self.folder} is being replaced again and again; try again later.")

    def _add_batch(self, batch: transactions.ItemBatch) -> int:
        """Add many codes, and return how many items they replaced."""
        items.check_keys(batch.keys, len(batch))
        items.check_labels(batch.labels, len(batch))
        transactions.recluster_if_grown(self.store, batch.codes, self.proxy_codes)
        if batch.features is not None:
            fit_on_sample(self.store, batch.version, batch.features)
        replaced = transactions.add_batches(self.store, batch)
        if batch.features is not None:
            fit_if_due(self.store, batch.version)
        return replaced

    def proxy_codes(self) -> Packed | None:
        """Return the binarized proxies of the model (C, bytes), None if it has none."""
        return proxy_codes(self.folder, self.model)

    def remove(self, keys: Sequence[str]) -> int:
        """Remove items; see `Index.remove`."""
        wanted = [keys] if isinstance(keys, str) else list(keys)
        return self._repeat_if_replaced(lambda: transactions.remove_keys(self.store, wanted))

    def _search(self, queries: QueriesLike, params: SearchParams) -> list[Matches]:
        """Return the matches of each query, all of one state of the index.

        Codes of the snapshot that was read last are compared outside of a transaction, so that threads do not wait for each
        other. If the index has changed since, the latest are compared, the last time inside.
        """
        if params.nprobe is not None or params.plan is not None:
            cold_start.end()  # clusters or tables are needed
        for attempt in range(_ATTEMPTS + 1):
            encoded, snapshot = self._encode(queries, params, is_first=attempt == 0)
            check_rerank(params, has_embeddings=encoded.embeddings is not None)
            found = None if attempt == _ATTEMPTS else self._find(encoded, snapshot, params)
            with self.store.reading():
                if found is None and snapshot.codes_id == self.store.codes_id:
                    snapshot = self.snapshots.latest()
                    found = self._find(encoded, snapshot, params)
                if found is not None and self.snapshots.is_latest(snapshot):
                    return self._look_up(encoded, found, snapshot, params)
        raise IndexChangedError(f"{self.folder} was replaced or moved to another model during the search; search again.")

    def _look_up(self, queries: EncodedQueries, hits: Hits, snapshot: Snapshot, params: SearchParams) -> list[Matches]:
        """Return hits with their items, inside the transaction in which the snapshot is the latest."""
        item_ids = set(hits.item_ids.tolist())
        found = self.item_cache.get(item_ids, snapshot.generation)
        if not item_ids <= found.keys():
            self.store.raise_damaged(f"{len(item_ids - found.keys()):,} codes have no item")
        width = queries.codes.shape[1] if params.with_codes else None
        exact, calibration = params.nprobe is None, self._calibration(snapshot.model, snapshot.bits)
        refined: Refined | None = None if not hits.is_refined else "all" if exact else "found"
        return build_matches(
            queries.names, hits, found, calibration, params.threshold, width=width, exact=exact, refined=refined
        )

    def _encode(self, queries: QueriesLike, params: SearchParams, *, is_first: bool) -> tuple[EncodedQueries, Snapshot]:
        """Return queries and the codes to search, both of one version, even if an upgrade ends at this moment."""
        while True:
            snapshot = self.snapshots.recent() if is_first else self.snapshots.latest()
            is_first = False
            try:
                refines = params.refine is not False and self.refinements.get(snapshot) is not None
                load = partial(feature_encoder, self, required=params.refine is True) if refines else lambda: self.encoder
                encoded = encode_queries(queries, snapshot.bits, load, self.width, with_features=refines)
            except InputError:
                if self.store.codes_id == snapshot.codes_id:
                    raise
                continue  # an upgrade ended, or the folder was replaced between two steps
            if encoded.embeddings is None or self.store.codes_id == snapshot.codes_id:
                return encoded, snapshot

    def _find(self, queries: EncodedQueries, latest: Snapshot, params: SearchParams) -> Hits | None:
        """Return the hits of each query, refined, re-ranked and cut at the radius as the parameters say.

        None if the search is filtered and the snapshot is no longer the latest, so that labels and columns may be gone.
        """
        snapshot: Snapshot | None = latest
        if params.where is not None:
            only_masks, count = params.plan is not None, len(queries.words)
            snapshot = self.filters.get(latest, params.where, params.threads, queries=count, only_masks=only_masks)
        if snapshot is None:
            return None
        rows = None if params.refine is False else self.refinements.rows_of(snapshot, queries)
        check_refined(
            params, self.folder, has_refinement=self.refinements.get(latest) is not None, has_rows=rows is not None
        )
        options: dict[str, Any] = {"with_codes": params.with_codes or params.rerank is not None, "rows": rows}
        if params.k is None:
            radius = snapshot.bits if params.radius is None else min(params.radius, snapshot.bits)
            return snapshot.range_search(queries.words, radius, params.threads, plan=params.plan, **options)
        if params.nprobe is None:
            hits, _ = snapshot.nearest(queries.words, params.candidates, params.threads, plan=params.plan, **options)
        else:
            hits = self._probe(snapshot, queries.words, params.candidates, params.nprobe, **options)
        if params.rerank is not None and queries.embeddings is not None:
            hits = rerank_hits(hits, queries.embeddings, params.k)
        if params.oversample is not None:
            hits = rescore_hits(hits, params.k)
        return hits if params.radius is None else hits.take((hits.distances <= params.radius).nonzero()[0])

    def _probe(
        self, snapshot: Snapshot, queries: Words, k: int, nprobe: int, *, with_codes: bool, rows: RowsOf | None
    ) -> Hits:
        """Return near codes from the nearest clusters, and from the codes that were added since these were built."""
        main = refine_segment(self._inverted_lists.nearest(snapshot.main, queries, k, nprobe), snapshot.main, rows)
        parts = [add_codes(main, snapshot.main) if with_codes else main]
        if len(snapshot.delta):
            delta, _ = snapshot.delta.nearest(queries, k, rows=None if rows is None else rows(snapshot.delta))
            parts.append(add_codes(delta, snapshot.delta) if with_codes else delta)
        return merge_hits(parts, len(queries), k)

    def stored_queries(self, keys: Sequence[str]) -> EncodedQueries:
        """Return items as queries; see `Index.stored_queries`."""
        with self.store.reading():
            queries, refinement = super().stored_queries(keys), self.refinement
            item_ids = [self.item(key).item_id for key in keys] if refinement is not None else []
            rows = None if refinement is None else stored_rows(self.store, self.store.active_version, item_ids)
            if refinement is None or rows is None:
                return queries
            return replace(queries, rows=StoredRows(rows, refinement.refiner_id))

    def item(self, key: str) -> Item:
        """Return an item by its key."""
        with self.store.reading():
            item_id = items.require_ids(self.store, [key])[key]
            return find_items(self.store, [item_id])[item_id]

    def code(self, key: str) -> Packed:
        """Return the packed code (1, bytes) of an item."""
        with self.store.reading():
            item_id, version = self.item(key).item_id, self.store.active_version
            infos = list_blocks(self.store, version)
            number = next((number for number, info in infos.items() if info.min_id <= item_id <= info.max_id), None)
            block = None if number is None else read_block(self.store, version, number)
            if block is None or item_id not in block.item_ids:
                self.store.raise_damaged(f"item {item_id} has no code")
        code: Packed = block.codes[block.item_ids == item_id]
        return code

    def _list_items(self, after: str | None, limit: int) -> list[Item]:
        """Return items in the order of the code points of their keys."""
        with self.store.reading():
            found = items.items_after(self.store, after or "", limit)  # no key is empty
            return list(add_columns(self.store, {item.item_id: item for item in found}).values())

    def _sample_items(self, count: int) -> list[Item]:
        """Return random items, each subset with the same probability."""
        with self.store.reading():
            item_ids = sample_ids(self.store, self.store.active_version, count)
            found = find_items(self.store, item_ids)
            if len(found) < len(item_ids):
                self.store.raise_damaged(f"{len(item_ids) - len(found):,} codes have no item")
            return [found[item_id] for item_id in item_ids]

    def folder_sync(self, root: Path, prefix: str) -> "FolderSync":
        """Return the state of the items that came from a folder."""
        from proxyhash.index.local.folder_sync import LocalFolderSync

        return LocalFolderSync(self, Source(root, prefix))

    def vector_sync(self, source: Source, *, keep_vectors: bool) -> "VectorSync":
        """Return the state of the items that came from a file of vectors."""
        from proxyhash.index.local.folder_sync import LocalFolderSync

        return LocalFolderSync(self, source, keep_vectors)

    @contextmanager
    def _content(self) -> Iterator[CodeContent]:
        """Yield all items and codes of one state, by a connection of its own, so that other threads go on."""
        with closing(Store(self.folder / FILE)) as store, store.reading():
            yield stored_content(store)

    def info(self) -> IndexInfo:
        """Return a description of the index."""
        with self.store.reading():
            _, centroids = transactions.active_centroids(self.store)
            refinement = self.refinement
            sources = tuple(sorted({path for path, _, _ in items.list_sources(self.store).values()}))
            planner = None if self.snapshots.last is None else self.snapshots.last.planner
            return IndexInfo(
                str(self.folder),
                len(self),
                self.bits,
                self.model,
                "scan" if centroids is None else f"{len(centroids):,} clusters",
                self.calibration is not None,
                sources,
                self.bytes_on_disk(),
                self.input,
                self.width,
                item_arrays.count_rows(self.store, VECTORS),
                plan_memory(len(self), self.bits, has_clusters=centroids is not None),
                0 if planner is None else planner.tables.memory,
                None if planner is None else planner.mean_compared,
                {} if planner is None else planner.searched_by,
                self.columns,
                None if refinement is None else refinement.kind,
                item_arrays.count_rows(self.store, rows_name(self.store.active_version)),
            )

    def bytes_on_disk(self) -> int:
        """Return the size of the folder."""
        return sum(file.stat().st_size for file in self.folder.rglob("*") if file.is_file())

    def close(self) -> None:
        """Close the file."""
        self.store.close()


def _is_own_file(name: str) -> bool:
    """Return whether a file in a folder may belong to an index: its parts, and temporary files."""
    return name.startswith((FILE, ".")) or name in (COMMITS_FILE, MODELS_DIR, UPGRADE_LOCK)


def _is_unfinished(path: Path) -> bool:
    """Return whether a file is an index whose creation was stopped: it is empty, or a database without tables."""
    if not path.is_file():
        return False
    if not path.stat().st_size:
        return True
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            (tables,), (mark,) = (
                connection.execute(statement).fetchone()
                for statement in ("SELECT count(*) FROM sqlite_master", "PRAGMA application_id")
            )
    except (sqlite3.Error, UnicodeDecodeError):  # a damaged name in the message of an error cannot be decoded
        return False
    return bool(tables == mark == 0)


def _file_state(path: Path) -> tuple[int, int, int] | None:
    """Return what changes when a file is written again; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns
