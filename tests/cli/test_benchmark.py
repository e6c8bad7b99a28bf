"""Comparing methods by the command a person types."""

import json
from pathlib import Path

import pytest

from proxyhash.cli.app import main
from proxyhash.experiments import Grid, recipes

DIGITS = "benchmark --dataset digits --backbone convnet --bits 8"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROXYHASH_CACHE", str(tmp_path / "cache"))


def test_table_has_the_standard_deviation_over_seeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = f"{DIGITS} --methods lsh,itq:iterations=5 --seeds 2 -o {tmp_path}/records".split()
    main(command)
    first = capsys.readouterr()
    lines = first.out.splitlines()
    assert lines[0] == "mAP in %, digits: holdout@1, frozen convnet"
    assert lines[1].split() == ["method", "8", "bits"]
    assert [line.split()[0] for line in lines[2:]] == ["lsh", "itq:iterations=5"]
    assert all("±" in line for line in lines[2:])
    assert first.err.count("mAP 0.") == 4
    main(command)
    again = capsys.readouterr()
    assert (again.out, again.err) == (first.out, "")


def test_folds_are_tuned_one_by_one_and_make_one_row(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = "--dataset digits --backbone convnet --bits 8 --protocol transfer --folds 0,1 --methods itq-cca"
    main(f"tune {asked} -o {tmp_path}/tuning".split())
    said = capsys.readouterr().out
    assert [line.split(":")[0] for line in said.splitlines()] == [
        "chosen-fold-0.toml",
        "itq-cca",
        "chosen-fold-1.toml",
        "itq-cca",
        f"Use it with --tuned {tmp_path}/tuning",
    ]
    main(f"tune {asked} --json -o {tmp_path}/tuning".split())
    assert json.loads(capsys.readouterr().out)["chosen"].keys() == {"chosen-fold-0.toml", "chosen-fold-1.toml"}
    main(f"benchmark {asked} --tuned {tmp_path}/tuning -o {tmp_path}/records".split())
    _, _, row = capsys.readouterr().out.splitlines()
    assert row.startswith("itq-cca ")
    assert "±" in row
    with pytest.raises(SystemExit):
        main(f"benchmark {asked.replace('0,1', '0,2')} --tuned {tmp_path}/tuning -o {tmp_path}/records".split())
    assert "chosen-fold-2.toml: No such file or directory." in capsys.readouterr().err


def test_options_override_a_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recipe = tmp_path / "mine.toml"
    recipe.write_text('dataset = "digits"\nbackbone = "convnet"\nmethods = ["lsh", "itq"]\nbits = [8, 12]\n')
    main(f"benchmark --recipe {recipe} --bits 12 --eval-on validation --json -o {tmp_path}/records".split())
    records = json.loads(capsys.readouterr().out)
    assert [(record["trial"]["method"], record["bits"]) for record in records] == [("lsh", 12), ("itq", 12)]
    assert {record["protocol"]["eval_on"] for record in records} == {"validation"}


def test_table_names_the_cutoff_and_the_denominator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(f"{DIGITS} --methods lsh --top 20 --denominator capped --no-pretrained -o {tmp_path}/records".split())
    said = capsys.readouterr()
    assert said.out.startswith("mAP@20[capped] in %, digits: holdout@1, convnet frozen at random weights")
    assert "lsh, 8 bits, seed 0: mAP@20[capped] 0." in said.err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--methods itq", "Say what to compare: --dataset and --methods, or a --recipe."),
        ("--dataset digits --methods itq --bits 8,x", "--bits takes whole numbers with commas between them"),
        ("--dataset digits --methods itp", "There is no method 'itp'; did you mean itq?"),
        ("--dataset nowhere --methods itq", "nowhere"),
        ("--dataset digits --methods itq --folds 2", "has no folds"),
        ("--dataset digits --methods itq --denominator capped", "The denominator capped needs a cutoff"),
        ("--recipe nowhere.toml", "Cannot read nowhere.toml: No such file or directory."),
    ],
)
def test_mistakes_are_answered_with_one_sentence(
    tmp_path: Path, options: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stop:
        main(f"benchmark {options} -o {tmp_path}/records".split())
    assert stop.value.code == 2
    error = capsys.readouterr().err
    assert sentence in error
    assert error.count("\n") == 1
    assert not (tmp_path / "records").exists()


def test_experiment_is_reproduced_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    small = Grid("digits", ("lsh", "itq"), (8,), backbone="convnet")
    monkeypatch.setattr(recipes, "read_recipe", lambda _: small)
    main(f"reproduce ablation --seeds 2 -o {tmp_path}/records".split())
    out = capsys.readouterr().out
    assert out.count("±") == 2
    assert f"The report is {tmp_path}/records/report.html." in "".join(out.splitlines())
    assert "Experiment ablation" in (tmp_path / "records" / "report.html").read_text()
    main(["reproduce", "--list"])
    assert "six kinds of proxies" in " ".join(capsys.readouterr().out.split())
    mistakes = (
        ("reproduce", "Say which experiment: ablation, "),
        ("reproduce abc", "no experiment 'abc'"),
        ("reproduce tags --tags 2", "digits has no tags to choose the most frequent from"),
    )
    for command, sentence in mistakes:
        with pytest.raises(SystemExit):
            main(command.split())
        assert sentence in capsys.readouterr().err
