"""From the bytes of an upload to an embedding: received, decoded in a process of its own, encoded together with others."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from proxyhash.index.local.index import LocalIndex
from proxyhash.serve.batching import Batcher
from proxyhash.serve.decoding import Decoders
from proxyhash.serve.encoding import ImageEncoder, Picture
from proxyhash.serve.http import RefusalError, busy
from proxyhash.serve.metrics import Metrics
from proxyhash.serve.settings import Limits


class Uploads:
    """Images that clients send."""

    def __init__(self, index: LocalIndex, decoders: Decoders, limits: Limits, metrics: Metrics) -> None:
        self._encoder, self._decoders, self._most, self._under_way = ImageEncoder(index), decoders, limits.uploads, 0
        self._encodings: Batcher[Picture, NDArray[np.float32]] = Batcher(
            "encoding",
            self._encoder.embed,
            together=limits.encoded_together,
            waiting=limits.uploads,
            answered=metrics.encodings.add,
        )

    def __len__(self) -> int:
        """Return how many are under way."""
        return self._under_way

    def warm_up(self) -> None:
        """Load the model and run it once."""
        job = self._encoder.job()
        self._encoder.embed([Picture(job, np.zeros((job.side, job.side, 3), np.uint8))])

    def close(self) -> None:
        """Finish what is being encoded."""
        self._encodings.close()

    @contextmanager
    def room(self) -> Iterator[None]:
        """Count an upload while it is under way, and refuse it if there are too many: each holds its bytes in memory."""
        if self._under_way >= self._most:
            raise busy()
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    async def embedding(self, body: bytes) -> NDArray[np.float32]:
        """Return nu (bits,) of an image."""
        if not body:
            raise RefusalError(422, "The image is empty; send its bytes as the body of the request.")
        job = await asyncio.to_thread(self._encoder.job)
        return await self._encodings.ask(Picture(job, await self._decoders.do(job, body)))
