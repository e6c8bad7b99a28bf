"""The service: an index and everything that works on it, started and ended together."""

import gc
from pathlib import Path

from proxyhash.index.local.index import LocalIndex
from proxyhash.serve.batching import Batcher
from proxyhash.serve.decoding import Decoders
from proxyhash.serve.encoding import can_encode
from proxyhash.serve.handlers import Browsing, Editing, Searching
from proxyhash.serve.http import busy
from proxyhash.serve.messages import StateAnswer
from proxyhash.serve.metrics import Metrics
from proxyhash.serve.searcher import Query
from proxyhash.serve.searching import SearchProcess
from proxyhash.serve.settings import Settings
from proxyhash.serve.uploads import Uploads


class Service:
    """What clients can ask, by subject."""

    def __init__(self, folder: Path, settings: Settings, metrics: Metrics) -> None:
        limits = settings.limits
        self.index, self.ready = LocalIndex.open_folder(folder), False  # for all but searches: it reads no codes
        self._search = SearchProcess(folder, limits.remembered, settings.threshold)
        self._decoders = Decoders(limits)
        self._searches: Batcher[Query, bytes] = Batcher(
            "searching",
            self._search.answer,
            together=limits.together,
            waiting=limits.waiting,
            answered=metrics.scans.add,
        )
        self.uploads = Uploads(self.index, self._decoders, limits, metrics)
        self.searching = Searching(self.index, self._searches, self.uploads, limits)
        self.browsing = Browsing(self.index, self._decoders, limits, writable=settings.token is not None)
        self.editing = Editing(folder, self.uploads)
        metrics.gauges |= {
            "proxyhash_waiting_queries": ("Queries that wait for a scan.", self._searches.__len__),
            "proxyhash_search_memory_bytes": ("Memory of the process that searches.", lambda: self._search.memory),
            "proxyhash_uploads": ("Uploads that are under way.", self.uploads.__len__),
        }
        metrics.counters |= {
            "proxyhash_searches_replaced_total": ("Search processes that died.", lambda: self._search.replaced),
            "proxyhash_decoders_replaced_total": (
                "Decoder processes that died or were ended.",
                lambda: self._decoders.replaced,
            ),
        }

    def warm_up(self) -> None:
        """Let codes and model be read, kernels be compiled and decoders start before anyone waits for them."""
        self._search.start()
        if can_encode(self.index):
            self._decoders.start()
            self.uploads.warm_up()
        gc.collect()
        gc.freeze()  # what is here now stays, and need not be looked through again and again
        self.ready = True

    def close(self) -> None:
        """Finish what is under way, and give everything back."""
        self.ready = False
        for part in (self.uploads, self._searches, self._decoders, self.editing):
            part.close()
        self._search.stop()
        self.index.close()

    async def health(self, _: None, __: None) -> StateAnswer:
        """Say that the process is alive."""
        return StateAnswer("alive")

    async def readiness(self, _: None, __: None) -> StateAnswer:
        """Say whether searches are answered already."""
        if not self.ready:
            raise busy("The service is still reading its index; ask again in a moment.")
        return StateAnswer("ready")
