"""A protocol played on its training set alone: everything is chosen there, and the test is taken once."""

from dataclasses import replace

import numpy as np

from proxyhash.data import Split
from proxyhash.utils.errors import InputError


def validation_split(split: Split) -> Split:
    """Return the split in which the images held out of the training set ask and are searched."""
    if not len(split.validation):
        raise InputError(f"The protocol {split.protocol} holds nothing out to choose settings by.")
    none = np.zeros(0, np.int64)
    return replace(
        split,
        query=split.validation,
        database=split.validation_database,
        validation=none,
        validation_database=none,
        note=f"rehearsal: judged on images held out of the training set. {split.note}".strip(),
    )
