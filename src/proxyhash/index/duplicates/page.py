"""Page of near duplicates: one HTML file with a row of thumbnails for each group."""

import base64
import io
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from PIL import Image

from proxyhash.data.decoding import UnreadableImageError, decode_image
from proxyhash.index.duplicates.keeping import FileInfo
from proxyhash.index.duplicates.report import DuplicateGroup, DuplicateItem, DuplicatesReport
from proxyhash.utils.atomic_io import atomic_write
from proxyhash.utils.text import printable

THUMB_SIZE = 160  # pixels of the longer side, shown at 120
MAX_GROUPS = 200  # that are shown; a page of all thumbnails has about 15 MB then
MAX_ITEMS = 12  # of a group that are shown
_THREADS = 4


@dataclass(frozen=True)
class Card:
    """What the page shows of an item."""

    image_url: str | None
    title: str
    folder: str
    notes: tuple[str, ...]
    """one line each"""
    is_kept: bool


@dataclass(frozen=True)
class GroupRow:
    """What the page shows of a group, and how many of its items it does not show."""

    size: int
    cards: tuple[Card, ...]
    num_hidden: int
    is_capped: bool


def write_page(report: DuplicatesReport, path: Path, title: str, *, max_groups: int = MAX_GROUPS) -> None:
    """Write the groups to one HTML file that needs no network: thumbnails, sizes, distances, and the item to keep.

    Parameters
    ----------
    report
        The groups, the largest first.
    path
        The file to write.
    title
        Name of the index, for the heading.
    max_groups
        Number of groups that are shown; the page states how many are not.

    Examples
    --------
    >>> import tempfile
    >>> from proxyhash.index.duplicates.groups import Thresholds
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_page(DuplicatesReport((), Thresholds(2), None, 9, 9), Path(folder) / "groups.html", "photos.index")
    ...     "no near duplicates" in (Path(folder) / "groups.html").read_text()
    True
    """
    shown = report.groups[:max_groups]
    template = resources.files(__package__).joinpath("page.html.jinja").read_text(encoding="utf-8")
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    with ThreadPoolExecutor(_THREADS) as pool:
        urls = iter(list(pool.map(_thumbnail, (item for group in shown for item in group.items[:MAX_ITEMS]))))
    page = environment.from_string(template).render(
        title=printable(title),
        report=report,
        rule=describe_rule(report),
        rows=[_row(group, urls, report.unit) for group in shown],
        num_hidden=len(report.groups) - len(shown),
    )
    with atomic_write(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def describe_rule(report: DuplicatesReport) -> str:
    """Return what makes two items near, as a phrase.

    >>> from proxyhash.index.duplicates.groups import Thresholds
    >>> describe_rule(DuplicatesReport((), Thresholds(3, 50.0), "steps", 0, 0))
    'codes at most 3 bits apart and refinements at most 50 steps apart'
    """
    limit = report.thresholds.refine_radius
    refined = "" if limit is None else f" and refinements at most {limit:g} {report.unit} apart"
    return f"codes at most {report.thresholds.radius} bits apart{refined}"


def _row(group: DuplicateGroup, urls: Iterator[str | None], unit: str | None) -> GroupRow:
    cards = tuple(_card(item, url, unit) for item, url in zip(group.items[:MAX_ITEMS], urls, strict=False))
    return GroupRow(group.size, cards, group.size - len(cards), group.is_capped)


def _card(item: DuplicateItem, url: str | None, unit: str | None) -> Card:
    folder, _, name = item.key.rpartition("/")
    file = FileInfo() if item.file is None else item.file
    sizes = [f"{file.width} \N{MULTIPLICATION SIGN} {file.height}"] if file.width else []
    sizes += [_kilobytes(file.num_bytes)] if file.num_bytes else []
    refined = "" if item.refinement is None else f", {item.refinement:.0f} {unit}"
    notes = [" · ".join(sizes), "" if item.is_kept else f"{item.distance} bits{refined}", "other index" * item.is_other]
    return Card(url, printable(name), printable(folder), tuple(filter(None, notes)), item.is_kept)


def _kilobytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:.1f} MB" if num_bytes >= 1e6 else f"{num_bytes / 1e3:.1f} kB"


def _thumbnail(item: DuplicateItem) -> str | None:
    """Return a JPEG as a data: URL, None if the item has no image that can be read."""
    if item.path is None or item.row is not None:
        return None
    try:
        image = decode_image(item.path, min_side=THUMB_SIZE)
    except UnreadableImageError:
        return None
    image.thumbnail((THUMB_SIZE, THUMB_SIZE), Image.Resampling.LANCZOS)
    out = io.BytesIO()
    image.save(out, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(out.getvalue()).decode()
