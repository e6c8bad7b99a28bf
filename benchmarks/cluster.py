"""Benchmark of the Milvus index against pymilvus alone, of encoding by two processes, and of search cost by index size.

python benchmarks/cluster.py                             everything, a few minutes; needs the packages milvus and pymilvus
python benchmarks/cluster.py --only encoding             some of: inserts, search, encoding, growth
python benchmarks/cluster.py --only growth --large       up to 100 million codes: minutes, and 4 GB of memory

The first two sections start and stop a Milvus server on this machine. The two sides of a comparison run in alternation, and
the best times are compared, because the machine may have other load.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

from growth import growth_rows
from proxyhash.codes.bits import Packed
from proxyhash.index.milvus.index import MilvusIndex
from proxyhash.index.milvus.rows import BATCH_ROWS
from reporting import Row, options_of, run, timed

ROUNDS = 3
INSERTED = 50_000
SEARCHED = 100_000
IMAGES = 512
BITS = 64


@contextmanager
def server() -> Iterator[tuple[str, int]]:
    """Start a Milvus server with its data in a temporary folder; yield its address and its process id."""
    import milvus

    with TemporaryDirectory() as folder:
        running = milvus.MilvusServer(milvus.MilvusServerConfig())
        running.set_base_dir(folder)
        try:
            running.start()
            yield f"milvus://127.0.0.1:{running.listen_port}", running.server_proc.pid
        finally:
            running.stop()


def codes_and_keys(items: int, seed: int) -> tuple[Packed, list[str]]:
    codes = np.random.default_rng(seed).integers(0, 256, (items, BITS // 8), dtype=np.uint8)
    return codes, [f"photos/{number:09d}.jpg" for number in range(items)]


def best_of(works: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return the best time of each function in seconds; the functions run in alternation."""
    rounds = [{name: timed(work)[1] for name, work in works.items()} for _ in range(ROUNDS)]
    return {name: min(times[name] for times in rounds) for name in works}


def insert_rows() -> Iterator[Row]:
    """Insert the same items into new collections with the same schema, by our index and by pymilvus alone."""
    codes, keys = codes_and_keys(INSERTED, 1)
    numbers = count()

    def opened(address: str) -> MilvusIndex:
        return MilvusIndex.open_address(f"{address}/c{next(numbers)}", bits=BITS)

    def direct(index: MilvusIndex, call: str) -> None:
        for first in range(0, INSERTED, BATCH_ROWS):
            part = range(first, min(first + BATCH_ROWS, INSERTED))
            rows = [
                {"key": keys[number], "code": codes[number].tobytes(), "position": number, "labels": "", "file": ""}
                for number in part
            ]
            getattr(index.client, call)(index.location.collection, rows)

    with server() as (address, _):
        works: dict[str, Callable[[], object]] = {
            "ours": lambda: opened(address).add(codes, keys),
            "insert": lambda: direct(opened(address), "insert"),
            "upsert": lambda: direct(opened(address), "upsert"),
        }
        seconds = best_of(works)
    for call in ("insert", "upsert"):
        ratio = seconds[call] / seconds["ours"]
        note = f"{INSERTED / seconds['ours']:,.0f} items/s, pymilvus {INSERTED / seconds[call]:,.0f}"
        yield Row(f"adding items: speed over pymilvus's {call}", ratio, ">= 0.8", ratio >= 0.8, seconds["ours"], note=note)


def search_rows() -> Iterator[Row]:
    """Search the same collection with the same queries, with eventual consistency: waiting would hide the difference."""
    codes, keys = codes_and_keys(SEARCHED, 2)
    with (
        server() as (address, process),
        MilvusIndex.open_address(f"{address}/photos?consistency=Eventually", bits=BITS) as index,
    ):
        empty = _resident(process)
        _, seconds = timed(index.add, codes, keys)
        index.client.flush("photos")
        time.sleep(15)  # newly sealed segments are loaded again
        weight = (_resident(process) - empty) / SEARCHED
        note = f"with the caches of an add that has just ended; of an empty server {empty / 1e6:,.0f} MB are resident"
        yield Row("resident bytes an item in the server, with its key", weight, "", True, seconds, note=note)
        for batch, times in ((1, 300), (100, 20)):
            ours, direct = _in_turn(partial(_ours, index, batch), partial(_direct, index, batch), times)
            note = f"{1000 * ours:.2f} ms a request, pymilvus {1000 * direct:.2f}; the best of {times}"
            name = f"searching {SEARCHED:,} items, {batch} queries a request: cost of our layer"
            yield Row(name, ours / direct - 1, "< 0.1", ours / direct < 1.1, ours * times, note=note)


def _in_turn(one: Callable[[], object], other: Callable[[], object], times: int) -> tuple[float, float]:
    """Return the best times in seconds of two kinds of requests in alternation; single requests avoid other load."""
    pairs = [(timed(one)[1], timed(other)[1]) for _ in range(times)]
    return min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)


def _resident(process: int) -> int:
    lines = Path(f"/proc/{process}/status").read_text(encoding="ascii").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("VmRSS"))


def _ours(index: MilvusIndex, batch: int) -> None:
    index.search(codes_and_keys(batch, 3)[0], 10)


def _direct(index: MilvusIndex, batch: int) -> None:
    """Request the same fields, and read every hit."""
    data = [query.tobytes() for query in codes_and_keys(batch, 3)[0]]
    found = index.client.search(
        "photos",
        data,
        limit=10,
        output_fields=["position", "labels", "file"],
        search_params={"metric_type": "HAMMING", "params": {}},
        consistency_level="Eventually",
    )
    assert all(hit["distance"] >= 0 for hits in found for hit in hits)


def encoding_rows() -> Iterator[Row]:
    """Encode photographs with one process on all cores, and with two processes; startup is not counted."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        model, photos = _model(folder / "model"), _photos(folder / "photos")
        rates: dict[int, list[float]] = {1: [], 2: []}
        for turn in range(ROUNDS):
            for world, measured in rates.items():
                measured.append(_rate(model, photos, folder / f"shards-{turn}-{world}", world))
        one, two = max(rates[1]), max(rates[2])
        note = f"{two:,.0f} images/s by two processes, {one:,.0f} by one"
        yield Row("encoding: two processes over one on all cores", two / one, ">= 0.9", two / one >= 0.9, 0.0, note=note)


def _rate(model: Path, photos: Path, shards: Path, world: int) -> float:
    """Return the images per second of all processes together."""
    command = ["encode", str(model), str(photos), "--shards", str(shards), "--shard-size", "64"]
    start = [sys.executable, "-c", "import sys; from proxyhash.cli.app import main; main(sys.argv[1:])", *command]
    places = [{"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "RANK": str(rank)} for rank in range(world)]
    running = [subprocess.Popen(start, env={**os.environ, **place}, stdout=subprocess.PIPE, text=True) for place in places]
    printed = [process.communicate()[0] for process in running]
    return sum(float(re.findall(r"at ([\d,]+) images/s", text)[0].replace(",", "")) for text in printed)


def _model(folder: Path) -> Path:
    """Save a hasher with the default backbone and random weights, which do not affect the speed."""
    from proxyhash.data.transforms import get_transform
    from proxyhash.models.backbones import create_backbone
    from proxyhash.models.hasher import Hasher
    from proxyhash.models.network import HashHead, HashNetwork, HeadConfig

    backbone = create_backbone("efficientnet_lite0", pretrained=False, seed=0)
    network = HashNetwork(backbone, HashHead(HeadConfig(backbone.config.num_features, BITS))).eval()
    Hasher(network, get_transform("photo", 224)).save(folder)
    return folder


def _photos(folder: Path) -> Path:
    """Write smooth noise as JPEG files in the size of thumbnails."""
    folder.mkdir()
    random = np.random.default_rng(4)
    for number in range(IMAGES):
        small = Image.fromarray(random.integers(0, 256, (24, 32, 3), dtype=np.uint8))
        small.resize((400, 300), Image.Resampling.BICUBIC).save(folder / f"{number:04d}.jpg", quality=85)
    return folder


def main() -> None:
    options = options_of(__doc__, ["inserts", "search", "encoding", "growth"], large="measure growth to 100,000,000 codes")
    sections = {
        "inserts": insert_rows,
        "search": search_rows,
        "encoding": encoding_rows,
        "growth": lambda: growth_rows(large=options.large),
    }
    run("A cluster against its targets", sections, options)


if __name__ == "__main__":
    main()
