"""Quiet, JSON, colors and completion: the same for every command."""

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from proxyhash.cli.app import app, main

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
    reader, writer = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "PROXYHASH_CACHE": str(tmp_path)}
    for name in ("NO_COLOR", "CI"):
        environment.pop(name, None)
    with subprocess.Popen(command, stdout=writer, stderr=writer, env=environment) as process:
        os.close(writer)
        shown = b""
        while True:
            try:
                shown += os.read(reader, 4096)
            except OSError:  # the other end is closed
                break
        process.wait()
    os.close(reader)
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
