"""The service under load; clients, service and references share the cores of this machine.

python benchmarks/serve.py                       everything: 60 seconds of load, and a few minutes of preparation
python benchmarks/serve.py --only codes,images   some of: codes, images
python benchmarks/serve.py --short               10 seconds of load
python benchmarks/serve.py --model MODEL         another model than EfficientNet-Lite0 with a head of random weights
python benchmarks/serve.py --previous FOLDER     the source tree of release 0.2 before the service was an ASGI application,
                                                 to report the ratio to it: git worktree add FOLDER e0099c3

The yardstick for a search by code is a bare route of FastAPI that validates the same body, under the same server, plus the
time that the library takes per query in batches. Service, bare route and library run in alternation, each alone.
"""

import asyncio
import io
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import numpy as np
import uvloop
from PIL import Image

from proxyhash.index.local.index import LocalIndex
from reporting import Row, options_of, run, timed

ITEMS, BITS, CLIENTS, K = 1_000_000, 64, 200, 10
IMAGES, IMAGE_CLIENTS = 256, 32
SECONDS, SHORT, TURNS = 60.0, 10.0, 5
SEARCH_PATH, PREVIOUS_PATH = "/api/v1/search", "/api/search/code"


def bare_app() -> Any:
    """Return an application whose only route validates a search and returns a response of the usual size."""
    from fastapi import FastAPI, Response

    from proxyhash.serve.schemas import SearchRequest

    match = {"key": "photos/000000001.jpg", "distance": 3, "labels": [], "code": "00" * (BITS // 8), "has_image": False}
    match |= {"expected_precision": None, "score": None}
    fields = {"code": "00" * (BITS // 8), "bits": BITS, "matched": None, "complete": True, "matches": [match] * K}
    content = json.dumps(fields, separators=(",", ":")).encode()
    app = FastAPI()

    @app.post(SEARCH_PATH)
    async def search(_: SearchRequest) -> Response:
        return Response(content, media_type="application/json")

    @app.get("/ready")
    async def ready() -> dict[str, str]:
        return {}

    return app


def run_bare(port: int) -> None:
    """Run the bare application as `proxyhash serve` runs the service."""
    import uvicorn

    from proxyhash.serve.server import ServerConfig, uvicorn_options
    from proxyhash.serve.settings import Settings

    config = ServerConfig(port=port, log_requests=False)
    uvicorn.run(bare_app(), port=port, **uvicorn_options(Settings(), config))


@contextmanager
def running(command: Sequence[str], url: str | None = None, tree: Path | None = None) -> Iterator[tuple[str, int]]:
    """Run a service in a process; yield its address, which it prints unless it is given, and its process id."""
    environment = os.environ.copy() | ({} if tree is None else {"PYTHONPATH": str(tree / "src")})
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert process.stdout is not None
    try:
        if url is None:
            url = next(word for word in process.stdout.readline().split() if word.startswith("http"))
        while not _is_ready(url):
            time.sleep(0.02)
        yield url, process.pid
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def service(index: Path, tree: Path | None = None) -> AbstractContextManager[tuple[str, int]]:
    """Serve an index, with the source tree of an earlier commit if there is one."""
    command = [sys.executable, "-c", "from proxyhash.cli.app import main; main()"]
    return running([*command, "serve", str(index), "--port", "0", "--quiet"], tree=tree)


def bare_service() -> AbstractContextManager[tuple[str, int]]:
    """Run the bare route."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    return running([sys.executable, __file__, "--bare", str(port)], f"http://127.0.0.1:{port}")


def _is_ready(url: str) -> bool:
    try:
        with urlopen(f"{url}/ready") as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


async def client(
    url: str, requests: Sequence[bytes], first: int, until: float, times: list[float], errors: list[str]
) -> None:
    """Send requests over one connection, one after another, and record their times."""
    place = urlsplit(url)
    reader, writer = await asyncio.open_connection(place.hostname, place.port)
    number = first
    while time.perf_counter() < until:
        begun = time.perf_counter()
        writer.write(requests[number % len(requests)])
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        body = await reader.readexactly(length)
        times.append(time.perf_counter() - begun)
        if not head.startswith(b"HTTP/1.1 200"):
            errors.append(body.decode())
        number += 1
    writer.close()


def load(url: str, requests: Sequence[bytes], clients: int, seconds: float) -> tuple[list[float], list[str], float]:
    """Return the times of all requests of concurrent clients, the errors, and the total seconds."""
    times: list[float] = []
    errors: list[str] = []

    async def everyone() -> None:
        until = time.perf_counter() + seconds
        work = [client(url, requests, 7 * number, until, times, errors) for number in range(clients)]
        await asyncio.gather(*work)

    # Clients and service share two cores, so the clients do as little work as possible.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        _, spent = timed(runner.run, everyone())
    return times, errors, spent


def request(path: str, kind: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def resident(process: int) -> float:
    """Return the resident bytes of a process and its children."""
    begun = [
        int(child) for task in Path(f"/proc/{process}/task").iterdir() for child in (task / "children").read_text().split()
    ]
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    own = 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    return own + sum(map(resident, begun))


def code_rows(seconds: float, previous: Path | None) -> Iterator[Row]:
    """Measure single queries of many clients."""
    random = np.random.default_rng(0)
    uniform = random.integers(0, 256, (ITEMS, BITS // 8), dtype=np.uint8)
    for name, stored in {"uniform codes": uniform, "codes around 1,000 centroids": _clustered(random, ITEMS)}.items():
        queries = stored[random.integers(0, ITEMS, 2_000)] ^ np.packbits(random.random((2_000, BITS)) < 0.05, axis=1)
        with TemporaryDirectory() as place, LocalIndex.open_folder(Path(place) / "i", bits=BITS) as index:
            index.add(stored, [f"photos/{number:09d}.jpg" for number in range(ITEMS)])
            yield from _served_rows(name, index, queries, seconds, previous)


def _clustered(random: np.random.Generator, count: int) -> np.ndarray:
    centroids = random.integers(0, 256, (1_000, BITS // 8), dtype=np.uint8)
    return centroids[random.integers(0, 1_000, count)] ^ np.packbits(random.random((count, BITS)) < 0.05, axis=1)


def _direct_rate(index: LocalIndex, queries: np.ndarray, seconds: float) -> float:
    """Return the queries per second of the library, in batches as large as the number of clients."""
    index.search(queries[:CLIENTS], K)
    done, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        first = done % (len(queries) - CLIENTS)
        index.search(queries[first : first + CLIENTS], K)
        done += CLIENTS
    return done / (time.perf_counter() - begun)


def _served_rows(name: str, index: LocalIndex, queries: np.ndarray, seconds: float, previous: Path | None) -> Iterator[Row]:
    requests = _requests(queries, SEARCH_PATH)
    with service(index.folder):
        pass  # the first start on a machine compiles kernels
    begun = time.perf_counter()
    with service(index.folder) as (url, process):
        ready = time.perf_counter() - begun
        load(url, requests, CLIENTS, min(5.0, seconds))  # fill the caches
        before = resident(process)
        times, errors, spent = load(url, requests, CLIENTS, seconds)
        growth = 100 * (resident(process) / before - 1)
    p50, p99 = np.percentile(times, [50, 99]).tolist()
    note = f"p50 {1000 * p50:.1f} ms, p99 {1000 * p99:.1f} ms, {len(times):,} requests"
    what = f"{ITEMS:,} {name}, {CLIENTS} clients"
    yield Row(f"{what}: errors", len(errors), "0", not errors, spent, note=errors[0] if errors else note)
    yield Row("... p99 over p50", p99 / p50, "< 5", p99 < 5 * p50, 0.0)
    yield Row("... growth of memory, %", growth, "< 5", growth < 5, 0.0, note=f"{before / 1e6:.0f} MB before")
    yield Row("... seconds until ready", ready, "< 5", ready < 5, 0.0)
    yield from _ratio_rows(index, queries, seconds / 12, previous)


def _ratio_rows(index: LocalIndex, queries: np.ndarray, seconds: float, previous: Path | None) -> Iterator[Row]:
    """Compare the time per request with bare route and library, and with the previous service."""
    turns = [_turn(index, queries, seconds, previous) for _ in range(TURNS)]
    ratio = float(np.median([served / (bare + library) for served, bare, library, _ in turns]))
    medians = 1e6 * np.median(turns, axis=0)
    note = f"{medians[0]:.0f} us a request, bare route {medians[1]:.0f}, library {medians[2]:.0f}; {TURNS} turns"
    yield Row("... time over (bare route + library)", ratio, "<= 1.5", ratio <= 1.5, 0.0, note=note)
    if previous is not None:
        ratio = float(np.median([served / old for served, _, _, old in turns]))
        yield Row("... time over the previous service's", ratio, "reported", True, 0.0, note=f"{medians[3]:.0f} us before")


def _turn(
    index: LocalIndex, queries: np.ndarray, seconds: float, previous: Path | None
) -> tuple[float, float, float, float]:
    """Return the seconds per request of the service, the bare route, the library and the previous service, one by one."""
    with service(index.folder) as (url, _):
        served = _seconds_per_request(url, _requests(queries, SEARCH_PATH), seconds)
    with bare_service() as (url, _):
        bare = _seconds_per_request(url, _requests(queries, SEARCH_PATH), seconds)
    library = 1 / _direct_rate(index, queries, seconds)
    if previous is None:
        return served, bare, library, np.nan
    with service(index.folder, previous) as (url, _):
        return served, bare, library, _seconds_per_request(url, _requests(queries, PREVIOUS_PATH), seconds)


def _seconds_per_request(url: str, requests: Sequence[bytes], seconds: float) -> float:
    load(url, requests, CLIENTS, seconds / 4)  # warm up
    times, errors, spent = load(url, requests, CLIENTS, seconds)
    if errors:
        raise RuntimeError(errors[0])
    return spent / len(times)


def _requests(queries: np.ndarray, path: str) -> list[bytes]:
    bodies = [json.dumps({"code": query.tobytes().hex(), "k": K}).encode() for query in queries]
    return [request(path, "application/json", body) for body in bodies]


def image_rows(model: Path | None, seconds: float) -> Iterator[Row]:
    """Compare search by image with decoding and inference alone on the same cores and files."""
    from proxyhash.models.hasher import Hasher

    with TemporaryDirectory() as place:
        folder = Path(place)
        files = _photographs(folder / "photos")
        hasher = Hasher.load(model) if model is not None else _untrained(folder / "model")
        with LocalIndex.open_folder(folder / "i", model=hasher) as index:
            index.add([str(file) for file in files[:64]])
        path = f"{SEARCH_PATH}?k={K}"
        requests = [request(path, "image/jpeg", file.read_bytes()) for file in files]
        times, errors, turns, spent = list[float](), list[str](), [], 0.0
        with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as decoders:
            list(decoders.map(_decode, files[:8], [hasher.pixel_spec] * 8))
            for _ in range(TURNS):
                with service(folder / "i") as (url, _):
                    load(url, requests, IMAGE_CLIENTS, min(3.0, seconds))
                    some, wrong, took = load(url, requests, IMAGE_CLIENTS, seconds / TURNS)
                times, errors, spent = times + some, errors + wrong, spent + took
                turns.append((len(some) / took, *_alone(hasher, decoders, files)))
    share = float(np.median([served * (decoding + inference) for served, decoding, inference in turns]))
    rate, decoding, inference = np.median(turns, axis=0)
    note = f"{rate:.1f} images/s; {1000 * decoding:.1f} ms to decode, {1000 * inference:.1f} ms to encode; "
    note += f"p50 {1000 * np.median(times):.0f} ms; {TURNS} turns"
    is_met = share >= 0.8 and not errors
    yield Row(
        f"by image, {IMAGE_CLIENTS} clients: over 1 / (decoding + inference)", share, ">= 0.8", is_met, spent, note=note
    )


def _alone(hasher: Any, decoders: ProcessPoolExecutor, files: Sequence[Path]) -> tuple[float, float]:
    """Return the seconds per image to decode, and to encode in batches, each alone on all cores."""
    spec = hasher.pixel_spec
    _, decoding = timed(lambda: list(decoders.map(_decode, files, [spec] * len(files), chunksize=16)))
    batch = np.stack([spec.decode(file) for file in files[:32]])
    hasher.embed_pixels(batch)
    _, inference = timed(lambda: [hasher.embed_pixels(batch) for _ in range(8)])
    return decoding / len(files), inference / (8 * len(batch))


def _decode(file: Path, spec: Any) -> None:
    spec.decode(file)


def _photographs(folder: Path) -> list[Path]:
    """Write smooth random images in the size of photographs on the web."""
    folder.mkdir()
    random = np.random.default_rng(0)
    files = []
    for number in range(IMAGES):
        small = Image.fromarray(random.integers(0, 256, (12, 16, 3), dtype=np.uint8))
        file = io.BytesIO()
        small.resize((640, 480), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
        files.append(folder / f"{number:03d}.jpg")
        files[-1].write_bytes(file.getvalue())
    return files


def _untrained(folder: Path) -> Any:
    """Return EfficientNet-Lite0 with a head of random weights, which do not affect the speed."""
    from proxyhash.data.transforms import get_transform
    from proxyhash.models.backbones import create_backbone
    from proxyhash.models.hasher import Hasher
    from proxyhash.models.network import HashHead, HashNetwork, HeadConfig

    backbone = create_backbone("efficientnet_lite0", pretrained=False)
    network = HashNetwork(backbone, HashHead(HeadConfig(backbone.config.num_features, BITS))).eval()
    Hasher(network, get_transform("photo", 224), ()).save(folder)
    return Hasher.load(folder)


def main() -> None:
    if sys.argv[1:2] == ["--bare"]:  # the process of the bare route
        run_bare(int(sys.argv[2]))
        return
    more = {"model": "a model for the part images", "previous": "a source tree of the previous service"}
    options = options_of(__doc__, ["codes", "images"], more, short="load for 10 seconds only")
    seconds = SHORT if options.short else SECONDS
    sections = {
        "codes": lambda: code_rows(seconds, options.previous),
        "images": lambda: image_rows(options.model, seconds),
    }
    run("The service under load", sections, options)


if __name__ == "__main__":
    main()
