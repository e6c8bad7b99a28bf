"""All images of a collection through a network, batch by batch."""

from collections.abc import Iterator
from typing import Never

import numpy as np

from proxyhash.data.decoding import UnreadableImageError
from proxyhash.data.images import Images, Indices
from proxyhash.data.loading import load_batches
from proxyhash.data.problems import Problems
from proxyhash.data.transforms import Transform
from proxyhash.models.runners import Floats, Runner
from proxyhash.support.progress import Progress, silent

BATCH = 64  # large enough to fill the cores, small enough for their caches


class AllNeeded(Problems):
    """For whoever needs every image: the first that cannot be read is an error."""

    def add(self, kind: str, item: str) -> Never:  # noqa: ARG002
        """Say which and why."""
        raise UnreadableImageError(item)


def run_images(
    images: Images,
    runner: Runner,
    transform: Transform,
    *,
    indices: Indices | None = None,
    problems: Problems | None = None,
    work: str = "encoding images",
    progress: Progress = silent,
) -> Iterator[tuple[Indices, Floats]]:
    """Yield which images and their outputs (n, width), in order; unreadable ones are counted in `problems` and missing."""
    wanted = np.arange(len(images)) if indices is None else indices
    batches = [wanted[first : first + BATCH] for first in range(0, len(wanted), BATCH)]
    done = 0
    progress(work, 0.0)
    for asked, batch in zip(batches, load_batches(images, batches, transform, problems=problems), strict=True):
        done += len(asked)
        if len(batch.indices):
            yield batch.indices, runner(batch.images.contiguous().numpy())
        progress(work, done / len(wanted))
