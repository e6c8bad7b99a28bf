"""Disks that refuse writes, fsyncs and names: what was acknowledged stays, and the error is one sentence."""

import pytest

from helpers.power.faults import FILE_SCENARIOS, INDEX_SCENARIOS, SCENARIOS, inject
from helpers.power.recording import scratch_folder


def assert_nothing_lost(scenarios: tuple[str, ...], limit: int, at_least: int) -> None:
    with scratch_folder() as folder:
        points, problems = inject(folder, scenarios, limit)
    assert not problems, f"{len(problems)} of {points} faults:\n" + "\n".join(problems[:5])
    assert points >= at_least


@pytest.mark.parametrize("scenarios", [INDEX_SCENARIOS, FILE_SCENARIOS], ids=["index", "files"])
def test_refused_operation_loses_nothing(scenarios: tuple[str, ...]) -> None:
    assert_nothing_lost(scenarios, 2, 40)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_refused_operation_loses_nothing(scenario: str) -> None:
    assert_nothing_lost((scenario,), 10_000, 40 if scenario in INDEX_SCENARIOS else 5)
