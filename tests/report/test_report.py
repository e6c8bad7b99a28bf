import csv
import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from helpers.records import PROXIES, RECORDS, make_record
from proxyhash.data import get_protocol
from proxyhash.experiments import Record
from proxyhash.methods import list_methods, parse_method
from proxyhash.report import compare, to_csv, to_markdown, write_page
from proxyhash.report.comparison import paper_row
from proxyhash.report.figures import draw_figures, paper_precision_rows, plot_precision
from proxyhash.report.gallery import Gallery, Thumb
from proxyhash.report.paper import paper_tables, paper_value


def test_cells_hold_mean_std_and_the_papers_number() -> None:
    (comparison,) = compare(RECORDS)
    assert comparison.title == "cifar100: cifar100-paper@1, frozen convnet"
    assert comparison.code_lengths == [16, 32]
    assert list(comparison.rows) == ["lsh", "shclm", "shclm:triplet=1"]
    cell = comparison.cell("shclm", 16, "map")
    assert cell is not None
    assert (cell.mean, cell.std, cell.count) == pytest.approx((71.0, 2**0.5, 2))
    assert (cell.paper, cell.difference) == pytest.approx((71.1, -0.1))
    joint = comparison.cell("shclm:triplet=1", 32, "map")
    assert joint is not None
    assert joint.paper == 76.1
    assert joint.std is None
    assert comparison.cell("shclm:triplet=1", 16, "map") is None
    assert comparison.rows_with("accuracy") == ["shclm", "shclm:triplet=1"]
    assert comparison.best(16, "binarization_error") == pytest.approx(0.05)


def test_records_of_other_protocols_or_networks_are_other_comparisons() -> None:
    other = make_record("itq", 16, 0.1, protocol={"protocol": "cifar100-paper", "version": 1, "eval_on": "validation"})
    network = make_record("itq", 16, 0.1, data={**RECORDS[0].data, "finetune": True, "image_size": 112})
    titles = [comparison.title for comparison in compare([*RECORDS, other, network])]
    assert titles == [
        "cifar100: cifar100-paper@1, fine-tuned convnet at 112 pixels",
        "cifar100: cifar100-paper@1, frozen convnet",
        "cifar100: cifar100-paper@1, frozen convnet, evaluated on validation data",
    ]
    (validation,) = compare([other])
    cell = validation.cell("itq", 16, "map")
    assert cell is not None
    assert cell.paper is None, "the paper took the test"


def nuswide(
    label: str, value: float, denominator: str | None, others: dict[str, float] | None = None, seed: int = 0
) -> Record:
    """Return a record of NUS-WIDE; without a denominator, one that was made before there were several."""
    protocol = {"protocol": "nuswide-paper", "version": 1, "eval_on": "test", "top": 50_000}
    protocol |= {} if denominator is None else {"denominator": denominator}
    recorded = {f"mAP@50000[{name}] [ties expected]": other for name, other in (others or {}).items()}
    recorded |= {"mAP@50000[retrieved] [ties worst]": 0.01}
    data = {**RECORDS[0].data, "name": "nuswide", "tags": 21}
    return make_record(label, 16, value, seed, data=data, protocol=protocol, metrics={"all": recorded})


def test_each_denominator_is_a_metric_of_its_own() -> None:
    old = nuswide("shclm", 0.60, None)
    new = nuswide("shclm", 0.80, "retrieved", {"retrieved": 0.80, "relevant": 0.61, "capped": 0.66}, seed=1)
    (comparison,) = compare([old, new])
    assert comparison.main_metric == "map@50000[retrieved]"
    assert comparison.metrics == [f"map@50000[{name}]" for name in ("retrieved", "relevant", "capped")]
    cells = [comparison.cell("shclm", 16, metric) for metric in comparison.metrics]
    assert [(round(cell.mean, 6), cell.count) for cell in cells if cell] == [(80.0, 1), (60.5, 2), (66.0, 1)]
    assert [cell.paper for cell in cells if cell] == [79.3, None, None], "the paper is read as retrieved"
    text = to_markdown([comparison])
    assert r"mAP@50000\[relevant\], %" in text
    assert comparison.cell("shclm", 16, "map") is None, "without a cutoff there is no record"


def test_old_records_with_a_cutoff_are_reported_as_relevant() -> None:
    (comparison,) = compare([nuswide("itq", 0.40, None), nuswide("lsh", 0.30, None)])
    assert comparison.metrics == ["map@50000[relevant]"]
    assert list(comparison.rows) == ["lsh", "itq"]
    assert "map@50000[relevant]" in to_csv([comparison])


def test_trial_that_was_evaluated_by_two_denominators_counts_once() -> None:
    values = {"retrieved": 0.80, "relevant": 0.61, "capped": 0.66}
    both = [nuswide("shclm", values[name], name, values) for name in ("relevant", "retrieved")]
    (comparison,) = compare(both)
    for name, value in values.items():
        cell = comparison.cell("shclm", 16, f"map@50000[{name}]")
        assert cell is not None
        assert cell.mean == pytest.approx(100 * value)
        assert (cell.std, cell.count) == (None, 1)


def test_differing_settings_make_several_rows() -> None:
    short, long = (
        {**make_record("shclm", 32, 0.5).trial, "optim": {"epochs": epochs, "seed": epochs}} for epochs in (3, 12)
    )
    shared = {**short, "code_lengths": [16, 32]}
    records = [
        make_record("shclm", 32, 0.7, trial=long),
        make_record("shclm", 32, 0.5, trial=short),
        make_record("shclm", 32, 0.6, trial=shared),
    ]
    (comparison,) = compare([*records, make_record("lsh", 32, 0.1)])
    assert list(comparison.rows) == [
        "lsh",
        "shclm (epochs 3, trained alone)",
        "shclm (epochs 3, trained for [16, 32] bits at once)",
        "shclm (epochs 12, trained alone)",
    ]
    assert [cell.count for label in comparison.rows if (cell := comparison.cell(label, 32, "map"))] == [1, 1, 1, 1]


def test_the_papers_numbers() -> None:
    assert paper_value("cifar100", "cifar100-paper", "map", "shclm", 64) == 78.0
    assert paper_value("cifar100", "transfer", "classification", "shclm+triplet", 16) == 44.9
    assert paper_value("cifar10", "cifar10-paper", "map", "dqn", 16) is None
    assert paper_value("cifar10", "cifar10-paper", "map", "hbmp-regress", 48) == 94.6, "by weighted Hamming distances"
    assert paper_value("cifar10", "cifar10-paper", "map", "hbmp", 48) is None
    assert paper_value("nuswide", "nuswide-paper", "map@50000[retrieved]", "hbmp", 16) == 74.6
    assert paper_value("mine", "transfer", "map", "shclm", 16) is None, "any set has the protocol, the paper has one"
    assert paper_value("cifar100", "cifar100-paper", "map", "shclm", 24) is None
    for table in paper_tables():
        assert all(len(row) == len(table.bits) for row in table.rows.values())
        if table.metric.startswith("map"):
            protocol = get_protocol(table.protocol, table.data or table.protocol.partition("-")[0])
            assert table.metric == protocol.map_name.replace("mAP", "map")
    ours = {row.removesuffix("+triplet") for table in paper_tables() for row in table.rows}
    assert {"lsh", "itq", "shclm"} <= ours & set(list_methods())


def test_settings_tuned_per_fold_make_one_row() -> None:
    trial = make_record("shclm", 32, 0.5).trial
    tuned = [
        make_record("shclm", 32, 0.5 + number / 10, trial={**trial, "fold": number, "settings": {"tau": 4.0 + number}})
        for number in (0, 1)
    ]
    (comparison,) = compare(tuned)
    assert list(comparison.rows) == ["shclm"]
    cell = comparison.cell("shclm", 32, "map")
    assert cell is not None
    assert (cell.count, round(cell.mean, 6)) == (2, 55.0)
    other = make_record("shclm", 32, 0.4, trial={**trial, "fold": 1, "settings": {"tau": 4.0}})
    (comparison,) = compare([*tuned, other])
    assert list(comparison.rows) == ["shclm (tau 4.0)", "shclm (tau 5.0)"], "within a round it is another way"


def test_joint_loss_has_its_own_row_in_the_paper() -> None:
    assert paper_row(RECORDS[-1].trial) == "shclm+triplet"
    assert paper_row(RECORDS[0].trial) == "lsh"
    other = {**RECORDS[-1].trial, "settings": {"loss": "bits"}}
    assert paper_row(other) == "shclm:loss=bits", "the paper has no number for it"


def test_markdown_shows_the_best_in_bold() -> None:
    text = to_markdown(compare(RECORDS))
    assert "| lsh | 3.0 (paper 3.4) | 5.0 (paper 4.7) |" in text
    assert "| shclm | **71.0 ± 1.4** (paper 71.1) | **76.0** (paper 75.6) |" in text
    assert "| shclm:triplet=1 |  | 74.0 (paper 76.1) |" in text
    assert to_markdown(compare([make_record("a|b*c", 16, 0.5)])).count(r"a\|b\*c") == 1


def test_csv_has_a_line_per_cell_and_no_formula() -> None:
    evil = make_record("=HYPERLINK(1)", 16, 0.5, data={**RECORDS[0].data, "name": "@sum"})
    rows = list(csv.DictReader(io.StringIO(to_csv(compare([*RECORDS, evil])))))
    assert {row["method"] for row in rows} == {"lsh", "shclm", "shclm:triplet=1", "'=HYPERLINK(1)"}
    assert not any(value.startswith(("=", "+", "@")) for row in rows for value in row.values())
    cell = next(row for row in rows if (row["method"], row["bits"], row["metric"]) == ("shclm", "16", "map"))
    assert (float(cell["mean"]), float(cell["std"]), cell["runs"], cell["paper"]) == (71.0, 1.41421, "2", "71.1")


class Elements(HTMLParser):
    """Collects what a page is made of, and checks that it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.sources: list[str] = []
        self.tags: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in ("meta", "img", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def page(tmp_path: Path) -> Elements:
    nasty = make_record("<img onerror=alert(1)>", 16, 0.4, data={**RECORDS[0].data, "name": "<script>x</script>"})
    query = Thumb("data:image/jpeg;base64,AAAA", "<b>cat</b>")
    found = Gallery("shclm, 32 bits", ((query, Thumb("data:image/jpeg;base64,AAAA", "dog", 3, is_relevant=False)),))
    write_page(compare([*RECORDS, nasty]), tmp_path / "report.html", title="A & B", galleries=[found])
    elements = Elements()
    elements.feed((tmp_path / "report.html").read_text(encoding="utf-8"))
    return elements


def test_page_needs_no_network_and_runs_no_script(page: Elements) -> None:
    assert page.open == []
    assert all(re.match(r"data:image/(svg\+xml|jpeg);base64,|#", source) for source in page.sources)
    assert "script" not in page.tags
    assert "<script>x</script>" in page.text, "it is shown, not run"
    assert "<img onerror=alert(1)>" in page.text
    assert "<b>cat</b>" in page.text
    assert "A & B" in page.text


def test_page_shows_tables_figures_and_galleries(page: Elements) -> None:
    text = " ".join(page.text.split())
    assert "71.0 ± 1.4 paper 71.1 (-0.1)" in text
    for caption in ("mAP by code length", "Distance of each proxy to its nearest", "Weights of the proxies, 32 bits"):
        assert caption in text
    assert page.tags.count("img") == 6 + 2 + 2, "six figures of the one, two of the other, two in the gallery"
    assert "3 bits, wrong" in text
    assert '"versions"' in text


def test_map_is_plotted_against_the_geometry_of_proxies() -> None:
    floors = {"hclm": (4.0, None), "code": (6.0, None), "shclm": (4.0, 0.3), "scode": (6.0, 0.2), "joint": (5.0, 0.7)}
    records = [
        make_record(label, 16, 0.6, metrics={"map": 0.6, "all": {}, "proxies": _geometry(distance, correlation)})
        for label, (distance, correlation) in floors.items()
    ]
    captions = [caption for caption, _ in draw_figures(*compare(records))]
    assert "mAP by the minimum distance of proxies" in captions
    assert "mAP by the correlation of class and proxy similarity" in captions
    fewer = [caption for caption, _ in draw_figures(*compare(records[:2]))]
    assert not [caption for caption in fewer if caption.startswith("mAP by the")], "two points show no relation"


def test_precision_on_unseen_classes_has_the_rows_of_the_papers_figure() -> None:
    labels = ("lsh", "hclm", "shclm", "triplet", "shclm:triplet=1", "shclm:loss=bits", "shclm:paper")
    values = dict(zip(labels, (0.1, 0.4, 0.5, 0.6, 0.7, 0.8, 0.3), strict=True))

    def records(bits: tuple[int, ...], **metrics: float) -> list[Record]:
        made = [make_record(label, each, values[label], metrics=metrics) for label in labels for each in bits]
        return [replace(each, trial={**each.trial, "settings": parse_method(each.trial["label"])[1]}) for each in made]

    (unseen,) = compare(records((16, 32, 64), classification=0.5))
    rows = paper_precision_rows(unseen)
    assert rows == ["shclm:triplet=1", "triplet", "shclm", "hclm", "shclm:paper"]
    axes = Figure().subplots()
    plot_precision(axes, unseen, 32, rows)
    assert [line.get_label() for line in axes.lines] == rows
    assert [np.asarray(line.get_xdata()).tolist() for line in axes.lines] == [[1, 10, 100]] * len(rows)
    assert [np.asarray(line.get_ydata())[0] for line in axes.lines] == pytest.approx([100 * values[row] for row in rows])
    assert axes.get_xscale() == "log", "or the first items cannot be told apart"
    caption = "Precision by retrieved items, unseen classes, 32 bits: the rows of the paper's figure"
    assert caption in [title for title, _ in draw_figures(unseen)]
    (seen,) = compare(records((16, 32)))
    assert paper_precision_rows(seen) == []
    assert not [title for title, _ in draw_figures(seen) if "unseen" in title]


@pytest.mark.parametrize(
    ("lengths", "curves", "histograms"),
    [((16, 32, 64), 32, 64), ((16, 24, 32, 48), 32, 48), ((32, 64, 128), 32, 64), ((16,), 16, 16)],
)
def test_figures_are_drawn_at_the_code_lengths_of_the_paper(lengths: tuple[int, ...], curves: int, histograms: int) -> None:
    captions = [
        title for title, _ in draw_figures(*compare([make_record("shclm", n, 0.5, metrics=PROXIES) for n in lengths]))
    ]
    assert f"Precision by retrieved items, {curves} bits" in captions
    assert f"Precision by recall, {curves} bits" in captions
    (error,) = (title for title in captions if title.startswith("Binarization error"))
    (weights,) = (title for title in captions if title.startswith("Weights"))
    assert error == f"Binarization error of queries, {histograms} bits, of methods whose outputs are between -1 and 1"
    assert weights.startswith(f"Weights of the proxies, {histograms} bits; learned proxies, of any norm, are scaled to √d")


def test_values_that_a_row_has_as_tuned_make_one_row() -> None:
    label = "shclm:triplet=tuned"
    by_bits = {
        bits: {**make_record(label, bits, 0.5).trial, "settings": {"triplet": weight, "tau": 0.5}}
        for bits, weight in ((16, 10.0), (32, 1.0))
    }
    tuned = [make_record(label, bits, 0.5, trial=trial) for bits, trial in by_bits.items()]
    (comparison,) = compare(tuned)
    assert list(comparison.rows) == [label]
    assert paper_row(tuned[0].trial) == "shclm+triplet"
    other = {**by_bits[16], "settings": {"triplet": 1.0, "tau": 0.5}}
    (comparison,) = compare([*tuned, make_record(label, 16, 0.4, trial=other)])
    assert list(comparison.rows) == [f"{label} (triplet 1.0)", f"{label} (triplet 10.0)"], "two values at one length"
    plain = [replace(each, trial={**each.trial, "label": "shclm"}) for each in tuned]
    assert len(compare(plain)[0].rows) == 2, "a row whose name does not say so"


def _geometry(distance: float, correlation: float | None) -> dict[str, object]:
    assignment = None if correlation is None else {"correlation": correlation}
    return {"min_distance": distance, "nearest_mean": distance, "assignment": assignment}


def test_stale_rows_are_marked() -> None:
    stale = make_record("itq", 16, 0.5)
    records = [*RECORDS, replace(stale, stale="computed with another rounding")]
    (comparison,) = compare(records)
    assert r"| itq \(stale\) | 50.0" in to_markdown([comparison])
    rows = csv.DictReader(io.StringIO(to_csv([comparison])))
    assert {row["stale"] for row in rows if row["method"] == "itq"} == {"computed with another rounding"}
