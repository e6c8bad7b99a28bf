"""`proxyhash index calibrate`: the expected precision of matches by distance."""

from pathlib import Path

from proxyhash.cli.output import print_result
from proxyhash.cli.parameters import Device, Json
from proxyhash.cli.progress import progress_bars


def calibrate(
    model: Path,
    /,
    *,
    data: str | None = None,
    protocol: str | None = None,
    data_dir: Path | None = None,
    device: Device = "auto",
    json_: Json = False,
) -> None:
    """Measure the precision of matches by distance, on the validation images of a model, and store it with the model.

    An index that is created with the model, or added to with --model, then says when nothing matches.

    Parameters
    ----------
    model
        The folder of the model.
    data
        Another data set than it was trained with: a name, or a folder. For a model that takes vectors: a file of labeled
        vectors that it was not fitted on.
    protocol
        Another protocol.
    data_dir
        Where to look for a named data set first.
    device
        auto (a GPU if there is one), cpu, cuda, cuda:1 or mps.
    json_
        Print JSON: the expected precision at every distance.
    """
    from proxyhash.index.model_calibration import calibrate_model

    with progress_bars() as progress:
        found = calibrate_model(model, data, protocol, data_dir, progress, device=device)
    pairs, radius = int(found.pairs.sum()), found.radius()
    shares = [f"{bits:>4} bits  {100 * found.precision[bits]:.1f} % same label" for bits in _some(len(found.precision))]
    print_result(
        {"model": str(model), "pairs": pairs, "precision": found.precision.tolist(), "radius": radius},
        f"{pairs:,} pairs; the expected precision of {model}:",
        *shares,
        f"A match is more likely right than wrong up to {radius} bits.",
        as_json=json_,
    )


def _some(count: int) -> list[int]:
    """Return about ten distances that show a curve."""
    return sorted({round(part * (count - 1) / 10) for part in range(6)})
