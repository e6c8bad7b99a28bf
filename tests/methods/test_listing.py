"""The list of systems: what the documentation says is what the registry knows."""

from pathlib import Path

from proxyhash.methods import get_method, list_methods

PAGE = Path(__file__).parents[2] / "docs" / "methods.md"
SYSTEMS = "subic dqn softmax-pq hbmp adsh ninh drsch dsrh mihash talr-ap cnnh dsdh dpn greedyhash hashnet".split()


def test_the_page_lists_every_system_as_it_is() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines if line.startswith("| `")]
    assert {row[0] for row in rows} == set(list_methods())
    for name, title, family, year, learns_from, searches in rows:
        found = get_method(name)
        known = (found.title, found.family, str(found.year), found.learns_from, found.metric)
        assert (title, family, year, learns_from, searches) == known


def test_the_second_half_is_there_and_takes_what_it_should() -> None:
    assert set(SYSTEMS) <= set(list_methods())
    for name in ("dsdh", "drsch", "dsrh", "hbmp", "hbmp-regress"):
        assert get_method(name).learns_from == "classes or tags"
