"""What a service counts, in the text format that Prometheus reads."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
KIND = "text/plain; version=0.0.4; charset=utf-8"


class Histogram:
    """How often a value was at most so large."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds, self._counts, self._sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def lines(self, name: str, labels: str = "") -> Iterable[str]:
        """Yield the buckets, each of which holds those before it."""
        comma, total = "," if labels else "", 0
        for bound, count in zip([*(f"{bound:g}" for bound in self._bounds), "+Inf"], self._counts, strict=True):
            total += count
            yield f'{name}_bucket{{{labels}{comma}le="{bound}"}} {total}'
        braces = f"{{{labels}}}" if labels else ""
        yield f"{name}_sum{braces} {self._sum:.6f}"
        yield f"{name}_count{braces} {total}"


class Metrics:
    """Requests by path and status, their times, and the sizes of batches; gauges and counters are read on demand."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: dict[str, Histogram] = {}
        self.scans, self.encodings = Histogram(SIZES), Histogram(SIZES)
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = {"process_resident_memory_bytes": ("Memory.", resident)}
        self.counters: dict[str, tuple[str, Callable[[], float]]] = {}

    def count(self, path: str, status: int, seconds: float) -> None:
        """Count a request; `path` is one of the API's, so that strangers cannot make up new ones without end."""
        self._requests[path, status] += 1
        if path not in self._seconds:
            self._seconds[path] = Histogram(SECONDS)
        self._seconds[path].add(seconds)

    def text(self) -> str:
        """Return everything."""
        lines = [*_head("proxyhash_requests_total", "counter", "Requests that were answered.")]
        for (path, status), count in sorted(self._requests.items()):
            lines.append(f'proxyhash_requests_total{{path="{path}",status="{status}"}} {count}')
        lines += _head("proxyhash_request_seconds", "histogram", "How long requests took.")
        for path, histogram in sorted(self._seconds.items()):
            lines += histogram.lines("proxyhash_request_seconds", f'path="{path}"')
        for name, histogram, words in (
            ("proxyhash_queries_a_scan", self.scans, "Queries that were answered by one scan."),
            ("proxyhash_images_a_run", self.encodings, "Images that were encoded by one run of the network."),
        ):
            lines += [*_head(name, "histogram", words), *histogram.lines(name)]
        for kind, values in (("gauge", self.gauges), ("counter", self.counters)):
            for name, (words, value) in values.items():
                lines += [*_head(name, kind, words), f"{name} {value():g}"]
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, words: str) -> list[str]:
    return [f"# HELP {name} {words}", f"# TYPE {name} {kind}"]


def resident(process: int | str = "self") -> float:
    """Return the resident bytes of a process, 0 where the system does not say."""
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return 0.0
    return 1024.0 * next((int(line.split()[1]) for line in lines if line.startswith("VmRSS")), 0)
