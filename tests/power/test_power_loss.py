"""What a loss of power leaves of indexes and other files, cut at their operations."""

import pytest

from helpers.power.cases import CASES, run_case, run_second_cut
from helpers.power.recording import Counts


def assert_nothing_lost(counts: Counts, at_least: int) -> None:
    assert not counts.failures, f"{len(counts.failures)} of {counts.states} states:\n" + "\n".join(counts.failures[:5])
    assert counts.cuts >= at_least
    assert counts.states >= counts.cuts


@pytest.mark.parametrize(
    ("name", "cuts"),
    [
        ("small", 50),
        ("kept vectors", 25),
        ("arrays", 25),
        ("columns", 6),
        ("refinement", 6),
        ("refinement added later", 6),
        ("migrated", 20),
        ("migrated from format 2", 20),
        ("migrated from format 3", 20),
        ("plain files", 40),
    ],
)
def test_power_loss_leaves_what_was_acknowledged(name: str, cuts: int) -> None:
    assert_nothing_lost(run_case(name, seed=0, max_cuts=cuts), cuts)


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_power_loss_at_every_operation_leaves_what_was_acknowledged(name: str) -> None:
    """The workloads have about 5,000 operations; results/power-loss.json has the counts."""
    assert_nothing_lost(run_case(name, seed=1), 1000 if name == "large" else 100)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_second_power_loss_during_recovery_leaves_what_was_acknowledged(seed: int) -> None:
    assert_nothing_lost(run_second_cut(seed), 20)
