"""Metrics of the service for Prometheus."""

import os
import time
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

MULTIPROCESS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_REFRESH_SECONDS = 5.0


class Metrics:
    """Counters, histograms and gauges of one application, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        names: dict[str, Any] = {"registry": self.registry, "namespace": "proxyhash"}
        self.requests = Counter("requests", "Requests by route and status.", ["route", "method", "status"], **names)
        self.duration = Histogram("request_duration_seconds", "Request durations.", ["route"], buckets=_SECONDS, **names)
        self.search_batch = Histogram("search_batch_queries", "Queries in one scan.", buckets=_SIZES, **names)
        self.image_batch = Histogram("encoding_batch_images", "Images in one forward pass.", buckets=_SIZES, **names)
        self.search_restarts = Counter("search_process_restarts", "Search processes that were replaced.", **names)
        self.decoder_restarts = Counter("decoder_restarts", "Decoder processes that were replaced.", **names)
        gauge: dict[str, Any] = {"multiprocess_mode": "livesum", **names}
        self.queue = Gauge("queued_queries", "Queries that wait for a scan.", **gauge)
        self.uploads = Gauge("uploads_in_progress", "Images that are received, decoded or encoded.", **gauge)
        self.body_bytes = Gauge("body_bytes_in_flight", "Bytes of request bodies in memory.", **gauge)
        self.search_memory = Gauge("search_process_resident_memory_bytes", "Memory of the search process.", **gauge)
        if MULTIPROCESS_VARIABLE not in os.environ:
            ProcessCollector(registry=self.registry)
        self._children: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._refreshed = 0.0
        self._restarts = (0, 0)

    def observe_request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request; `route` is the path of a route, since paths would make labels without limit."""
        key = route, method, status
        child = self._children.get(key)
        if child is None:
            child = self.requests.labels(route, method, str(status)), self.duration.labels(route)
            self._children[key] = child
        child[0].inc()
        child[1].observe(seconds)

    def observe_search(self, size: int, queued: int, search_pid: int | None) -> None:
        """Note a scan; the memory of the search process is read every few seconds."""
        self.search_batch.observe(size)
        self.queue.set(queued)
        now = time.monotonic()
        if search_pid is not None and now - self._refreshed > _REFRESH_SECONDS:
            self._refreshed = now
            self.search_memory.set(resident_bytes(search_pid))

    def observe_restarts(self, search: int, decoders: int) -> None:
        """Note how many processes were replaced so far."""
        self.search_restarts.inc(search - self._restarts[0])
        self.decoder_restarts.inc(decoders - self._restarts[1])
        self._restarts = search, decoders

    def text(self) -> bytes:
        """Return all metrics in the text format of Prometheus; those of all workers, if there are several."""
        if MULTIPROCESS_VARIABLE not in os.environ:
            return generate_latest(self.registry)
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
        return generate_latest(registry)


def resident_bytes(pid: int | str = "self") -> float:
    """Return the resident bytes of a process, 0 where the system does not tell."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0
    return 1024.0 * next((int(line.split()[1]) for line in lines if line.startswith("VmRSS")), 0)
