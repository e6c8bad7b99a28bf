import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from cyclopts import App
from PIL import Image

from proxyhash import ProxySet, __version__
from proxyhash.cli.app import app, main


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[str, str]:
    main(arguments)
    output = capsys.readouterr()
    return output.out, output.err


def test_help_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    out, _ = run(capsys, "--help")
    assert "Start here" in out
    for command in ("proxies", "inspect", "demo"):
        assert command in out
    out, _ = run(capsys, "proxies", "--help")
    for option in ("--classes", "--bits", "--kind", "--similarity", "--seed", "-o", "--plot", "--json"):
        assert option in out
    assert run(capsys, "--version")[0].strip() == __version__


def test_proxies_are_designed_printed_saved_and_drawn(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    half = np.random.default_rng(0).random((8, 8))
    np.save("s.npy", half + half.T)
    out, err = run(
        capsys, *"proxies --classes 8 --bits 12 --kind shclm --similarity s.npy -o set.safetensors --plot --seed 5".split()
    )
    assert err == ""
    assert "shclm proxies: 8 classes in 12 bits (seed 5)" in out
    assert "minimal distance" in out
    assert "similarity correlation" in out
    assert (tmp_path / "proxies.png").stat().st_size > 10_000
    saved = ProxySet.load("set.safetensors")
    assert (saved.classes, saved.bits, saved.kind, saved.seed) == (8, 12, "shclm", 5)

    out, _ = run(capsys, "inspect", "set.safetensors", "--json", "--plot", "again.svg")
    assert json.loads(out) == saved.as_dict()
    assert (tmp_path / "again.svg").read_text().startswith("<?xml")


def test_code_and_joint_are_designed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out, _ = run(capsys, *"proxies --classes 21 --bits 16 --kind code".split())
    assert "8 bits (no set has more than 8)" in out
    half = np.random.default_rng(0).random((21, 21))
    np.save(tmp_path / "s.npy", half + half.T)
    command = f"proxies --classes 21 --bits 16 --kind joint --min-distance 5 --similarity {tmp_path}/s.npy --json"
    assert json.loads(run(capsys, *command.split())[0])["quality"]["min_distance"] >= 5


def test_json_is_all_there_is_on_standard_output(capsys: pytest.CaptureFixture[str]) -> None:
    out, err = run(capsys, *"proxies --classes 5 --bits 6 --json".split())
    quality = json.loads(out)["quality"]
    assert quality["min_distance"] <= quality["distance_bound"]
    assert err.startswith("proxyhash: note: Without a class similarity")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ("proxies --classes 100 --bits 4", "100 classes cannot have different codes of 4 bits"),
        ("proxies --classes 1 --bits 4", "classes must be at least 2, not 1."),
        ("proxies --classes 4 --bits 0", "bits must be at least 1, not 0."),
        ("proxies --classes 4 --bits 2.5", "--bits: it must be a whole number, not 2.5."),
        ("proxies --classes 4", "--bits"),
        (
            "proxies --classes 4 --bits 8 --kind best",
            "choose from learned, random, tammes, aligned, hclm, shclm, code, scode, joint.",
        ),
        ("proxies --classes 4 --bits 8 --knd hclm", "--knd"),
        ("proxies --classes 5 --bits 2 --kind code", "5 classes cannot have different codes of 2 bits"),
        ("proxies --classes 21 --bits 16 --kind joint --min-distance 9", "A minimal distance of 9 bits is out of reach"),
        ("proxies --classes 21 --bits 16 --kind joint --min-distance 0", "min_distance must be at least 1, not 0."),
        ("proxies --classes 4 --bits 8 --similarity absent.npy", "There is no file absent.npy."),
        ("proxies --classes 4 --bits 8 --similarity text.npy", "text.npy is not a .npy file with a matrix of numbers."),
        ("proxies --classes 4 --bits 8 --similarity pickled.npy", "is not a .npy file with a matrix of numbers."),
        ("proxies --classes 4 --bits 8 --similarity several.npz", "holds several arrays"),
        ("proxies --classes 4 --bits 8 --plot picture.bmp", "must end in .png, .pdf or .svg."),
        ("proxies --classes 4 --bits 8 -o text.npy/set.safetensors", "Cannot write text.npy/set.safetensors"),
        ("inspect text.npy", "text.npy is not a proxy set"),
        ("inspect absent", "There is no file absent."),
        ("frobnicate", "frobnicate"),
    ],
)
def test_mistakes_are_one_line_and_exit_code_2(
    arguments: str, sentence: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.npy").write_text("hello")
    np.save("pickled.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    np.savez("several.npz", a=np.ones(2))
    before = sorted(tmp_path.iterdir())
    with pytest.raises(SystemExit) as stop:
        main(arguments.split())
    output = capsys.readouterr()
    assert stop.value.code == 2
    assert output.out == ""
    assert output.err.startswith("proxyhash: error: ")
    assert output.err.count("\n") == 1
    assert sentence in output.err
    assert sorted(tmp_path.iterdir()) == before


def test_the_installed_command_runs_the_demo(tmp_path: Path) -> None:
    command = Path(sys.executable).with_name("proxyhash")
    done = subprocess.run([command, "demo"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "1,797 images of 10 digits" in done.stdout
    assert "proxyhash:" not in done.stderr, "no notes, no errors"
    proxies = ProxySet.load(tmp_path / "demo" / "proxies.safetensors")
    assert (proxies.kind, proxies.classes, proxies.bits) == ("shclm", 10, 16)
    assert proxies.quality.assignment is not None
    assert proxies.quality.assignment.correlation > 0.5
    assert (tmp_path / "demo" / "proxies.png").exists()
    number = r"([01]\.\d+)"
    found = re.search(f"mAP with sHCLM codes: {number}; with lsh {number}, itq {number}. Accuracy .*: {number}", done.stdout)
    assert found is not None
    ours, lsh, itq, accuracy = map(float, found.groups())
    assert lsh < itq < 0.7
    assert min(ours, accuracy) > 0.9
    assert "1,797 images are in demo/index" in done.stdout
    page = (tmp_path / "demo" / "report.html").read_text(encoding="utf-8")
    assert "Retrieval examples: shclm, 16 bits" in page
    with Image.open(tmp_path / "demo" / "found.png") as sheet:
        assert sheet.width > 1000
    assert len(list((tmp_path / "demo" / "digits" / "3").glob("*.png"))) == 183
    again = subprocess.run([command, "demo"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert again.stdout.count("done before") == 7, "nothing is done twice"


def _options(command: App) -> Iterator[tuple[str, str | None]]:
    for name in command:
        if name.startswith("-"):
            continue
        if command[name].default_command is None:
            yield from _options(command[name])
        else:
            for option in command[name].assemble_argument_collection(parse_docstring=True):
                yield f"{name} {' '.join(option.names)}", option.parameter.help


def test_every_option_says_what_it_does() -> None:
    options = dict(_options(app))
    assert len(options) > 100
    assert [name for name, words in options.items() if not words] == []
