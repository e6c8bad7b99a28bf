"""The service's side of its search process, which is begun anew should it die; and items with a label only."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from proxyhash.serve import searcher
from proxyhash.serve.http import busy
from proxyhash.serve.messages import Options, SearchAnswer
from proxyhash.serve.metrics import resident
from proxyhash.serve.processes import Worker
from proxyhash.serve.searcher import Query, SearchReply
from proxyhash.utils.errors import InputError

WIDER = 8  # times as many items are looked through if too few had the label


class SearchProcess:
    """Lets a process search an index; to be used from one thread."""

    def __init__(self, folder: Path, remembered: int, threshold: float) -> None:
        self._arguments = (str(folder), remembered, threshold)
        self._worker: Worker | None = None
        self._decode = msgspec.msgpack.Decoder(list[SearchReply]).decode
        self.replaced = 0

    def start(self) -> None:
        """Begin, and wait until it is ready."""
        if self._worker is None:
            self._worker = Worker("searching", searcher.work, *self._arguments)
            error = self._worker.wait().error
            if error:
                self.stop()
                raise InputError(error)

    def stop(self) -> None:
        """End it."""
        if self._worker is not None:
            self._worker.stop()
            self._worker = None

    @property
    def memory(self) -> float:
        """Return its resident bytes."""
        worker = self._worker
        return 0.0 if worker is None else resident(worker.number)

    def answer(self, queries: Sequence[Query]) -> list[bytes | Exception]:
        """Return answers as JSON, or what is wrong with a query."""
        try:
            self.start()
            assert self._worker is not None
            self._worker.ask(msgspec.msgpack.encode(queries))
            return [_outcome(reply) for reply in self._decode(self._worker.answer())]
        except (EOFError, OSError):
            self.stop()
            self.replaced += 1
            return [busy("The search was cut off; ask again in a moment.")] * len(queries)


def _outcome(reply: SearchReply) -> bytes | Exception:
    if reply.refusal:
        return InputError(reply.refusal)
    return RuntimeError(reply.failure) if reply.failure else reply.answer


async def labeled(ask: Callable[[Query], Awaitable[bytes]], query: Query, label: str, depth: int) -> SearchAnswer:
    """Return the k nearest items with a label, of the `depth` nearest: ever more are looked through until k are found."""
    wide = min(depth, WIDER * query.k)
    while True:
        answer = msgspec.json.decode(await ask(replace(query, k=wide)), type=SearchAnswer)
        matches = [match for match in answer.matches if label in match.labels]
        exhausted = len(answer.matches) < wide
        if exhausted or wide == depth or len(matches) >= query.k:
            break
        wide = min(depth, WIDER * wide)
    enough = len(matches) >= query.k and query.radius >= answer.bits
    complete = enough or (exhausted and len(matches) <= query.k)
    return SearchAnswer(answer.code, answer.bits, answer.matched, complete, matches[: query.k])


def query_of(row: bytes | NDArray[Any], options: Options, rerank: int = 0) -> Query:
    """Return a query for what a client asks with a packed code, or with an embedding (bits,)."""
    if isinstance(row, bytes):
        return Query(row, False, options.k, options.radius, rerank)
    real = row.dtype.kind == "f"
    return Query((row.astype(np.float32) if real else row).tobytes(), real, options.k, options.radius, rerank)
