"""Dockerfile and compose.yaml. No container runtime is needed: a test runs the same steps in a clean folder."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import pytest

from helpers.nginx import free_port
from helpers.service import make_photo_index

PROJECT = Path(__file__).parents[2]
DOCKERFILE = PROJECT / "Dockerfile"
CONTAINER_FOLDERS = ("/source", "/opt/proxyhash", "/index", "/cache")
IMAGE = re.compile(r"[a-z0-9_-]+(/[a-z0-9_-]+)?:[A-Za-z0-9_.-]+")  # no host, and a tag


@dataclass
class Stage:
    """One stage of a Dockerfile: its instructions in order, and its environment."""

    image: str
    instructions: list[tuple[str, str]] = field(default_factory=list)
    environment: dict[str, str] = field(default_factory=dict)

    def last(self, name: str) -> str:
        return [value for instruction, value in self.instructions if instruction == name][-1]


def read_stages(path: Path) -> list[Stage]:
    """Parse a Dockerfile; ENV is the environment of the following RUN instructions."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    stages: list[Stage] = []
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        name, _, value = line.strip().partition(" ")
        if name == "FROM":
            stages.append(Stage(value.split()[0]))
        elif name:
            stages[-1].instructions.append((name, value.strip()))
        if name == "ENV":  # an ARG without a value is the environment of the build
            stages[-1].environment |= dict(pair.split("=", 1) for pair in shlex.split(value))
    return stages


def context_files(project: Path) -> Iterator[Path]:
    """Yield the files that .dockerignore lets into the build."""
    wanted = [line[1:] for line in (project / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    for name in wanted:
        for file in [project / name] if (project / name).is_file() else sorted((project / name).rglob("*")):
            if file.is_file() and not fnmatch(str(file), "*/__pycache__/*"):
                yield file.relative_to(project)


def test_build_copies_what_it_may_see() -> None:
    files = set(context_files(PROJECT))
    assert Path("src/proxyhash/serve/app.py") in files
    assert Path("pyproject.toml") in files
    (build, _) = read_stages(DOCKERFILE)
    for name, value in build.instructions:
        if name == "COPY":
            for source in shlex.split(value)[:-1]:
                assert any(file == Path(source) or Path(source) in file.parents for file in files), source


def test_image_has_no_root_user_and_a_health_check() -> None:
    (_, final) = read_stages(DOCKERFILE)
    user = final.last("USER")
    assert all(int(number) > 0 for number in user.split(":"))
    assert "/ready" in final.last("HEALTHCHECK")
    assert json.loads(final.last("VOLUME")) == ["/index", "/cache"]
    assert json.loads(final.last("ENTRYPOINT"))[:2] == ["proxyhash", "serve"]
    for stage in read_stages(DOCKERFILE):
        assert re.fullmatch(r"python:3\.\d+-slim", stage.image)


class CleanFolder:
    """A folder in the place of a container's file system, with this Python in the place of the base image."""

    def __init__(self, root: Path) -> None:
        self.root, self.commands = root, root / "python" / "bin"
        library = Path("lib") / f"python{sys.version_info.major}.{sys.version_info.minor}"
        ignored = shutil.ignore_patterns("site-packages", "test", "__pycache__")
        shutil.copytree(Path(sys.base_prefix) / library, root / "python" / library, symlinks=True, ignore=ignored)
        for shared in Path(sys.base_prefix, "lib").glob("libpython*.so*"):
            shutil.copy(shared, root / "python" / "lib")
        self.commands.mkdir()
        shutil.copy(Path(sys.executable).resolve(), self.commands / "python")

    def path(self, inside: str) -> Path:
        return self.root / inside.lstrip("/")

    def translate(self, text: str) -> str:
        """Replace the folders of the container by those below the root."""
        for folder in CONTAINER_FOLDERS:
            text = re.sub(rf"(?<![\w.-]){folder}(?![\w-])", str(self.path(folder)), text)
        return text

    def environment(self, stage: Stage) -> dict[str, str]:
        variables = {"PATH": f"{self.commands}{os.pathsep}{os.environ['PATH']}", "HOME": str(self.root)}
        variables["LD_LIBRARY_PATH"] = str(self.root / "python" / "lib")
        variables |= {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
        for name, value in stage.environment.items():
            variables[name] = self.translate(value).replace("$PATH", variables["PATH"])
        return variables

    def copy(self, value: str, folder: Path) -> None:
        """Copy files of the project, as COPY does; all stages share one folder, so nothing is copied between them."""
        if value.startswith("--from"):
            return
        sources = [Path(source) for source in shlex.split(value)[:-1]]
        for file in context_files(PROJECT):
            if any(file == source or source in file.parents for source in sources):
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(PROJECT / file, folder / file)

    def run_stage(self, stage: Stage) -> None:
        """Follow WORKDIR, COPY and RUN."""
        folder = self.root
        for name, value in stage.instructions:
            if name == "WORKDIR":
                folder = self.path(value)
                folder.mkdir(parents=True)
            elif name == "COPY":
                self.copy(value, folder)
            elif name == "RUN":
                command = self.translate(value)
                if os.geteuid() != 0:
                    command = re.sub(r" -[og] \d+", "", command)  # only root can give files away
                done = subprocess.run(
                    ["sh", "-c", command],
                    cwd=folder,
                    env=self.environment(stage),
                    capture_output=True,
                    text=True,
                    check=False,
                )
                assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def user_options(stage: Stage) -> dict[str, Any]:
    """Return the user of a stage for subprocess, if this process may become another user."""
    user, group = map(int, stage.last("USER").split(":"))
    return {"user": user, "group": group, "extra_groups": []} if os.geteuid() == 0 else {}


@contextmanager
def readable_folder() -> Iterator[Path]:
    """Give a folder that other users can enter, unlike those of pytest."""
    with TemporaryDirectory(prefix="container-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.mark.slow
def test_steps_of_the_dockerfile_give_a_service(model: Path) -> None:
    build, final = read_stages(DOCKERFILE)
    with readable_folder() as root:
        container = CleanFolder(root)
        container.path("/opt").mkdir()
        container.run_stage(build)
        container.run_stage(final)
        index = make_photo_index(root / "work", model)
        container.path("/index").rmdir()
        shutil.copytree(index, container.path("/index"))  # the user of the image may read it only
        shutil.rmtree(container.path("/source"))  # the image does not have it
        _check_service(container, final)


def _check_service(container: CleanFolder, stage: Stage) -> None:
    """Start the entry point as the user of the image, wait for its health check, search by image, stop it."""
    port, environment = free_port(), container.environment(stage)
    command = [container.translate(word) for word in json.loads(stage.last("ENTRYPOINT")) + json.loads(stage.last("CMD"))]
    log = container.root / "log"
    with log.open("w") as lines:
        process = subprocess.Popen(
            [*command, "--port", str(port)], cwd="/", env=environment, stdout=lines, stderr=lines, **user_options(stage)
        )
    try:
        _wait_until_healthy(stage, process, port, environment)
        photo = next(container.root.joinpath("work/photos").rglob("*.png"))
        url = f"http://127.0.0.1:{port}/api/v1/search"
        found = httpx.post(url, files={"image": photo.read_bytes()}, timeout=60).json()
        assert found["matches"][0]["distance"] == 0, found
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    except BaseException:
        sys.stderr.write(log.read_text())
        raise
    finally:
        process.kill()
        process.wait()


def _wait_until_healthy(stage: Stage, process: "subprocess.Popen[bytes]", port: int, environment: dict[str, str]) -> None:
    """Run the command of the health check until it succeeds."""
    check = json.loads(stage.last("HEALTHCHECK").partition("CMD ")[2])
    check = [word.replace(":8000/", f":{port}/") for word in check]
    for _ in range(120):
        if subprocess.run(check, env=environment, capture_output=True, check=False, **user_options(stage)).returncode == 0:
            return
        assert process.poll() is None
        time.sleep(1)
    raise AssertionError("The health check never succeeded.")


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    yaml = pytest.importorskip("yaml")
    parsed: dict[str, Any] = yaml.safe_load((PROJECT / "compose.yaml").read_text(encoding="utf-8"))
    return parsed


def substitute(text: str) -> str:
    """Replace variables by their defaults, as compose does if they are not set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def test_compose_services_refer_to_what_exists(compose: dict[str, Any]) -> None:
    services, volumes = compose["services"], set(compose["volumes"])
    for name, service in services.items():
        if "build" in service:
            assert (PROJECT / service["build"] / "Dockerfile").is_file()
        else:
            assert IMAGE.fullmatch(service["image"]), name
        for volume in map(substitute, service.get("volumes", [])):
            source = volume.split(":")[0]
            is_input = source == "./photos.index"  # given by the user
            assert source in volumes or is_input or (PROJECT / source).exists(), volume
        for other, condition in service.get("depends_on", {}).items():
            assert condition == {"condition": "service_healthy"}
            assert "healthcheck" in services[other] or "build" in services[other], f"{other} has no health check"
        mode, _, other = service.get("network_mode", "").partition(":")
        assert not mode or (mode, other in services) == ("service", True)
    used = {substitute(volume).split(":")[0] for service in services.values() for volume in service.get("volumes", [])}
    assert volumes <= used


def test_compose_publishes_only_nginx_to_other_machines(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert [port for port in ports if not port.startswith("127.0.0.1:")] == ["8080:80"]


def test_compose_health_checks_are_commands(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        if "healthcheck" in service:
            kind, program, *_ = service["healthcheck"]["test"]
            assert kind == "CMD"
            assert program in {"curl", "etcdctl"}


def test_compose_commands_are_those_of_the_command_line(compose: dict[str, Any]) -> None:
    """The options exist, and the location comes first."""
    from proxyhash.cli.app import app

    for name in ("proxyhash", "proxyhash-milvus"):
        words = [substitute(word) for word in compose["services"][name]["command"]]
        (_, final) = read_stages(DOCKERFILE)
        arguments = [*json.loads(final.last("ENTRYPOINT"))[1:], *words]
        command, bound, _ = app.parse_args(arguments, exit_on_error=False, print_error=False)
        assert command.__name__ == "serve"
        assert bound.arguments["host"] == "0.0.0.0"
        assert bound.arguments["index_"] == words[0]
