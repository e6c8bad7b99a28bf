"""`proxyhash demo`: the journey so far, on the handwritten digits that come with scikit-learn."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from proxyhash.cli.numbers import Whole
from proxyhash.cli.show import print_codes, print_quality, progress_bars
from proxyhash.support.errors import InputError


def demo(*, bits: Whole = 16, seed: Whole = 0, output: Annotated[Path, Parameter(alias="-o")] = Path("demo")) -> None:
    """Design sHCLM proxies for the ten digits: similar digits get similar codes, and no two are close.

    Parameters
    ----------
    bits
        How many bits a code has.
    seed
        The same seed gives the same codes.
    output
        The folder for the proxy set and its picture.
    """
    from proxyhash.proxies import class_mean_similarity, design_proxies
    from proxyhash.proxies.figures import save_figure

    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise InputError("The demo needs scikit-learn: pip install 'proxyhash[digits]'.") from None
    digits = load_digits()
    names = [str(digit) for digit in digits.target_names]
    similarity = class_mean_similarity(digits.data, digits.target)
    with progress_bars() as progress:
        proxies = design_proxies(len(names), bits, "shclm", similarity, seed, progress=progress)
    proxies.save(output / "proxies.safetensors")
    save_figure(proxies, output / "proxies.png", names)

    console = Console()
    console.print(f"{len(digits.data):,} images of {len(names)} digits: one proxy of {bits} bits for each digit.\n")
    print_codes(console, proxies.weights, names)
    console.print()
    print_quality(console, proxies)
    console.print(f"\nSaved {output / 'proxies.safetensors'}; see the picture {output / 'proxies.png'}.", highlight=False)
