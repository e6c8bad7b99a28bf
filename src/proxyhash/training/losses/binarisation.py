"""How far embeddings are from the codes they will be rounded to."""

from torch import Tensor

from proxyhash.utils.errors import InputError


def binarisation_error(nu: Tensor) -> Tensor:
    """Return each image's mean over bits of (|nu_k| - 1)^2 = (nu_k - sgn(nu_k))^2, (N,), for `nu` (N, d).

    0 is saturated, 1 undecided. The paper shows histograms of it (section 5.2); its method never minimizes it.
    """
    if nu.ndim != 2 or nu.shape[1] == 0:
        raise InputError(f"Embeddings must be a matrix (images, bits), not of shape {tuple(nu.shape)}.")
    return (nu.abs() - 1).square().mean(dim=1)
