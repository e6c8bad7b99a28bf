"""Models that give features for a refinement, and checks of what an index can refine."""

from contextlib import nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from proxyhash.index.base import Index
from proxyhash.index.refinement.refiner import Kind, check_kind
from proxyhash.index.search_params import SearchParams
from proxyhash.models.encoder import ModelEncoder
from proxyhash.utils.errors import InputError, MissingPackageError

if TYPE_CHECKING:
    from proxyhash.index.refinement.storage import Refinement


def feature_encoder(index: Index, *, required: bool = True) -> ModelEncoder:
    """Return the model of an index as one that gives the features of images; that of vectors gives the vectors.

    An ONNX file of an earlier release does not give features; then torch computes them. If torch is not installed, and they
    are not required, the model is returned as it is.
    """
    encoder = index.encoder
    if encoder.has_features or encoder.width is not None:
        return encoder
    with nullcontext() if required else suppress(MissingPackageError):
        encoder = index.hasher
    if required and not encoder.has_features:
        raise InputError("The model of this index does not give features, which a refinement needs; save it with torch.")
    return encoder


def check_refinement(folder: Path, found: "Refinement | None", wanted: Kind) -> None:
    """Raise an InputError if another refinement is wanted than the index in a folder has."""
    if found is None or found.kind != check_kind(wanted):
        had = "no refinement" if found is None else f"the refinement {found.kind}"
        raise InputError(f"{folder} has {had}; to change it, run: proxyhash index refine {folder} --kind {wanted}")


def check_refined(params: SearchParams, folder: Path, *, has_refinement: bool, has_rows: bool) -> None:
    """Raise an InputError if a search must be refined and cannot be."""
    if has_rows or not (params.refine or params.oversample is not None):
        return
    if not has_refinement:
        raise InputError(f"{folder} has no refinement; add one with: proxyhash index refine {folder} --kind code")
    raise InputError("A refinement needs images, vectors or keys as queries, not codes or embeddings.")
