import subprocess
import sys


def test_only_the_losses_load_torch() -> None:
    script = "import sys, proxyhash.cli.app, proxyhash.training.samplers; print('torch' in sys.modules)"
    script += "; import proxyhash.losses; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True"]
