"""`proxyhash report`: tables and figures of records."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from proxyhash.cli.output import print_result
from proxyhash.cli.parameters import Json
from proxyhash.cli.progress import progress_bars
from proxyhash.utils.atomic_io import atomic_write, check_writable
from proxyhash.utils.errors import InputError


def report(
    results: Path | None = None,
    /,
    *,
    fill: tuple[Path, ...] = (),
    output: Annotated[Path, Parameter(alias="-o")] = Path("report.html"),
    title: str = "Comparison of hashing methods",
    gallery: tuple[Path, ...] = (),
    data_dir: Path | None = None,
    json_: Json = False,
) -> None:
    """Show records as tables and figures beside the paper's numbers: one page that needs no network.

    The suffix of the output decides the format: .html, .md or .csv. --fill updates the tables of a Markdown file, wherever
    it has these comments:

      <!-- records results/mine metrics=map,accuracy rows=lsh,itq,shclm -->
      <!-- end of records -->

    Parameters
    ----------
    results
        A folder of `proxyhash benchmark`; folders inside it are read too. Without it, the page has galleries only.
    fill
        Markdown files whose tables are updated, instead of a report.
    output
        The file to write.
    title
        Of the page.
    gallery
        Models whose retrieval examples are shown on the page.
    data_dir
        The first place to look for the data sets of these models.
    json_
        Print the file and the number of results as JSON.
    """
    from proxyhash.experiments import read_records
    from proxyhash.report import compare, to_csv, to_markdown, write_page
    from proxyhash.report.gallery import load_gallery

    if fill:
        changed = {str(file): _fill(file) for file in fill}
        said = (f"The tables of {file} are {'updated' if new else 'unchanged'}." for file, new in changed.items())
        print_result({"changed": changed}, *said, as_json=json_)
        return
    writers = {".md": to_markdown, ".csv": to_csv}
    if output.suffix not in {*writers, ".html"}:
        raise InputError(f"A report is an .html, .md or .csv file, not {output}.")
    check_writable(output)
    if results is None and (not gallery or output.suffix in writers):
        raise InputError("Say whose results: a folder of records, or models with --gallery for a page of pictures.")
    if results is not None and not results.is_dir():
        raise InputError(f"There is no folder {results}.")
    comparisons = [] if results is None else compare(read_records(results))
    if results is not None and not comparisons:
        raise InputError(f"There are no records in {results}; proxyhash benchmark makes them.")
    if output.suffix == ".html":
        with progress_bars() as progress:
            galleries = [load_gallery(model, data_dir=data_dir, progress=progress) for model in gallery]
        write_page(comparisons, output, title=title, galleries=galleries)
    else:
        with atomic_write(output) as temporary:
            temporary.write_text(writers[output.suffix](comparisons), encoding="utf-8")
    count = sum(len(comparison.records) for comparison in comparisons)
    facts = {"report": str(output), "results": count, "galleries": len(gallery)}
    print_result(facts, f"{count:,} results are in {output}." if count else f"The pictures are in {output}.", as_json=json_)


def _fill(file: Path) -> bool:
    """Update the tables of a Markdown file, and return whether that changed it."""
    from proxyhash.report.markdown_tables import fill_tables

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"Cannot read {file}: {error}.") from error
    filled = fill_tables(text, file.parent)
    if filled != text:
        with atomic_write(file) as temporary:
            temporary.write_text(filled, encoding="utf-8")
    return filled != text
