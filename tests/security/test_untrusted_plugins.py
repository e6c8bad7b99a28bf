"""Python files run only if they are named as plugins."""

import subprocess
import sys
from pathlib import Path

from helpers.models import make_model

CODE = "from pathlib import Path\nPath(__file__).with_suffix('.ran').touch()\n"


def test_files_in_a_model_folder_and_in_the_current_folder_are_not_run(tmp_path: Path) -> None:
    model = make_model(8, 0, tmp_path / "model")
    for folder in (tmp_path, model):
        for name in ("my_method.py", "sitecustomize_.py", "proxyhash_plugin.py", "hubconf.py", "modeling.py"):
            (folder / name).write_text(CODE)
    script = "import proxyhash; from proxyhash.methods import list_methods; list_methods(); proxyhash.Hasher.load('model')"
    run = subprocess.run([sys.executable, "-P", "-c", script], cwd=tmp_path, check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert not list(tmp_path.rglob("*.ran"))
