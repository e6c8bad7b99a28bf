"""The service behind the routes: an index with its search process, decoders, encoder and writer."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from fastapi import FastAPI

from proxyhash import __version__
from proxyhash.index.base import Index
from proxyhash.index.milvus.location import is_milvus
from proxyhash.serve.batching import Batcher
from proxyhash.serve.bodies import BodyReader
from proxyhash.serve.encoding import ImageEncoder, VectorEncoder, can_encode
from proxyhash.serve.errors import BusyError
from proxyhash.serve.logs import SERVICE_LOGGER
from proxyhash.serve.metrics import Metrics
from proxyhash.serve.readiness import Readiness
from proxyhash.serve.schemas import InfoResponse
from proxyhash.serve.settings import Settings
from proxyhash.serve.thumbnails import Thumbnails
from proxyhash.serve.workers.decoder_pool import DecoderPool
from proxyhash.serve.workers.search_process import SearchProcess
from proxyhash.serve.workers.searcher import SearchQuery
from proxyhash.serve.writer import IndexWriter
from proxyhash.utils.errors import InputError

_BYTES_PER_VALUE = 26  # of a number in JSON, with 17 digits, an exponent and what separates it from the next
_BYTES_OF_OPTIONS = 16_384  # of a search besides its vector
_logger = logging.getLogger(SERVICE_LOGGER)


class Service:
    """Everything that works on an index. It starts with the server, or with the first request if nobody starts it."""

    def __init__(self, location: str, settings: Settings) -> None:
        limits = settings.limits
        # Absolute, because errors about the index are known by its location: a short name is part of many sentences.
        location = location if is_milvus(location) else str(Path(location).absolute())
        self.location, self.settings, self.metrics = location, settings, Metrics()
        self.index = Index.open(location, device=settings.device)  # for all but searches; it reads no codes
        self.bodies = BodyReader(
            bytes_in_flight=limits.bytes_in_flight,
            body_seconds=limits.body_seconds,
            max_uploads=limits.max_uploads,
            metrics=self.metrics,
        )
        self.decoders = DecoderPool(
            decoders=limits.decoders,
            decoder_bytes=limits.decoder_bytes,
            decoder_seconds=limits.decoder_seconds,
            max_pixels=limits.max_pixels,
        )
        self.thumbnails = Thumbnails(
            self.decoders, max_file_bytes=limits.image_bytes, cache_bytes=limits.thumbnail_cache_bytes
        )
        self.encoder = ImageEncoder(
            self.index,
            self.decoders,
            max_batch_size=limits.max_image_batch_size,
            max_queue_size=limits.max_uploads,
            on_batch=self.metrics.image_batch.observe,
        )
        self.vector_encoder = VectorEncoder(
            self.index,
            max_batch_size=limits.max_batch_size,
            max_queue_size=limits.max_queue_size,
            on_batch=self.metrics.image_batch.observe,
        )
        # A vector has one number for each value, and a model may take more values than the usual body holds.
        self.search_bytes = max(limits.search_bytes, _BYTES_PER_VALUE * (self.index.width or 0) + _BYTES_OF_OPTIONS)
        self.writer = IndexWriter(location)
        self._search_process = SearchProcess(
            location,
            item_cache_size=limits.item_cache_size,
            threshold=settings.threshold,
            timeout_seconds=limits.search_seconds,
        )
        self._searches: Batcher[SearchQuery, bytes] = Batcher(
            "searching",
            self._search_process.search,
            max_batch_size=limits.max_batch_size,
            max_queue_size=limits.max_queue_size,
            on_batch=self._on_search,
        )
        self._readiness = Readiness(self._search_process)
        self._lock, self.is_started, self.has_model = threading.Lock(), False, True
        self._info: tuple[object, InfoResponse] | None = None

    def start(self) -> None:
        """Read codes and model, compile kernels and start processes; a second call does nothing."""
        with self._lock:
            if self.is_started:
                return
            self._search_process.start()
            if self._can_encode() and self.index.input == "image":
                self.decoders.start()
            self.is_started = True

    def _can_encode(self) -> bool:
        """Load the model, if there is one; that of an index on a server may be on other machines only."""
        if not can_encode(self.index):
            return False
        try:
            (self.encoder if self.index.input == "image" else self.vector_encoder).warm_up()
        except InputError as error:
            if not is_milvus(self.location):
                raise
            _logger.warning("Originals cannot be searched here: %s", error)
            self.has_model = False
        return self.has_model

    @asynccontextmanager
    async def lifespan(self, _: FastAPI) -> AsyncIterator[None]:
        """Start with the server and end with it."""
        await asyncio.to_thread(self.start)
        yield
        await asyncio.to_thread(self.close)

    def close(self) -> None:
        """Finish running batches and end all processes."""
        with self._lock:
            self.is_started = False
            for part in (self._readiness, self.encoder, self.vector_encoder, self._searches, self.decoders, self.writer):
                part.close()
            self._search_process.stop()
            self.index.close()

    async def search(self, query: SearchQuery) -> bytes:
        """Return the response to a query, as JSON."""
        if not self.is_started:
            await asyncio.to_thread(self.start)
        return await self._searches.submit(query)

    async def check_ready(self) -> None:
        """Raise BusyError unless the search process answers."""
        if not self.is_started:
            threading.Thread(target=self.start, name="starting", daemon=True).start()
            raise BusyError("The service is starting; try again in a moment.")
        await self._readiness.check()

    def info(self) -> InfoResponse:
        """Return a description of the index; it is computed again only when the index has changed."""
        state = self.index.generation, self.index.calibration is not None
        if self._info is None or self._info[0] != state:
            info, has_model = self.index.info(), self.has_model and can_encode(self.index)
            response = InfoResponse(
                items=info.items,
                bits=info.bits,
                model=info.model,
                plan=info.plan,
                calibrated=info.calibrated,
                threshold=self.settings.threshold,
                input=info.input,
                width=info.width,
                columns=dict(info.columns),
                can_search_images=has_model and info.input == "image",
                can_search_vectors=has_model and info.input == "vector",
                writable=self.settings.token is not None,
                max_image_bytes=self.settings.limits.image_bytes,
                version=__version__,
            )
            self._info = state, response
        return self._info[1]

    def metrics_text(self) -> bytes:
        """Return the metrics for Prometheus."""
        self.metrics.observe_restarts(self._search_process.restarts, self.decoders.restarts)
        return self.metrics.text()

    def _on_search(self, size: int) -> None:
        self.metrics.observe_search(size, len(self._searches), self._search_process.pid)
