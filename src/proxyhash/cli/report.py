"""`proxyhash report`: records as a page that people look at."""

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

    The name of the output says what is written: .html, .md or .csv. With --fill, tables in a Markdown file of one's own are
    made anew, wherever it says:

      <!-- records results/mine metrics=map,accuracy rows=lsh,itq,shclm -->
      <!-- end of records -->

    Parameters
    ----------
    results
        A folder of records that `proxyhash benchmark` made; folders inside it count too. Without one, the page shows
        galleries only.
    fill
        Markdown files to make the tables of anew, instead of a report.
    output
        The file to write.
    title
        Of the page.
    gallery
        Models whose retrievals are shown as pictures, on the page.
    data_dir
        Where to look for the data sets of those models.
    json_
        Print JSON: what was written, and how many results are in it.
    """
    from proxyhash.experiments import read_records
    from proxyhash.report import compare, to_csv, to_markdown, write_page
    from proxyhash.report.gallery import load_gallery

    if fill:
        changed = {str(file): _filled(file) for file in fill}
        said = (f"The tables of {file} are {'made anew' if new else 'as they were'}." for file, new in changed.items())
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


def _filled(file: Path) -> bool:
    """Make the tables of a Markdown file anew, and return whether that changed it."""
    from proxyhash.report.markdown_tables import fill_tables

    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"Cannot read {file}: {error}.") from error
    made = fill_tables(text, file.parent)
    if made != text:
        with atomic_write(file) as temporary:
            temporary.write_text(made, encoding="utf-8")
    return made != text
