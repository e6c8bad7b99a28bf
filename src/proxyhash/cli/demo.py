"""`proxyhash demo`: all steps on the handwritten digits of scikit-learn."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from proxyhash.cli.output import StepTimer, print_codes, print_quality, quiet_mode, status_console
from proxyhash.cli.parameters import Flag, Int
from proxyhash.cli.progress import progress_bars
from proxyhash.utils.errors import InputError

if TYPE_CHECKING:
    from proxyhash.quickstart import OutputPaths, Step
    from proxyhash.utils.progress import Progress

SCALE = 4  # screen pixels per pixel of a digit, on a side
BASELINES = ("lsh", "itq")


def demo(
    *,
    bits: Int = 16,
    seed: Int = 0,
    serve: Annotated[bool, Flag] = False,
    output: Annotated[Path, Parameter(alias="-o")] = Path("demo"),
) -> None:
    """Design proxies, train, evaluate, compare, index, search and report, in a minute or two.

    The images are 1,797 handwritten digits. Finished steps are not repeated.

    Parameters
    ----------
    bits
        The code length.
    seed
        The same seed gives the same codes.
    serve
        Then open the search page, until Ctrl-C.
    output
        The folder for everything.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise InputError("The demo needs scikit-learn: pip install 'proxyhash[digits]'.") from None
    from proxyhash.cli.serve import serve as serve_index
    from proxyhash.quickstart import OutputPaths
    from proxyhash.quickstart.run import run_steps

    console = status_console()
    _show_proxies(console, load_digits(), bits, seed, output)
    paths = OutputPaths(str(output / "digits"), output)
    _write_images(Path(paths.images))
    console.print(f"\nThe digits are images in {paths.images}; the steps are those for any folder of images:\n")
    timer = StepTimer()

    def report(step: "Step", was_done: bool) -> None:
        console.print(f"  {step.line}\n    {step.title}: {timer.describe(was_done)}")

    steps = _steps(paths, bits, seed)
    results = run_steps(steps, paths, f"digits-{seed}", progress=progress_bars, report=report)
    for line in _sentences(results, paths):
        console.print(line, markup=False)
    if serve:
        with quiet_mode():
            serve_index(str(paths.index), port=0, open_=True)


def _show_proxies(console: Console, digits: Any, bits: int, seed: int, output: Path) -> None:
    """Design, save and print sHCLM proxies for the ten digits."""
    from proxyhash.proxies import class_mean_similarity, design_proxies
    from proxyhash.proxies.figures import save_figure

    names = [str(digit) for digit in digits.target_names]
    similarity = class_mean_similarity(digits.data, digits.target)
    with progress_bars() as progress:
        proxies = design_proxies(len(names), bits, "shclm", similarity, seed, progress=progress)
    proxies.save(output / "proxies.safetensors")
    save_figure(proxies, output / "proxies.png", names)
    console.print(f"{len(digits.data):,} images of {len(names)} digits: one proxy of {bits} bits for each digit.\n")
    print_codes(console, proxies.weights, names)
    console.print()
    print_quality(console, proxies)
    console.print(f"\nSaved {output / 'proxies.safetensors'}; see the picture {output / 'proxies.png'}.")


def _write_images(folder: Path) -> None:
    """Write each digit, dark on light, to the folder of its class."""
    from proxyhash.data import ArrayImages, load_dataset
    from proxyhash.data.folder_export import write_image_folder

    if not folder.exists():
        digits = load_dataset("digits")
        assert isinstance(digits.images, ArrayImages)
        inverted = ArrayImages(255 - digits.images.pixels, "digit")
        with progress_bars() as progress:
            write_image_folder(replace(digits, images=inverted), folder, enlarge=SCALE, progress=progress)


def _steps(paths: "OutputPaths", bits: int, seed: int) -> "list[Step]":
    """Return the steps of a quickstart, and a search. The backbone has random weights, so nothing is downloaded."""
    from proxyhash.quickstart import QuickstartConfig, Step, quickstart_steps

    config = QuickstartConfig(
        "shclm", bits, "convnet", image_size=8, epochs=10, seed=seed, baselines=BASELINES, calibrate=True
    )
    *steps, report = quickstart_steps(config, paths, title="Handwritten digits")
    query, found = Path(paths.images) / "3" / "digit-000003.png", paths.folder / "found.png"

    def search(_: "Progress") -> dict[str, str]:
        from proxyhash.index import Index
        from proxyhash.index.contact_sheet import draw_matches

        with Index.open(paths.index) as index:
            draw_matches([query], index.search([query], 20), found)
        return {"image": str(found)}

    command = ("search", str(paths.index), str(query), "-k", "20", "--show", str(found))
    return [*steps, Step("searching", command, found, search), report]


def _sentences(results: dict[str, Any], paths: "OutputPaths") -> list[str]:
    """Return the metrics, the outputs and the next commands."""
    compared = results["comparing"]
    baselines = ", ".join(f"{method} {compared[method]:.3f}" for method in BASELINES)
    accuracy = results["evaluating"]["accuracy"]
    index = shlex.quote(str(paths.index))
    return [
        "",
        f"mAP with sHCLM codes: {compared['shclm']:.3f}; with {baselines}. Accuracy by nearest proxy: {accuracy:.3f}.",
        f"{results['indexing']['items']:,} images are in {paths.index}; a search is drawn in {paths.folder / 'found.png'}.",
        f"The report, with figures and a gallery: {paths.report}",
        "",
        "Next:",
        f"  proxyhash serve {index}                  # search in a browser",
        f"  proxyhash search {index} IMAGE -k 10     # with an image of a digit of your own",
        "  proxyhash quickstart YOUR-PHOTOS            # the same with a folder of your own images",
    ]
