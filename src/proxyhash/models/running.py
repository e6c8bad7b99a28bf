"""All images of a collection through a network, batch by batch."""

from collections.abc import Iterator

import numpy as np

from proxyhash.data.images import Images, Indices
from proxyhash.data.loader import load_batches
from proxyhash.data.skipped import SkippedItems
from proxyhash.data.transforms import Transform
from proxyhash.models.runtime import Floats, InferenceBackend
from proxyhash.utils.progress import Progress, no_progress

BATCH_SIZE = 64  # large enough to fill the cores, small enough for their caches


def run_inference(
    images: Images,
    backend: InferenceBackend,
    transform: Transform,
    *,
    indices: Indices | None = None,
    skipped: SkippedItems | None = None,
    work: str = "encoding images",
    progress: Progress = no_progress,
) -> Iterator[tuple[Indices, Floats]]:
    """Yield which images and their outputs (n, width), in order.

    Unreadable ones are counted in `problems` and missing; without `problems` the first is an error.
    """
    wanted = np.arange(len(images)) if indices is None else indices
    batches = [wanted[first : first + BATCH_SIZE] for first in range(0, len(wanted), BATCH_SIZE)]
    done = 0
    progress(work, 0.0)
    for asked, batch in zip(batches, load_batches(images, batches, transform, skipped=skipped), strict=True):
        done += len(asked)
        if len(batch.indices):
            yield batch.indices, backend(batch.images.contiguous().numpy())
        progress(work, done / len(wanted))
