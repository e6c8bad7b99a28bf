import numpy as np
import pytest
from scipy.stats import ttest_rel

from proxyhash import InputError
from proxyhash.evaluation import Metric, bootstrap_interval, mean_per_class, paired_test


def metric(scores: np.ndarray, name: str = "mAP") -> Metric:
    return Metric(name, scores, 0)


def test_bootstrap_interval_approaches_the_normal_interval() -> None:
    scores = np.random.default_rng(0).random(5000)
    low, high = bootstrap_interval(metric(scores))
    half = 1.96 * scores.std() / np.sqrt(5000)
    assert low == pytest.approx(scores.mean() - half, abs=0.1 * half)
    assert high == pytest.approx(scores.mean() + half, abs=0.1 * half)
    assert bootstrap_interval(metric(scores), seed=1) == bootstrap_interval(metric(scores), seed=1)
    with pytest.raises(InputError, match="between 0 and 1"):
        bootstrap_interval(metric(scores), level=95)


def test_paired_test_approaches_the_t_test() -> None:
    random = np.random.default_rng(1)
    one = random.random(400)
    for shift in (0.0, 0.004, 0.05):
        other = one + shift + 0.05 * random.standard_normal(400)
        ours = paired_test(metric(one), metric(other))
        assert ours.difference == pytest.approx((one - other).mean())
        assert ours.p_value == pytest.approx(ttest_rel(one, other).pvalue, abs=0.02)


def test_equal_systems_do_not_differ_and_different_metrics_are_refused() -> None:
    scores = np.random.default_rng(2).random(30)
    assert paired_test(metric(scores), metric(scores)).p_value == 1
    with pytest.raises(InputError, match="same metric on the same queries"):
        paired_test(metric(scores), metric(scores, "recall"))
    with pytest.raises(InputError, match="same metric on the same queries"):
        paired_test(metric(scores), metric(scores[:9]))


def test_means_per_class_by_hand() -> None:
    assert mean_per_class(metric(np.array([1.0, 0.0, 0.5])), ["cat", "cat", "dog"]) == {"cat": 0.5, "dog": 0.5}
    with pytest.raises(InputError, match="do not fit 3 queries"):
        mean_per_class(metric(np.zeros(3)), [0, 1])
