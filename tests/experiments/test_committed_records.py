"""The records in results/, which the tables of the docs are made of."""

from pathlib import Path

import pytest

from proxyhash.experiments import read_records
from proxyhash.experiments.trial import Trial
from proxyhash.methods import get_method
from proxyhash.training.config import OptimConfig

RESULTS = Path(__file__).parents[2] / "results"


@pytest.mark.parametrize("folder", sorted(path.parent.name for path in RESULTS.glob("*/records.jsonl")))
def test_committed_records_have_the_settings_of_a_current_trial(folder: str) -> None:
    for record in read_records(RESULTS / folder):
        stored = record.trial
        if record.revision < get_method(stored["method"]).revision:
            continue  # reports mark it as stale
        trial = Trial(
            label=stored["label"],
            method=stored["method"],
            settings=stored["settings"],
            code_lengths=tuple(stored["code_lengths"]),
            seed=stored["seed"],
            fold=stored["fold"],
            optim=OptimConfig(**(stored["optim"] or {})),
        )
        assert trial.as_dict(tags=bool(record.data["tags"])) == stored, "a grid would not find this record"
