"""Records of `proxyhash evaluate vectors` on the vectors that real_vectors.py writes, and their tables for the page.

python benchmarks/vectors.py cifar100 FOLDER    writes results/vectors/cifar100.json from FOLDER/vectors.npy and labels.npy
python benchmarks/vectors.py --tables           writes the tables of all records to docs/vectors-table.md
"""

import argparse
import datetime
import json
import re
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

from proxyhash.cli.progress import progress_bars
from proxyhash.data.vectors import read_labels, read_vectors
from proxyhash.experiments.vectors import EncodingResult, evaluate_vectors
from proxyhash.experiments.vectors.report import choose, main_k
from proxyhash.utils.atomic_io import atomic_write

RESULTS = Path(__file__).parents[1] / "results" / "vectors"
PAGE = Path(__file__).parents[1] / "docs" / "vectors-table.md"


def record(name: str, folder: Path) -> None:
    git = ["git", "rev-parse", "HEAD"]
    commit = subprocess.run(git, check=True, capture_output=True, text=True, cwd=RESULTS.parent).stdout.strip()
    file = read_vectors(folder / "vectors.npy")
    with progress_bars() as progress:
        report = evaluate_vectors(file.rows(), labels=read_labels(folder / "labels.npy", len(file)), progress=progress)
    content = {name: value for name, value in report.as_dict().items() if name != "advice"}  # it follows from the rows
    content["versions"]["faiss-cpu"] = version("faiss-cpu")
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    with atomic_write(RESULTS / f"{name}.json") as temporary:
        source = {"title": name, "date": today, "commit": commit}
        temporary.write_text(json.dumps({**source, **content}, indent=2) + "\n")


def table(content: dict[str, Any]) -> str:
    """Return the rows of a record as a table in Markdown."""
    ks = list(content["rows"][0]["recall"])
    lines = [" | ".join(["encoding", "bytes per item", *(f"recall@{k}" for k in ks), "mAP"])]
    lines.append("|".join(["---", *["---:"] * (len(ks) + 2)]))
    for row in content["rows"]:
        title = row["name"] if row["bits"] is None else f"{row['name']}, {row['bits']} bits"
        numbers = [f"{value:.3f}" for value in (*row["recall"].values(), row["map"])]
        lines.append(" | ".join([title, f"{row['bytes_per_item']:,}", *numbers]))
    return "\n".join(f"| {line} |" if "---" not in line else f"|{line}|" for line in lines)


def advice(content: dict[str, Any]) -> list[str]:
    """Return what the rows of a record advise."""
    recalls = [{int(k): value for k, value in row["recall"].items()} for row in content["rows"]]
    rows = [EncodingResult(**{**row, "recall": recall}) for row, recall in zip(content["rows"], recalls, strict=True)]
    return choose(rows, main_k(list(recalls[0])))


def fill(page: Path) -> None:
    """Replace what follows each mark `<!-- table: NAME -->`, up to the next heading, by the table and the advice."""

    def filled(mark: re.Match[str]) -> str:
        content = json.loads((RESULTS / f"{mark[1]}.json").read_text(encoding="utf-8"))
        return f"{mark[0].splitlines()[0]}\n\n{table(content)}\n\n" + "\n".join(advice(content)) + "\n"

    text = page.read_text(encoding="utf-8")
    new = re.sub(r"<!-- table: (\w+) -->\n(?:(?!## ).*\n)*", lambda mark: filled(mark) + "\n", text)
    with atomic_write(page) as temporary:
        temporary.write_text(new.rstrip() + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?")
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--tables", action="store_true")
    options = parser.parse_args()
    if options.tables:
        fill(PAGE)
    elif options.folder is None:
        parser.error("give a name and a folder, or --tables")
    else:
        record(options.name, options.folder)


if __name__ == "__main__":
    main()
