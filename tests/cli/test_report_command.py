"""From a grid on digits to a page."""

from pathlib import Path

import pytest

from proxyhash.cli.app import main


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXYHASH_CACHE", str(tmp_path / "cache"))


def test_page_with_a_gallery(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from proxyhash.models import hasher

    monkeypatch.setattr(hasher, "is_onnx_available", lambda: False)  # spares the seconds of an export
    grid = "--dataset digits --backbone convnet --methods itq,random --bits 8 --epochs 1"
    main(f"benchmark {grid} --models {tmp_path}/models -o {tmp_path}/records".split())
    (model,) = (tmp_path / "models").iterdir()
    main(f"report {tmp_path}/records -o {tmp_path}/report.html --gallery {model}".split())
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "Retrieval examples: random, 8 bits" in page
    assert page.count("data:image/jpeg") == 8 * 11
    for name in ("report.md", "report.csv"):
        main(f"report {tmp_path}/records -o {tmp_path}/{name}".split())
        assert "itq" in (tmp_path / name).read_text()
    assert "2 results are in" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("{} -o report.pdf", "A report is an .html, .md or .csv file, not report.pdf."),
        ("{}/nowhere", "There is no folder"),
        ("{}", "There are no records in"),
    ],
)
def test_mistakes(tmp_path: Path, arguments: str, sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["report", *arguments.format(tmp_path).split()])
    assert sentence in capsys.readouterr().err
