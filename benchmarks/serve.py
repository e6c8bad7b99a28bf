"""The service under load, on this machine: clients, service and the library that it is compared with share its cores.

python benchmarks/serve.py                       everything: 60 seconds of load, and some minutes of preparation
python benchmarks/serve.py --only codes,images   some of: codes, images
python benchmarks/serve.py --short               10 seconds of load
python benchmarks/serve.py --model MODEL         another model than EfficientNet-Lite0 with a head of random weights
"""

import asyncio
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
SECONDS, SHORT, TURNS = 60.0, 10.0, 7


@contextmanager
def service(index: Path) -> Iterator[tuple[str, int]]:
    """Serve an index in a process of its own; gives its address and its number."""
    command = [sys.executable, "-c", "from proxyhash.cli.app import main; main()"]
    command += ["serve", str(index), "--port", "0", "--quiet"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ.copy())
    assert process.stdout is not None
    try:
        url = next(word for word in process.stdout.readline().split() if word.startswith("http"))
        while not _is_ready(url):
            time.sleep(0.1)
        yield url, process.pid
    finally:
        process.terminate()
        process.wait()


def _is_ready(url: str) -> bool:
    try:
        with urlopen(f"{url}/ready") as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


async def client(
    url: str, requests: Sequence[bytes], first: int, until: float, times: list[float], errors: list[str]
) -> None:
    """Send one request after another over one connection, and note how long each took."""
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
    """Return the times of all requests that some clients sent at once, the errors, and the seconds that it took."""
    times: list[float] = []
    errors: list[str] = []

    async def everyone() -> None:
        until = time.perf_counter() + seconds
        work = [client(url, requests, 7 * number, until, times, errors) for number in range(clients)]
        await asyncio.gather(*work)

    # Clients take what the service could use of the two cores, so they are as light as Python lets them be.
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        _, spent = timed(runner.run, everyone())
    return times, errors, spent


def request(path: str, kind: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def resident(process: int) -> float:
    """Return the resident bytes of a process and of all that it has begun."""
    begun = [
        int(child) for task in Path(f"/proc/{process}/task").iterdir() for child in (task / "children").read_text().split()
    ]
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    own = 1024.0 * next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))
    return own + sum(map(resident, begun))


def code_rows(seconds: float) -> Iterator[Row]:
    """Single queries by many clients, against the library with as many queries in a batch."""
    random = np.random.default_rng(0)
    uniform = random.integers(0, 256, (ITEMS, BITS // 8), dtype=np.uint8)
    for name, stored in {"uniform codes": uniform, "codes around 1,000 centroids": _clustered(random, ITEMS)}.items():
        queries = stored[random.integers(0, ITEMS, 2_000)] ^ np.packbits(random.random((2_000, BITS)) < 0.05, axis=1)
        with TemporaryDirectory() as place, LocalIndex.open_folder(Path(place) / "i", bits=BITS) as index:
            index.add(stored, [f"photos/{number:09d}.jpg" for number in range(ITEMS)])
            yield from _served_rows(name, index, queries, seconds)


def _clustered(random: np.random.Generator, count: int) -> np.ndarray:
    centroids = random.integers(0, 256, (1_000, BITS // 8), dtype=np.uint8)
    return centroids[random.integers(0, 1_000, count)] ^ np.packbits(random.random((count, BITS)) < 0.05, axis=1)


def _direct_rate(index: LocalIndex, queries: np.ndarray, seconds: float) -> float:
    """Return the queries a second that the library answers in batches of as many as there are clients."""
    index.search(queries[:CLIENTS], K)
    done, begun = 0, time.perf_counter()
    while time.perf_counter() - begun < seconds:
        first = done % (len(queries) - CLIENTS)
        index.search(queries[first : first + CLIENTS], K)
        done += CLIENTS
    return done / (time.perf_counter() - begun)


def _served_rows(name: str, index: LocalIndex, queries: np.ndarray, seconds: float) -> Iterator[Row]:
    bodies = [json.dumps({"code": query.tobytes().hex(), "k": K}).encode() for query in queries]
    requests = [request("/api/search/code", "application/json", body) for body in bodies]
    with service(index.folder) as (url, process):
        load(url, requests, CLIENTS, min(5.0, seconds))  # fills what is filled once
        before = resident(process)
        times, errors, spent = load(url, requests, CLIENTS, seconds)
        growth = 100 * (resident(process) / before - 1)
        turns = [_turn(url, requests, index, queries, seconds / 12) for _ in range(TURNS)]
    p50, p99 = np.percentile(times, [50, 99]).tolist()
    note = f"p50 {1000 * p50:.1f} ms, p99 {1000 * p99:.1f} ms, {len(times):,} requests"
    what = f"{ITEMS:,} {name}, {CLIENTS} clients"
    yield Row(f"{what}: errors", len(errors), "0", not errors, spent, note=errors[0] if errors else note)
    yield Row("... p99 over p50", p99 / p50, "< 5", p99 < 5 * p50, 0.0)
    yield Row("... growth of memory, %", growth, "< 5", growth < 5, 0.0, note=f"{before / 1e6:.0f} MB before")
    share = float(np.median([served / direct for served, direct in turns]))
    rates = np.median(turns, axis=0)
    note = f"{rates[0]:,.0f} queries/s served, {rates[1]:,.0f} by the library in batches of {CLIENTS}; {TURNS} turns"
    yield Row("... throughput over the library's", share, ">= 0.6", share >= 0.6, 0.0, note=note)


def _turn(
    url: str, requests: Sequence[bytes], index: LocalIndex, queries: np.ndarray, seconds: float
) -> tuple[float, float]:
    """Return queries a second of the service and of the library, one right after the other: the machine's speed changes."""
    times, _, spent = load(url, requests, CLIENTS, seconds)
    return len(times) / spent, _direct_rate(index, queries, seconds)


def image_rows(model: Path | None, seconds: float) -> Iterator[Row]:
    """Searches by image, against the encoder alone on the same files."""
    from proxyhash.models.hasher import Hasher

    with TemporaryDirectory() as place:
        folder = Path(place)
        files = _photographs(folder / "photos")
        hasher = Hasher.load(model) if model is not None else _untrained(folder / "model")
        with LocalIndex.open_folder(folder / "i", model=hasher) as index:
            index.add([str(file) for file in files[:64]])
        hasher.encode([str(file) for file in files[:32]])
        names = [str(file) for file in files]
        requests = [request(f"/api/search/image?k={K}", "image/jpeg", file.read_bytes()) for file in files]
        with service(folder / "i") as (url, _):
            load(url, requests, IMAGE_CLIENTS, min(5.0, seconds))
            times, errors, turns, spent = list[float](), list[str](), [], 0.0
            for _ in range(TURNS):
                some, wrong, took = load(url, requests, IMAGE_CLIENTS, seconds / TURNS)
                times, errors, spent = times + some, errors + wrong, spent + took
                turns.append((len(some) / took, len(files) / timed(hasher.encode, names)[1]))
    share = float(np.median([served / direct for served, direct in turns]))
    rates = np.median(turns, axis=0)
    note = (
        f"{rates[0]:.1f} images/s served, {rates[1]:.1f} by the encoder; p50 {1000 * np.median(times):.0f} ms; {TURNS} turns"
    )
    yield Row(
        f"by image, {IMAGE_CLIENTS} clients: of the encoder's speed",
        share,
        ">= 0.8",
        share >= 0.8 and not errors,
        spent,
        note=note,
    )


def _photographs(folder: Path) -> list[Path]:
    """Write smooth random pictures of the size of photographs on the web."""
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
    """Return EfficientNet-Lite0 with a head of random weights: what encoding costs does not depend on them."""
    from proxyhash.data.transforms import get_transform
    from proxyhash.models.backbones import create_backbone
    from proxyhash.models.hasher import Hasher
    from proxyhash.models.network import HashHead, HashNetwork, HeadConfig

    backbone = create_backbone("efficientnet_lite0", pretrained=False)
    network = HashNetwork(backbone, HashHead(HeadConfig(backbone.config.num_features, BITS))).eval()
    Hasher(network, get_transform("photo", 224), ()).save(folder)
    return Hasher.load(folder)


def main() -> None:
    options = options_of(
        __doc__, ["codes", "images"], {"model": "a model for the part images"}, short="load for 10 seconds only"
    )
    seconds = SHORT if options.short else SECONDS
    sections = {"codes": lambda: code_rows(seconds), "images": lambda: image_rows(options.model, seconds)}
    run("The service under load", sections, options)


if __name__ == "__main__":
    main()
