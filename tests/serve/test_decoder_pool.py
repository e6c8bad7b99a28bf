"""Decoder processes: results, limits, and replacement."""

import asyncio
import gc
import io
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

import numpy as np
import pytest
from PIL import Image

from helpers.worker_targets import wait_until_ended
from proxyhash.data.crop import CropBox
from proxyhash.data.pixel_spec import PixelSpec
from proxyhash.serve.errors import BusyError
from proxyhash.serve.workers import decoder_pool
from proxyhash.serve.workers.channel import Channel
from proxyhash.serve.workers.decoder import Job, PixelJob, ThumbnailJob, decode
from proxyhash.serve.workers.decoder_pool import DecoderPool
from proxyhash.utils.errors import InputError

PIXELS = np.random.default_rng(5).integers(0, 256, (40, 60, 3), dtype=np.uint8)
RESIZE = PixelJob(PixelSpec(16, "cover"))
CROP = PixelJob(PixelSpec(40, box=CropBox(0, 0, 1, 1, flipped=False)))
JOBS = [RESIZE, PixelJob(PixelSpec(30, "squash")), CROP, ThumbnailJob(30)]


def png(pixels: np.ndarray = PIXELS) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def make_pool(decoders: int = 1, seconds: float = 30.0, max_bytes: int = 200_000_000) -> DecoderPool:
    return DecoderPool(decoders=decoders, decoder_bytes=max_bytes, decoder_seconds=seconds, max_pixels=50_000_000)


@pytest.fixture(scope="module")
def pool() -> Iterator[DecoderPool]:
    pool = make_pool()
    pool.start()
    yield pool
    pool.close()


def run(pool: DecoderPool, content: bytes, job: Job = RESIZE) -> np.ndarray:
    return asyncio.run(pool.decode(job, content))


@pytest.mark.parametrize("job", JOBS, ids=["cover", "squash", "crop", "thumbnail"])
def test_results_are_those_of_decoding_here(pool: DecoderPool, job: Job) -> None:
    expected = decode(job, png(), 10_000)
    found = run(pool, png(), job)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert np.array_equal(found, expected)


def test_jobs_resize_crop_and_make_thumbnails() -> None:
    expected = np.asarray(Image.fromarray(PIXELS).resize((16, 16), Image.Resampling.BILINEAR, box=(10, 0, 50, 40)))
    assert np.array_equal(decode(RESIZE, png(), 10_000), expected)
    assert np.allclose(decode(CROP, png(), 10_000), PIXELS[:, 10:50], atol=1e-3)
    for side, size in ((30, (30, 20)), (100, (60, 40))):
        with Image.open(io.BytesIO(decode(ThumbnailJob(side), png(), 10_000).tobytes())) as thumbnail:
            assert (thumbnail.format, thumbnail.size) == ("JPEG", size)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "The image is empty."),
        (png()[:-200], "The image cannot be decoded as an image"),
        (b"<svg xmlns='http://www.w3.org/2000/svg'/>", "its format is not recognized"),
        (png(np.zeros((7_100, 7_100, 3), np.uint8)), "The image has more than 50,000,000 pixels, which is refused."),
    ],
    ids=["empty", "truncated", "unknown", "many pixels"],
)
def test_what_is_no_image_is_an_input_error(pool: DecoderPool, content: bytes, sentence: str) -> None:
    restarts = pool.restarts
    with pytest.raises(InputError, match=sentence):
        run(pool, content)
    assert run(pool, png()).shape == (16, 16, 3)
    assert pool.restarts == restarts


def test_image_that_needs_too_much_memory_is_an_input_error() -> None:
    pool = make_pool(max_bytes=60_000_000)
    try:
        with pytest.raises(InputError, match="The image takes too much memory to decode"):
            run(pool, png(np.zeros((7_000, 7_000, 3), np.uint8)))
        assert run(pool, png()).shape == (16, 16, 3)
        assert pool.restarts == 0
    finally:
        pool.close()


@pytest.mark.parametrize("content", [png(), bytes(30_000_000)], ids=["while receiving", "while sending"])
def test_image_that_takes_too_long_is_an_input_error(content: bytes) -> None:
    pool = make_pool(seconds=2.0)
    try:
        pool.start()
        (pid,) = pool.pids
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(InputError, match="The image takes longer than 2 seconds to decode"):
            run(pool, content)
        assert wait_until_ended(pid)
        assert run(pool, png()).shape == (16, 16, 3)
        assert pool.restarts == 1
    finally:
        pool.close()


def test_image_whose_decoder_dies_is_decoded_by_another(pool: DecoderPool) -> None:
    restarts = pool.restarts
    for _ in range(3):
        (pid,) = pool.pids
        os.kill(pid, signal.SIGKILL)
        assert run(pool, png()).shape == (16, 16, 3)
    assert pool.restarts == restarts + 3


def exit_when_asked(channel: Channel, _: int, __: int) -> None:
    """Be a decoder that every image kills."""
    from proxyhash.serve.workers.process import report_ready

    report_ready(channel)
    channel.receive()
    os._exit(1)


def exit_at_once(channel: Channel, _: int, __: int) -> None:
    """Be a decoder that cannot start."""
    channel.close()
    os._exit(1)


def answer_wrongly(channel: Channel, _: int, __: int) -> None:
    """Be a decoder that an image has taken over."""
    from proxyhash.serve.workers.process import report_ready

    report_ready(channel)
    for answer in (b"", b"\x92\xc4\x03abc\xa0", b"\x00"):
        channel.receive()
        channel.send(answer)


@pytest.mark.parametrize("target", [exit_when_asked, exit_at_once, answer_wrongly])
def test_image_whose_decoders_fail_twice_is_refused_for_now(target: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoder_pool, "run_decoder", target)
    pool = make_pool()
    try:
        with pytest.raises(BusyError):
            run(pool, png())
        assert pool.restarts == 2
        monkeypatch.undo()
        assert asyncio.run(_eventually(pool)).shape == (16, 16, 3)
    finally:
        pool.close()


async def _eventually(pool: DecoderPool) -> np.ndarray:
    for _ in range(3):
        try:
            return await pool.decode(RESIZE, png())
        except BusyError:
            continue
    raise AssertionError


def test_decoders_that_cannot_be_started_refuse_images_for_now(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(24, "Too many open files")

    pool = make_pool()
    try:
        monkeypatch.setattr(decoder_pool, "WorkerProcess", fail)
        with pytest.raises(BusyError):
            run(pool, png())
        monkeypatch.undo()
        assert run(pool, png()).shape == (16, 16, 3)
    finally:
        pool.close()


@pytest.mark.parametrize("kills", [15, pytest.param(100, marks=pytest.mark.slow)])
def test_killed_decoders_never_make_a_good_image_bad(kills: int) -> None:
    pool = make_pool(decoders=2)
    pool.start()
    is_done = threading.Event()
    outcomes: Counter[str] = Counter()

    async def client() -> None:
        while not is_done.is_set():
            try:
                array = await pool.decode(RESIZE, png())
                outcomes["decoded" if array.shape == (16, 16, 3) else "wrong"] += 1
            except BusyError:
                outcomes["busy"] += 1

    async def clients() -> None:
        await asyncio.gather(*(client() for _ in range(8)))

    def kill() -> None:
        for _ in range(kills):
            for pid in pool.pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        is_done.set()

    killer = threading.Thread(target=kill)
    killer.start()
    asyncio.run(clients())  # another exception ends it
    killer.join()
    pool.close()
    assert set(outcomes) <= {"decoded", "busy"}
    assert outcomes["decoded"]
    assert pool.restarts >= kills // 2


def test_images_are_decoded_at_the_same_time() -> None:
    pool = make_pool(decoders=2, seconds=60.0)
    pool.start()
    first, second = pool.pids

    async def both() -> None:
        os.kill(first, signal.SIGSTOP)
        tasks = [asyncio.create_task(pool.decode(RESIZE, png())) for _ in range(2)]
        _, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert len(waiting) == 1
        os.kill(first, signal.SIGCONT)
        await asyncio.gather(*tasks)

    asyncio.run(both())
    pool.close()
    assert wait_until_ended(first, second)


def test_closed_pool_refuses_images() -> None:
    pool = make_pool()
    pool.close()
    with pytest.raises(BusyError):
        run(pool, png())


def test_refused_images_are_not_kept_in_memory(pool: DecoderPool) -> None:
    content = bytes(100_000)

    async def refuse() -> None:
        for _ in range(3):
            with pytest.raises(InputError):
                await pool.decode(RESIZE, content)

    gc.collect()
    gc.disable()
    try:
        before = sys.getrefcount(content)
        asyncio.run(refuse())
        assert sys.getrefcount(content) == before
    finally:
        gc.enable()
