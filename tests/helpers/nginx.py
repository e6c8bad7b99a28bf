"""nginx with the example of deploy/, in front of a service on this machine."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from socket import create_connection, socket
from tempfile import TemporaryDirectory

EXAMPLE = Path(__file__).parents[2] / "deploy" / "nginx.conf"
MODULES = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")  # each has a folder for temporary files
NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")
REASON = "nginx is not installed"


@dataclass(frozen=True)
class RunningNginx:
    """nginx in processes of its own."""

    port: int
    pid: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def write_config(folder: Path, service_port: int, port: int, certificate: Path | None) -> Path:
    """Write the example with other ports, and with files in a folder of the current user; with a certificate, for TLS."""
    text = EXAMPLE.read_text(encoding="utf-8")
    plain, encrypted = "listen 80;", "listen 443 ssl http2;"
    if certificate is not None:  # what the example says about TLS; this file also holds the key
        text = re.sub(r"# (listen 443|ssl_)", r"\1", text.replace(f"{plain}\n", "\n", 1))
        text = re.sub(r"/etc/ssl/\S+;", f"{certificate};", text)
        plain = encrypted
    temporary = "".join(f"    {name}_temp_path {folder / name};\n" for name in MODULES)
    for old, new in (
        (plain, re.sub(r"\d+", f"127.0.0.1:{port}", plain, count=1)),
        ("server 127.0.0.1:8000;", f"server 127.0.0.1:{service_port};"),
        ("/var/log/nginx/", f"{folder}/"),
        ("http {\n", f"http {{\n{temporary}"),
    ):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    config = folder / "nginx.conf"
    config.write_text(text, encoding="utf-8")
    return config


@contextmanager
def running_nginx(service_port: int, certificate: Path | None = None) -> Iterator[RunningNginx]:
    """Run nginx until the block ends."""
    assert NGINX is not None, REASON
    with TemporaryDirectory(prefix="nginx-") as name:
        folder, port = Path(name), free_port()
        folder.chmod(0o755)  # the workers of a root process are another user
        config, log = write_config(folder, service_port, port, certificate), folder / "error.log"
        settings = f"pid {folder / 'nginx.pid'}; daemon off;"
        command = [NGINX, "-c", str(config), "-p", name, "-e", str(log), "-g", settings]
        process = subprocess.Popen(command, env=os.environ.copy())
        try:
            _wait_for(port, process, log)
            yield RunningNginx(port, process.pid, log)
        finally:
            process.terminate()
            process.wait(60)


def _wait_for(port: int, process: "subprocess.Popen[bytes]", log: Path) -> None:
    for _ in range(600):
        try:
            create_connection(("127.0.0.1", port), timeout=10).close()
        except OSError:
            assert process.poll() is None, log.read_text(encoding="utf-8")
            time.sleep(0.1)
        else:
            return
    raise AssertionError("nginx never listened.")
