"""The commands `proxyhash proxies` and `proxyhash inspect`."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from proxyhash.cli.output import SafeConsole, print_quality
from proxyhash.cli.parameters import Int, Json
from proxyhash.cli.progress import progress_bars
from proxyhash.utils.atomic_io import check_writable
from proxyhash.utils.errors import InputError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from proxyhash.proxies import ProxySet

DEFAULT_PLOT = "proxies.png"


def proxies(
    *,
    classes: Int,
    bits: Int,
    kind: str = "shclm",
    similarity: Path | None = None,
    seed: Int = 0,
    solver: str = "anneal",
    tammes_restarts: Int | None = None,
    rotation_restarts: Int = 20,
    min_distance: Int | None = None,
    threads: Int | None = None,
    output: Annotated[Path | None, Parameter(alias="-o")] = None,
    plot: Path | None = None,
    json_: Json = False,
) -> None:
    """Design a set of proxies, one for each class, and print its quality.

    For example, 100 classes in 32 bits, saved and plotted:

      proxyhash proxies --classes 100 --bits 32 -o proxies.safetensors --plot

    Parameters
    ----------
    classes
        Number of classes C, at least 2.
    bits
        Number of bits d of a code, at least 1.
    kind
        learned, random, tammes (packed on the sphere), aligned (rotated towards binary), hclm (its signs), shclm (hclm,
        with similar proxies for similar classes), code (the largest minimal distance), scode (code, with similar proxies
        for similar classes), joint (optimized for similarity under a minimal distance), or auto: joint with a similarity,
        code without.
    similarity
        A .npy file with a symmetric C x C matrix of class similarities.
    seed
        The same seed gives the same set.
    solver
        Solver of the assignment: anneal, greedy (the paper's) or faq.
    tammes_restarts
        Number of random starts of the packing; by default chosen by the number of classes.
    rotation_restarts
        Number of random starts of the rotation.
    min_distance
        Smallest distance between two classes of a joint set, in bits; by default half of the distance of code.
    threads
        Number of threads; by default all cores. The result does not depend on it.
    output
        Save the set to this .safetensors file.
    plot
        Plot distance matrix and margins to this .png, .pdf or .svg file (proxies.png if no name follows).
    json_
        Print JSON instead of a table.
    """
    from proxyhash.proxies import design_proxies
    from proxyhash.proxies.figures import check_figure_path

    for path in filter(None, (output, plot and check_figure_path(plot))):
        check_writable(path)
    matrix = None if similarity is None else read_similarity(similarity)
    with progress_bars() as progress:
        designed = design_proxies(
            classes,
            bits,
            kind,
            matrix,
            seed,
            solver=solver,
            tammes_restarts=tammes_restarts,
            rotation_restarts=rotation_restarts,
            min_distance=min_distance,
            threads=threads,
            progress=progress,
        )
    if output is not None:
        designed.save(output)
    _present(designed, plot, as_json=json_)


def inspect(file: Path, /, *, plot: Path | None = None, json_: Json = False) -> None:
    """Print the quality of a proxy set that was saved with `proxyhash proxies -o`.

    Parameters
    ----------
    file
        The .safetensors file.
    plot
        Plot distance matrix and margins to this .png, .pdf or .svg file (proxies.png if no name follows).
    json_
        Print JSON instead of a table.
    """
    from proxyhash.proxies import ProxySet

    _present(ProxySet.load(file), plot, as_json=json_)


def with_default_plot(tokens: list[str]) -> list[str]:
    """Insert the default file name after a `--plot` without one."""
    for position, token in enumerate(tokens):
        if token == "--plot" and (position + 1 == len(tokens) or tokens[position + 1].startswith("-")):
            return [*tokens[: position + 1], DEFAULT_PLOT, *tokens[position + 1 :]]
    return tokens


def read_similarity(path: Path) -> "NDArray[np.floating]":
    """Read a matrix from a .npy file; pickled objects are refused."""
    import numpy as np

    try:
        matrix = np.load(path, allow_pickle=False)
    except FileNotFoundError:
        raise InputError(f"There is no file {path}.") from None
    except (OSError, ValueError, EOFError):
        raise InputError(f"{path} is not a .npy file with a matrix of numbers.") from None
    if not isinstance(matrix, np.ndarray):
        matrix.close()
        raise InputError(f"{path} holds several arrays; a .npy file with one matrix is needed.")
    return matrix


def _present(designed: "ProxySet", plot: Path | None, *, as_json: bool) -> None:
    if plot is not None:
        from proxyhash.proxies.figures import save_figure

        save_figure(designed, plot)
    if as_json:
        print(json.dumps(designed.as_dict(), indent=2))
    else:
        print_quality(SafeConsole(), designed)
