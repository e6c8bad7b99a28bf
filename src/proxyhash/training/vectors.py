"""Encoders fitted on vectors."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proxyhash.codes.bits import MAX_BITS
from proxyhash.data.vectors import VectorRows
from proxyhash.labels import Labels
from proxyhash.methods import HeadEncoder, LinearEncoder, TrainingData, check_settings, get_method
from proxyhash.models.vector_hasher import VectorHasher, VectorNetwork
from proxyhash.training.config import OptimConfig
from proxyhash.training.features import fit_method
from proxyhash.utils.errors import InputError
from proxyhash.utils.progress import Progress, no_progress
from proxyhash.utils.validation import check_int

DEFAULT_METHOD, DEFAULT_LABELED_METHOD = "itq", "shclm"


def fit_vectors(
    vectors: VectorRows | NDArray[Any],
    bits: int,
    *,
    labels: Labels | None = None,
    method: str | None = None,
    settings: dict[str, Any] | None = None,
    optim: OptimConfig | None = None,
    normalize: bool = True,
    seed: int = 0,
    device: str = "cpu",
    progress: Progress = no_progress,
) -> VectorHasher:
    """Fit an encoder of vectors.

    Parameters
    ----------
    vectors
        Vectors (N, width) of floats; a memory-mapped array is read in chunks.
    bits
        The length of the codes.
    labels
        Classes or tags of the vectors; vectors without any are left out.
    method
        A name from `list_methods`; None for itq without labels, and for shclm with labels.
    settings
        Settings of the method.
    optim
        How a head is trained, for methods that train; None for the settings of frozen features.
    normalize
        Scale vectors to length 1, now and when they are encoded, so that codes follow the cosine.
    seed
        Decides every random draw.
    device
        A name as `find_device` takes it, such as cuda or auto; methods that train use it.
    progress
        Called with the name of the work and the fraction that is done.

    Returns
    -------
    VectorHasher

    Raises
    ------
    InputError
        For vectors that are not finite, rows of zeros that are to be scaled, and data that the method cannot learn from.

    Examples
    --------
    >>> vectors = np.random.default_rng(0).normal(size=(100, 32)).astype(np.float32)
    >>> fit_vectors(vectors, 16).encode(vectors[:3]).shape
    (3, 2)
    """
    name = method or (DEFAULT_METHOD if labels is None else DEFAULT_LABELED_METHOD)
    settings = settings or {}
    check_settings(name, settings)
    check_int("bits", bits, 1, MAX_BITS)
    rows = VectorRows(
        vectors.values if isinstance(vectors, VectorRows) else vectors,
        normalize=normalize,
        name=vectors.name if isinstance(vectors, VectorRows) else "The vectors",
    )
    if labels is not None and len(labels) != len(rows):
        raise InputError(f"There are {len(rows):,} vectors and {len(labels):,} labels.")
    rows, labels = _labeled(rows, labels)
    data = TrainingData(bits, rows, labels, seed=seed, progress=progress)  # type: ignore[arg-type]
    progress(f"fitting {get_method(name).title}", 0.0)
    encoder = fit_method(name, data, optim, device=device, **settings)
    assert isinstance(encoder, (LinearEncoder, HeadEncoder))
    config: dict[str, Any] = {"bits": bits, "method": name, "settings": settings, "seed": seed, "normalize": normalize}
    if get_method(name).trains:
        config["optim"] = asdict(optim or OptimConfig.frozen())
    return VectorHasher(
        VectorNetwork(encoder.to_head(), normalize=normalize).eval(),
        class_names=() if labels is None else labels.names,
        proxies=getattr(encoder, "proxies", None),
        metadata={"config": config, "data": {"path": _file_name(vectors), "vectors": len(rows)}},
        training_codes=getattr(encoder, "training_codes", None),
    )


def _file_name(vectors: VectorRows | NDArray[Any]) -> str | None:
    """Return the name of the file that vectors come from; a whole path may hold private names."""
    return Path(vectors.name).name if isinstance(vectors, VectorRows) else None


def _labeled(rows: VectorRows, labels: Labels | None) -> tuple[VectorRows, Labels | None]:
    """Return the vectors that have labels, with the classes or tags that occur."""
    if labels is None:
        return rows, None
    labeled = labels.labeled()
    if not len(labeled):
        raise InputError("None of the vectors has a label.")
    labels = labels.subset(labeled).select_classes(labels.present_classes())
    if labels.num_classes < 2:
        raise InputError("The labels have one class, and two are needed to tell apart; fit without labels.")
    if len(labeled) == len(rows):
        return rows, labels
    return VectorRows(np.asarray(rows.values)[labeled], normalize=rows.normalize, name=rows.name), labels
