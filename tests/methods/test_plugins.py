"""Methods in files of users and in other packages."""

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from helpers.plugins import PLUGIN, own_registry
from proxyhash.cli.app import main
from proxyhash.methods import get_method, list_methods, plugins, use_plugins
from proxyhash.methods.plugins import PLUGINS_VARIABLE, load_plugin
from proxyhash.utils.errors import InputError, ProxyhashWarning

METHOD = "from proxyhash.methods import register_method\n@register_method({name!r})\ndef fit(data, settings): ...\n"


@pytest.fixture(autouse=True)
def _patch() -> Iterator[None]:
    with own_registry():
        yield


def written(folder: Path, text: str, name: str = "mine.py") -> Path:
    (folder / name).write_text(text)
    return folder / name


def test_a_plugin_is_listed_beside_the_methods_of_the_package() -> None:
    before = list_methods()
    use_plugins([PLUGIN])
    assert set(list_methods()) - set(before) == {"spread", "first-features"}
    assert (get_method("spread").trains, get_method("first-features").trains) == (True, False)


def test_a_plugin_is_loaded_once() -> None:
    use_plugins([PLUGIN, PLUGIN])
    use_plugins([PLUGIN.parent / ".." / "methods" / PLUGIN.name])
    assert os.environ[PLUGINS_VARIABLE] == str(PLUGIN)


def test_files_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    use_plugins([written(tmp_path, METHOD.format(name="one")), written(tmp_path / "other", METHOD.format(name="two"))])
    assert {"one", "two"} <= set(list_methods())


def test_plugins_of_the_environment_are_loaded_when_methods_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PLUGINS_VARIABLE, str(PLUGIN))
    assert get_method("spread").title == "Spread"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1 / 0", "cannot be imported: ZeroDivisionError: division by zero."),
        ("import nothing_of_this_name", "cannot be imported: ModuleNotFoundError: No module named"),
        ("def (", "cannot be imported: SyntaxError"),
        ("x = 1", "registers nothing; decorate a class or a function with @register_method."),
        (METHOD.format(name="dpsh"), "cannot be used: There is already a method 'dpsh'; choose another name."),
    ],
)
def test_a_plugin_that_cannot_be_used_is_one_sentence(text: str, sentence: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InputError) as error:
        load_plugin(path)
    assert f"The plugin {path} {sentence}" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_path_that_is_no_python_file_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"There is no plugin .*missing.py\."):
        load_plugin(tmp_path / "missing.py")
    with pytest.raises(InputError, match=r"The plugin .*mine.txt is not a Python file\."):
        load_plugin(written(tmp_path, "", "mine.txt"))


def test_entry_points_of_other_packages_are_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    written(tmp_path, METHOD.format(name="packaged"), "packaged_method.py")
    points = [EntryPoint(name, name, plugins.ENTRY_POINT_GROUP) for name in ("packaged_method", "broken_method")]
    monkeypatch.setattr(plugins, "entry_points", lambda **_: points)
    plugins._load_entry_points.cache_clear()
    with pytest.warns(ProxyhashWarning, match="The entry point broken_method of proxyhash.methods cannot be loaded"):
        assert get_method("packaged").name == "packaged"
    del sys.modules["packaged_method"]
    plugins._load_entry_points.cache_clear()


def test_the_command_line_takes_a_plugin_before_and_after_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (f"--plugin {PLUGIN} methods --json", f"methods --json --plugin {PLUGIN}"):
        main(shlex.split(command))
        listed = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
        assert listed["spread"]["family"] == "other"


def test_a_process_that_is_started_has_the_plugins_too() -> None:
    use_plugins([PLUGIN])
    script = "from proxyhash.methods import list_methods; print('spread' in list_methods())"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_a_plugin_can_be_compared_and_tuned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = "--dataset digits --backbone convnet --bits 8 --epochs 1"
    main(shlex.split(f"benchmark --plugin {PLUGIN} --methods spread,first-features {small} --json -o {tmp_path}/results"))
    records = json.loads(capsys.readouterr().out)
    assert [record["trial"]["method"] for record in records] == ["spread", "first-features"]
    main(shlex.split(f"tune --plugin {PLUGIN} --methods spread {small} --json -o {tmp_path}/tuned"))
    assert "spread" in capsys.readouterr().out


def test_a_model_of_a_plugin_is_opened_without_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = "--backbone convnet --bits 8 --epochs 1"
    main(shlex.split(f"train digits --plugin {PLUGIN} --method spread:margin=0.25 {small} -o {tmp_path}/model"))
    capsys.readouterr()
    environment = {name: value for name, value in os.environ.items() if name != PLUGINS_VARIABLE}
    command = [sys.executable, "-c", "from proxyhash.cli.app import main; main()", "evaluate", "model"]
    done = subprocess.run(
        [*command, str(tmp_path / "model"), "--json"], env=environment, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout)["map"] > 0.1
    assert not list((tmp_path / "model").rglob("*.py"))
