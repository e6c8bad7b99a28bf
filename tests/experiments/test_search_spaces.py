"""Search spaces: no candidate repeats another one."""

import numpy as np
import pytest

from helpers.digits import digits
from proxyhash.experiments.tuning import initial_candidates
from proxyhash.methods import TrainingData, get_method, list_methods, parse_method
from proxyhash.training.config import OptimConfig
from proxyhash.training.features import fit_method

COUNT = 320
SHORT = OptimConfig.frozen(epochs=6, hidden_dim=16, batch_size=64)  # as many epochs as tables of tuning have


def training_data(*, tags: bool) -> TrainingData:
    labels = digits().labels[:COUNT]
    # With the last two, images with several tags may share none.
    given = np.stack([labels % 2 == 0, labels < 5, labels % 3 == 0, labels % 2 == 1, labels >= 5], 1) if tags else labels
    return TrainingData.from_arrays(16, digits().train[:COUNT], given)


def embedded(label: str, *, tags: bool) -> bytes:
    name, settings = parse_method(label)
    return fit_method(name, training_data(tags=tags), SHORT, **settings).embed(digits().query[:20]).tobytes()


@pytest.mark.filterwarnings("ignore:All proxies are equally far apart")
@pytest.mark.parametrize("tags", [False, True])
@pytest.mark.parametrize("name", list_methods(trains=True))
def test_every_candidate_trains_another_network(name: str, tags: bool) -> None:
    if tags and get_method(name).learns_from == "classes":
        pytest.skip("it cannot use tags")
    labels = [candidate.label for candidate in initial_candidates(name, tags=tags)]
    assert len({embedded(label, tags=tags) for label in labels}) == len(labels)
