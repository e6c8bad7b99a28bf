"""`proxyhash demo`: the whole journey, on the handwritten digits that come with scikit-learn."""

import shlex
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Console

from proxyhash.cli.output import print_codes, print_quality, quiet_mode, status_console
from proxyhash.cli.parameters import Flag, Int
from proxyhash.cli.progress import progress_bars
from proxyhash.cli.steps import Stopwatch, run_command
from proxyhash.utils.errors import InputError

if TYPE_CHECKING:
    from proxyhash.quickstart import Places, Step

SCALE = 4  # a pixel of a digit becomes so many on a side, for people to see something
BASELINES = ("lsh", "itq")


def demo(
    *,
    bits: Int = 16,
    seed: Int = 0,
    serve: Annotated[bool, Flag] = False,
    output: Annotated[Path, Parameter(alias="-o")] = Path("demo"),
) -> None:
    """See everything in a minute or two: proxies, training, codes, a comparison, an index, a search and a report.

    The images are 1,797 handwritten digits. What is done already is not done again.

    Parameters
    ----------
    bits
        How many bits a code has.
    seed
        The same seed gives the same codes.
    serve
        Then open the search page on the digits, until Ctrl-C.
    output
        The folder for everything.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise InputError("The demo needs scikit-learn: pip install 'proxyhash[digits]'.") from None
    from proxyhash.cli.serve import serve as serve_index
    from proxyhash.quickstart import Places
    from proxyhash.quickstart.run import run_steps

    console, digits = status_console(), load_digits()
    _show_proxies(console, digits, bits, seed, output)
    images = output / "digits"
    _write_images(images)
    places, stopwatch = Places(str(images), output), Stopwatch()
    console.print(f"\nThe digits are images in {images}; now what a person would do with a folder of images:\n")

    def tell(step: "Step", before: bool) -> None:
        done = "done before" if before else f"done in {stopwatch.lap():.0f} s"
        console.print(f"  {step.line}\n    {step.title}: {done}", soft_wrap=True)

    answers = run_steps(_steps(places, bits, seed), places, f"digits-{seed}", run_command, tell)
    for line in _summary(answers, places):
        console.print(line, soft_wrap=True, markup=False)
    if serve:
        with quiet_mode():
            serve_index(str(places.index), port=0, open_=True)


def _show_proxies(console: Console, digits: Any, bits: int, seed: int, output: Path) -> None:
    """Design sHCLM proxies for the ten digits: similar digits get similar codes, and no two are close."""
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
    """Write each digit once, to a folder of its class: dark on light, as on paper."""
    from proxyhash.data import ArrayImages
    from proxyhash.data.folder_export import write_image_folder
    from proxyhash.data.readers.published import load_digits

    if not folder.exists():
        digits = load_digits()
        assert isinstance(digits.images, ArrayImages)
        images = ArrayImages(255 - digits.images.pixels, "digit")
        with progress_bars() as progress:
            write_image_folder(replace(digits, images=images), folder, enlarge=SCALE, progress=progress)


def _steps(places: "Places", bits: int, seed: int) -> "list[Step]":
    """Return the commands: a small network that was never trained gives the features, so nothing has to be downloaded."""
    from proxyhash.quickstart import Step

    shared = ("--bits", str(bits), "--backbone", "convnet", "--image-size", "8", "--epochs", "10")
    methods = ",".join([*BASELINES, "shclm"])
    found = str(places.out / "found.png")
    query = str(Path(places.images) / "3" / "digit-000003.png")
    model, index = str(places.model), str(places.index)
    return [
        Step("training", ("train", places.images, *shared, "--seed", str(seed), "-o", model), places.model),
        Step("measuring", ("evaluate", "model", model, "--save"), places.model / "metrics.json"),
        Step("calibrating", ("index", "calibrate", model), places.model / "calibration.json"),
        Step(
            "comparing",
            ("benchmark", "--dataset", places.images, "--methods", methods, *shared, "-o", str(places.results)),
            places.results,
        ),
        Step("indexing", ("index", "add", places.images, "--model", model, "--index", index), places.index),
        Step("searching", ("search", index, query, "-k", "20", "--show", found), Path(found)),
        Step(
            "report",
            ("report", str(places.results), "--gallery", model, "--title", "Handwritten digits", "-o", str(places.report)),
            places.report,
        ),
    ]


def _summary(answers: dict[str, Any], places: "Places") -> list[str]:
    """Return what was done, where it is, and what to type next."""
    compared = {record["trial"]["method"]: record["metrics"]["map"] for record in answers["comparing"]}
    baselines = ", ".join(f"{method} {compared[method]:.3f}" for method in BASELINES)
    accuracy = answers["measuring"]["accuracy"]
    index = shlex.quote(str(places.index))
    return [
        "",
        f"mAP with sHCLM codes: {compared['shclm']:.3f}; with {baselines}. Accuracy by nearest proxy: {accuracy:.3f}.",
        f"{answers['indexing']['items']:,} images are in {places.index}; a search is drawn in {places.out / 'found.png'}.",
        f"The report, with figures and a gallery: {places.report}",
        "",
        "Next:",
        f"  proxyhash serve {index}                  # search in a browser",
        f"  proxyhash search {index} IMAGE -k 10     # with an image of a digit of your own",
        "  proxyhash quickstart YOUR-PHOTOS            # the same with a folder of your own images",
    ]
