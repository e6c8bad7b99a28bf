"""Quiet, JSON, colors and completion: the same for every command."""

import io
import json
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
from rich.table import Table
from rich.text import Text

from helpers.terminal import terminal_output
from proxyhash.cli import output
from proxyhash.cli.app import app, main
from proxyhash.cli.output import SafeConsole, cell

PROXIES = "proxies --classes 5 --bits 6"


def test_quiet_leaves_answers_and_errors(
    capsys: pytest.CaptureFixture[str], photos: Path, model: Path, tmp_path: Path
) -> None:
    main(f"{PROXIES} --quiet --json".split())
    output = capsys.readouterr()
    assert json.loads(output.out)["quality"]
    assert output.err == ""  # elsewhere a note says that no similarity was given
    main(f"-q index add {photos} --model {model} --index {tmp_path}/index".split())
    assert capsys.readouterr().out == ""
    main(f"search {tmp_path}/index --key cats/0.png -k 1 --quiet".split())
    assert "cats/0.png" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main("inspect absent --quiet".split())
    assert capsys.readouterr().err == "proxyhash: error: There is no file absent.\n"


def test_commands_that_change_something_answer_in_json(
    capsys: pytest.CaptureFixture[str], photos: Path, model: Path, other_model: Path, tmp_path: Path
) -> None:
    def run(command: str) -> dict[str, object]:
        main([*command.split(), "--json"])
        return json.loads(capsys.readouterr().out)  # type: ignore[no-any-return]

    index = f"{tmp_path}/index"
    assert run(f"index add {photos} --model {model} --index {index}")["items"] == 12
    assert run(f"index remove {index} cats/0.png") == {"removed": 1, "items": 11}
    assert run(f"index upgrade {index} --model {other_model}")["moved"] == 11
    assert "bytes_now" in run(f"index compact {index}")
    encoded = run(f"encode {model} {photos} -o {tmp_path}/codes.npz")
    assert (encoded["codes"], encoded["bits"]) == (12, 32)
    assert run(f"index import {tmp_path}/codes.npz --index {tmp_path}/other")["added"] == 12
    assert run(f"export {model} -o {tmp_path}/model.onnx")["nu"] == [None, 32]


def test_a_terminal_gets_colors_and_a_pipe_does_not(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from proxyhash.cli.app import main; main(['--help'])"]
    piped = subprocess.run(command, capture_output=True, check=True).stdout
    assert b"\x1b[" not in piped
    shown = terminal_output(command, TERM="xterm-256color", PROXYHASH_CACHE=str(tmp_path))
    assert b"\x1b[" in shown


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_complete_commands_and_options(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    main(["completion", shell])
    script = capsys.readouterr().out
    for word in ("quickstart", "doctor", "image-size", "calibrate"):
        assert word in script


def test_completion_is_installed_where_the_shell_looks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    main("completion bash --install".split())
    said = capsys.readouterr().out
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any("quickstart" in path.read_text() for path in files)
    assert str(tmp_path) in said
    subprocess.run(["bash", "-n", *map(str, files)], check=True)


def test_an_unknown_shell_is_one_sentence(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(_app: object, **_: object) -> str:
        raise RuntimeError("Unable to\ndetect the shell.")

    monkeypatch.setattr(type(app), "generate_completion", lost)
    with pytest.raises(SystemExit):
        main(["completion"])
    assert capsys.readouterr().err.count("\n") == 1


HOSTILE = "\x1b[2J\x1b]0;owned\x07\u202egnp\n0 added [bold]x[/bold]:cat:"
SHOWN = r"\x1b[2J\x1b]0;owned\x07\u202egnp\n0 added [bold]x[/bold]:cat:"


def test_strings_texts_and_tables_are_escaped_in_a_terminal() -> None:
    out = io.StringIO()
    console = SafeConsole(file=out, force_terminal=True, width=200, highlight=False)
    table = Table("name", "next")
    table.add_row(cell(HOSTILE, "bold"), "x")
    table.add_row(HOSTILE.replace("\n", ""), "x")
    for printed in (table, Text(HOSTILE), f"{HOSTILE}", cell(HOSTILE, "red")):
        console.print(printed)
    shown = out.getvalue()
    assert "\x1b[1m" in shown  # its own styles
    assert "\x1b[2J" not in shown
    assert not any(mark in shown for mark in ("\x07", "\u202e", "\x1b]"))
    assert SHOWN in shown


def test_every_command_prints_through_the_safe_console() -> None:
    """Consoles of rich and bare print statements would let control characters of names through."""
    for path in sorted(Path(output.__file__).parent.glob("*.py")):
        lines = path.read_text().splitlines() if path.name != "output.py" else []
        bare = [line for line in lines if re.search(r"(?<!Safe)(?<![a-z_])Console\(|(?<![\w.])print\((?!json\.dumps)", line)]
        assert [line.strip() for line in bare] in ([], ["print(app.generate_completion(shell=shell))"]), path.name


def test_names_with_escape_sequences_are_shown_escaped(
    capsys: pytest.CaptureFixture[str], photos: Path, model: Path, tmp_path: Path
) -> None:
    index = tmp_path / "index"
    evil = photos / "cats" / "\x1b[2Jevil\n.png"
    (photos / "cats" / "0.png").rename(evil)
    (photos / "cats" / "\x1b[31mbad\u202e.png").write_bytes(b"no image")
    copy = photos / "do\x1bgs\x07"
    (photos / "dogs").rename(copy)

    def run(*arguments: object) -> str:
        with suppress(SystemExit):
            main([str(argument) for argument in arguments])
        shown = "".join(capsys.readouterr())
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", shown)
        return shown

    assert r"Left out: unreadable image: 1 (cats/\x1b[31mbad\u202e.png" in run(
        "index", "add", photos, "--model", model, "--index", index
    )
    name = r"cats/\x1b[2Jevil\n.png"
    assert name in run("search", index, evil, "-k", 1)
    assert r"do\x1bgs\x07" in run("search", index, copy / "7.png", "-k", 1)
    assert r"has no item \x1b[2J" in run("search", index, "--key", "\x1b[2J")
    assert r"\x1b[31mbad\u202e.png" in run("data", "check", photos)
    assert name in run("index", "duplicates", index, "--radius", 32)
    assert r"There is no folder \x1b[2J" in run("index", "add", "\x1b[2J", "--index", index)
    assert r"\x1b[2J" in run("index", "info", tmp_path / "\x1b[2J")
    main(["search", str(index), str(evil), "-k", "1", "--json"])
    assert json.loads(capsys.readouterr().out)[0]["matches"][0]["key"] == "cats/\x1b[2Jevil\n.png"
