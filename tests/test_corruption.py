"""Random damage to files of all formats; see `helpers.corruption`."""

from pathlib import Path

import pytest

from helpers.corruption import DAMAGES, Subject, run_trials
from helpers.corruption_subjects import SUBJECTS

TRIALS = 10_000  # of all formats together


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_damaged_files_give_the_right_answer_or_an_error(subject: Subject, tmp_path: Path) -> None:
    outcome = run_trials(subject, 3 * len(DAMAGES), 1, tmp_path)
    assert outcome.failures == []
    assert outcome.refused > 0


@pytest.mark.slow
@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_ten_thousand_damaged_files_give_the_right_answer_or_an_error(subject: Subject, tmp_path: Path) -> None:
    outcome = run_trials(subject, -(-TRIALS // len(SUBJECTS)), 0, tmp_path)
    assert outcome.failures == []
    assert outcome.refused > 0
