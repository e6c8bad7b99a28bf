"""Status page: which recipe was run, on which data, when and how often, and which never was."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from proxyhash.data.protocols.registry import default_protocol_of
from proxyhash.experiments import Grid, Record
from proxyhash.experiments.recipes import list_recipes
from proxyhash.experiments.records import RecordStore, record_folders
from proxyhash.report.comparison import describe_network
from proxyhash.report.provenance import NOT_RECORDED, describe_dates, describe_machine
from proxyhash.utils.markdown import escape_markdown

_RUN_COLUMNS = ("bits", "seeds", "folds", "commit", "date", "stale rows", "folder")
_NEVER = "**never run on the real data**"
_HEAD = """# Status of the results

`proxyhash records status results -o docs/status.md` writes this page from the records in `results/`, and a test checks
that it is current. "Not recorded" means that the record was written before records had a date and a commit. A commit with
a + had changes that were not committed. A row is stale if its method was changed after the measurement;
[results](results.md) marks these rows.
"""


@dataclass(frozen=True)
class Run:
    """Records of one folder: of a recipe, or of everything in it."""

    folder: str
    data: str
    protocol: str
    rows: int
    bits: tuple[int, ...]
    seeds: tuple[int, int]  # of the rows with the fewest, and with the most
    folds: int
    commits: tuple[str, ...]
    dates: str
    stale: int  # rows

    @classmethod
    def of(cls, folder: str, records: Sequence[Record]) -> "Run":
        """Return the run of some records."""
        first = records[0]
        seeds: dict[tuple[str, int], set[int]] = {}
        for record in records:
            seeds.setdefault((record.trial["label"], record.bits), set()).add(record.trial["seed"])
        counts = [len(each) for each in seeds.values()]
        return cls(
            folder,
            _describe_data(first.data),
            first.protocol["protocol"] + (" on validation data" if first.protocol["eval_on"] == "validation" else ""),
            len({record.trial["label"] for record in records}),
            tuple(sorted({record.bits for record in records})),
            (min(counts), max(counts)),
            len({record.trial["fold"] for record in records}),
            tuple(sorted({record.commit or NOT_RECORDED for record in records})),
            describe_dates(records),
            len({record.trial["label"] for record in records if record.stale_reason}),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, for JSON."""
        return asdict(self)

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the columns that all tables of runs have."""
        lengths = ", ".join(map(str, self.bits))
        seeds = " to ".join(map(str, dict.fromkeys(self.seeds)))
        return lengths, seeds, str(self.folds), ", ".join(self.commits), self.dates, str(self.stale), f"`{self.folder}`"


def recipe_runs(results: Path) -> dict[str, Run | None]:
    """Return the run of each recipe by name: in the folder with most of its records; None if it was never run.

    Parameters
    ----------
    results
        A folder of records; folders inside it are read too.

    Returns
    -------
    dict[str, Run or None]

    Examples
    --------
    >>> recipe_runs(Path("no-such-folder"))["cifar10"] is None
    True
    """
    folders = {_name(folder, results): RecordStore(folder).read() for folder in record_folders(results)}
    runs: dict[str, Run | None] = {}
    for name, path in list_recipes().items():
        grid = Grid.from_toml(path)
        found = {folder: [record for record in records if _is_of(record, grid)] for folder, records in folders.items()}
        best = max(found, key=lambda folder: len(found[folder]), default="")
        runs[name] = Run.of(best, found[best]) if best and found[best] else None
    return runs


def status_page(results: Path) -> str:
    """Return the page in Markdown: recipes, other records, and benchmarks.

    Parameters
    ----------
    results
        A folder of records; folders inside it are read too.

    Returns
    -------
    str

    Examples
    --------
    >>> "| `cifar10` | cifar10, cifar10-paper | **never run" in status_page(Path("no-such-folder"))
    True
    """
    tables = (_recipes(results), _other_records(results), _benchmarks(results))
    return "\n".join([_HEAD, *(line for table in tables for line in table)])


def _recipes(results: Path) -> Iterator[str]:
    yield from ("## Recipes\n", "`proxyhash reproduce NAME` runs a recipe. Learning rates may be tuned ones.\n")
    yield from _header("recipe", "data and protocol", "rows", *_RUN_COLUMNS)
    for name, run in recipe_runs(results).items():
        grid = Grid.from_toml(list_recipes()[name])
        if run is None:
            where = f"{grid.dataset}, {grid.protocol or 'default protocol'}"
            yield _row(f"`{name}`", where, _NEVER, *[""] * len(_RUN_COLUMNS))
        else:
            where = f"{run.data}, {run.protocol}"
            yield _row(f"`{name}`", where, f"{run.rows} of {len(grid.methods)}", *run.cells())
    yield ""


def _other_records(results: Path) -> Iterator[str]:
    yield "## All folders of records\n"
    yield from _header("data and protocol", "rows", *_RUN_COLUMNS)
    for folder in record_folders(results):
        run = Run.of(_name(folder, results), RecordStore(folder).read())
        yield _row(f"{run.data}, {run.protocol}", str(run.rows), *run.cells())
    yield ""


def _benchmarks(results: Path) -> Iterator[str]:
    yield "## Benchmarks\n"
    yield from _header("record", "what", "machine", "commit", "date")
    for path in sorted(results.rglob("*.json")):
        made = json.loads(path.read_text(encoding="utf-8"))
        title, commit, date = (made.get(name) for name in ("title", "commit", "date"))
        where = describe_machine(made.get("machine", {})), commit or NOT_RECORDED, date or NOT_RECORDED
        yield _row(f"`{_name(path, results)}`", escape_markdown(title or path.stem.replace("-", " ")), *where)
    yield ""


def _is_of(record: Record, grid: Grid) -> bool:
    """Return whether a record is of a recipe: all settings agree, except for those that are tuned."""
    data, trial, optim = record.data, record.trial, {name: value for name, value in grid.optim.items() if name != "lr"}
    same = all(data[name] == getattr(grid, name) for name in ("backbone", "image_size"))
    same = same and _trains_same_stages(data["finetune"], grid.finetune)
    same = same and data["name"] == grid.dataset and data.get("pretrained", True) == grid.pretrained
    same = same and grid.tags in (None, data["tags"])  # an option of recipes for tags
    protocol = grid.protocol or default_protocol_of(grid.dataset, has_tags=data["tags"] is not None)
    same = same and record.protocol["protocol"] == protocol and record.protocol["eval_on"] == grid.eval_on
    same = same and trial["label"] in grid.methods and record.bits in grid.bits and trial["fold"] in grid.folds
    return same and all((trial["optim"] or optim).get(name) == value for name, value in optim.items())


def _trains_same_stages(recorded: bool | int, wanted: bool | int | str) -> bool:
    """Return whether a record trained of the backbone what a recipe says; records have the number that "last" stands for."""
    is_partial = not isinstance(recorded, bool)
    if wanted == "last":
        return is_partial
    return recorded == wanted and isinstance(wanted, bool) is not is_partial  # in Python, True equals one upper stage


def _describe_data(data: dict[str, Any]) -> str:
    tags = f" with {data['tags']} tags" if data["tags"] else ""
    size = f" at {data['image_size']} pixels" if data["image_size"] else ""
    return f"{data['name']}{tags}, {describe_network(data)}{size}"


def _name(path: Path, results: Path) -> str:
    return (Path(results.name) / path.relative_to(results)).as_posix()


def _header(*titles: str) -> tuple[str, str]:
    return _row(*titles), "|" + "---|" * len(titles)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"
