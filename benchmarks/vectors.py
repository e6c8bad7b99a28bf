"""Records of `proxyhash evaluate vectors` on the vectors that real_vectors.py writes, and their tables for the page.

python benchmarks/vectors.py NAME FOLDER            writes results/vectors/NAME.json from FOLDER/vectors.npy and labels.npy
python benchmarks/vectors.py NAME FOLDER --codes    measures the codes again, and keeps the other encodings of the record
python benchmarks/vectors.py --tables               writes the tables of all records to docs/vectors-table.md
"""

import argparse
import datetime
import json
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

from proxyhash.cli.progress import progress_bars
from proxyhash.data.vectors import read_labels, read_vectors
from proxyhash.experiments.vectors import EncodingResult, VectorEvalConfig, evaluate_vectors
from proxyhash.experiments.vectors.report import choose, main_k
from proxyhash.utils.atomic_io import atomic_write

RESULTS = Path(__file__).parents[1] / "results" / "vectors"
PAGE = Path(__file__).parents[1] / "docs" / "vectors-table.md"
BASELINES = ("PQ", "OPQ", "RaBitQ", "PCA + RaBitQ", "int8", "float16", "float32")
MAX_DIFFERENCE = 0.005  # of the recall@10 of a code that is measured again; more shows that the vectors are others


def record(name: str, folder: Path) -> None:
    """Measure all encodings."""
    _write(name, {"title": name, **_measure(folder, VectorEvalConfig())})


def record_codes(name: str, folder: Path) -> None:
    """Measure the codes again; the other rows, and with what they were measured, stay."""
    content = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    new = _measure(folder, VectorEvalConfig(baselines=False))
    if content["data"] != new["data"]:
        sys.exit(f"{folder} has other vectors than the record: {new['data']} instead of {content['data']}.")
    before = {(row["name"], row["bits"]): row for row in content["rows"]}
    for row in new["rows"]:
        old = before.get((row["name"], row["bits"]), row)
        if abs(row["recall"]["10"] - old["recall"]["10"]) > MAX_DIFFERENCE:
            sys.exit(f"{row['name']} keeps {row['recall']['10']:.4f}, and in the record {old['recall']['10']:.4f}.")
    rows = [row for row in content["rows"] if row["name"] in BASELINES] + new["rows"]
    content["rows"] = sorted(rows, key=lambda row: (row["bytes_per_item"], -row["recall"]["10"]))
    content["codes"] = {key: new[key] for key in ("date", "commit", "versions", "machine")}
    _write(name, content)


def _measure(folder: Path, config: VectorEvalConfig) -> dict[str, Any]:
    file = read_vectors(folder / "vectors.npy")
    with progress_bars() as progress:
        labels = read_labels(folder / "labels.npy", len(file))
        report = evaluate_vectors(file.rows(), labels=labels, config=config, progress=progress)
    content = {name: value for name, value in report.as_dict().items() if name != "advice"}  # it follows from the rows
    content["versions"]["faiss-cpu"] = version("faiss-cpu")
    git = ["git", "rev-parse", "HEAD"]
    commit = subprocess.run(git, check=True, capture_output=True, text=True, cwd=RESULTS.parent).stdout.strip()
    return {"date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(), "commit": commit, **content}


def _write(name: str, content: dict[str, Any]) -> None:
    with atomic_write(RESULTS / f"{name}.json") as temporary:
        temporary.write_text(json.dumps(content, indent=2) + "\n")


def table(content: dict[str, Any]) -> str:
    """Return the rows of a record as a table in Markdown."""
    ks = list(content["rows"][0]["recall"])
    lines = [" | ".join(["encoding", "bytes per item", *(f"recall@{k}" for k in ks), "mAP"])]
    lines.append("|".join(["---", *["---:"] * (len(ks) + 2)]))
    for row in content["rows"]:
        title = row["name"] if row["bits"] is None else f"{row['name']}, {row['bits']} bits"
        numbers = ["" if value is None else f"{value:.3f}" for value in (*row["recall"].values(), row["map"])]
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
    parser.add_argument("--codes", action="store_true", help="keep the other encodings of the record")
    parser.add_argument("--tables", action="store_true")
    options = parser.parse_args()
    if options.tables:
        fill(PAGE)
    elif options.folder is None:
        parser.error("give a name and a folder, or --tables")
    elif options.codes:
        record_codes(options.name, options.folder)
    else:
        record(options.name, options.folder)


if __name__ == "__main__":
    main()
