"""Attacks on a real service for some seconds each; benchmarks/serve_attacks.py runs them for longer."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from helpers.attack_outcome import measure_attack
from helpers.attacks import ATTACKS, Target
from helpers.nginx import NGINX, REASON, RunningNginx, running_nginx
from helpers.service import RunningService, make_photo_index, serving

SECONDS = 5.0
CODE = "00" * 4
# What uvicorn does not hold without a proxy in front of it: docs/deploy.md.
NGINX_ONLY = {"pipeline-unread", "pipeline-read", "tiny-chunks"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Path:
    return make_photo_index(tmp_path_factory.mktemp("attacked"), model)


@pytest.fixture(scope="module")
def direct_service(index: Path) -> Iterator[RunningService]:
    with serving(index, config={"http": "h11"}) as running:
        yield running


@pytest.fixture(scope="module")
def proxied_service(index: Path) -> Iterator[tuple[RunningService, RunningNginx]]:
    options = {"trusted_proxies": ["127.0.0.1"]}
    with serving(index, config=options) as running, running_nginx(httpx.URL(running.url).port or 0) as nginx:
        yield running, nginx


@pytest.mark.parametrize("name", sorted(ATTACKS.keys() - NGINX_ONLY))
def test_attack_is_held_by_h11(direct_service: RunningService, name: str) -> None:
    target = Target(httpx.URL(direct_service.url).port or 0, code=CODE)
    outcome = asyncio.run(measure_attack(name, target, {"service": direct_service.process.pid}, SECONDS))
    assert outcome.is_held, outcome


@pytest.mark.skipif(NGINX is None, reason=REASON)
@pytest.mark.parametrize("name", ATTACKS)
def test_attack_is_held_behind_nginx(proxied_service: tuple[RunningService, RunningNginx], name: str) -> None:
    service, nginx = proxied_service
    processes = {"service": service.process.pid, "nginx": nginx.pid}
    outcome = asyncio.run(measure_attack(name, Target(nginx.port, code=CODE), processes, SECONDS))
    assert outcome.is_held, outcome
