import numpy as np
import pytest

from proxyhash import InputError, ProxyhashWarning, class_mean_similarity, design_proxies
from proxyhash.proxies.bit_annealing import AnnealingStage, anneal_bits, pairwise_distances, smallest_distance
from proxyhash.proxies.joint import refine_corners, share_of_distance, target_distances


def families(families: int, members: int) -> np.ndarray:
    random = np.random.default_rng(0)
    means = np.repeat(random.standard_normal((families, 8)), members, axis=0)
    means += 0.5 * random.standard_normal(means.shape)
    return class_mean_similarity(means, np.arange(len(means)))


def random_signs(classes: int, bits: int, seed: int = 0) -> np.ndarray:
    return np.where(np.random.default_rng(seed).random((classes, bits)) < 0.5, -1.0, 1.0)


def test_annealing_separates_rows_and_keeps_fixed_ones() -> None:
    start = random_signs(20, 16)
    start[1] = start[0]  # distances between fixed rows are ignored
    stages = [AnnealingStage(temperature, 1.0, 20_000) for temperature in np.geomspace(3, 0.3, 10)]
    found = anneal_bits(start, 5, stages, np.random.default_rng(1), fixed=6)
    np.testing.assert_array_equal(found[:6], start[:6])
    distances = pairwise_distances(found)
    np.fill_diagonal(distances, np.inf)
    assert distances[6:].min() >= 5
    assert (np.abs(found) == 1).all()


def test_annealing_lowers_the_energy_to_a_local_minimum() -> None:
    targets = np.full((12, 12), 7.0)
    start = random_signs(12, 12, 3)
    found = anneal_bits(start, 0, [AnnealingStage(1e-6, 0.0, 20_000)], np.random.default_rng(0), target_distances=targets)
    above = np.triu_indices(12, k=1)
    energies = [np.square(pairwise_distances(signs)[above] - 7).sum() for signs in (start, found)]
    assert energies[1] < 0.5 * energies[0]
    for row in range(12):  # at zero temperature no single flip is left that gains
        for bit in range(12):
            other = found.copy()
            other[row, bit] *= -1
            assert np.square(pairwise_distances(other)[above] - 7).sum() >= energies[1]


def test_target_distances_decrease_with_similarity_down_to_the_minimum() -> None:
    similarity = families(4, 3)
    targets = target_distances(similarity, 16, 6)
    above = np.triu_indices(12, k=1)
    assert targets[above].min() == 6
    assert np.corrcoef(targets[above], similarity[above])[0, 1] < -0.9
    np.testing.assert_array_equal(target_distances(np.ones((5, 5)), 16, 6), np.full((5, 5), 8.0))


def test_distance_share_is_rounded_to_whole_bits() -> None:
    assert [share_of_distance(distance, 0.75) for distance in (1, 2, 6, 14, 32, 28)] == [1, 2, 4, 10, 24, 21]
    assert [share_of_distance(distance, 0.5) for distance in (1, 2, 5, 7)] == [1, 1, 2, 4]
    with pytest.raises(InputError, match="above 0 and up to 1, not 0"):
        design_proxies(24, 16, "joint", families(6, 4), distance_share=0)


def test_min_distance_and_its_share_give_the_same_set() -> None:
    similarity = families(6, 4)
    by_share = design_proxies(24, 16, "joint", similarity, distance_share=0.75)
    np.testing.assert_array_equal(by_share.weights, design_proxies(24, 16, "joint", similarity, min_distance=6).weights)


@pytest.mark.parametrize("min_distance", [None, 5, 7, 8])
def test_joint_keeps_its_min_distance_and_follows_the_similarity(min_distance: int | None) -> None:
    similarity = families(6, 4)
    joint = design_proxies(24, 16, "joint", similarity, min_distance=min_distance)
    scode = design_proxies(24, 16, "scode", similarity)
    assert joint.quality.min_distance >= (min_distance or share_of_distance(8, 0.5))
    assert scode.quality.min_distance == 8
    assert joint.quality.constant_bits == 0
    assert joint.quality.assignment is not None
    assert scode.quality.assignment is not None
    if min_distance != 8:
        assert joint.quality.assignment.correlation > scode.quality.assignment.correlation


def test_refinement_never_goes_below_the_min_distance() -> None:
    similarity = families(6, 4)
    code = design_proxies(24, 16, "code").weights
    found = refine_corners(similarity, code, 7, np.random.default_rng(0))
    assert smallest_distance(found) >= 7
    assert not np.array_equal(found, code)


def test_smaller_min_distance_gives_higher_correlation() -> None:
    similarity = families(10, 5)
    qualities = [
        design_proxies(50, 24, "joint", similarity, min_distance=min_distance).quality for min_distance in (3, 6, 9)
    ]
    correlations = [quality.assignment.correlation for quality in qualities if quality.assignment]
    assert correlations == sorted(correlations, reverse=True)
    assert [quality.min_distance >= min_distance for quality, min_distance in zip(qualities, (3, 6, 9), strict=True)] == [
        True
    ] * 3


def test_unreachable_min_distance_is_an_error() -> None:
    with pytest.raises(
        InputError, match="A minimal distance of 9 bits is out of reach for 24 classes in 16 bits: ask for at most 8"
    ):
        design_proxies(24, 16, "joint", families(6, 4), min_distance=9)
    with pytest.raises(InputError, match="min_distance must be at least 1, not 0"):
        design_proxies(24, 16, "joint", families(6, 4), min_distance=0)


def test_joint_refuses_too_many_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxyhash.proxies.joint.MAX_CLASSES", 20)
    with pytest.raises(InputError, match="at most 20 of them: use scode"):
        design_proxies(24, 16, "joint", families(6, 4))


@pytest.mark.parametrize("kind", ["scode", "joint"])
def test_without_a_similarity_scode_and_joint_equal_code(kind: str) -> None:
    with pytest.warns(ProxyhashWarning, match=f"{kind} is the same set as code"):
        proxies = design_proxies(20, 16, kind)
    np.testing.assert_array_equal(proxies.weights, design_proxies(20, 16, "code").weights)


def test_scode_permutes_code_and_warns_for_equidistant_words() -> None:
    similarity = families(6, 4)
    scode, code = (design_proxies(24, 16, kind, similarity) for kind in ("scode", "code"))
    assert {row.tobytes() for row in scode.weights} == {row.tobytes() for row in code.weights}
    assert scode.quality.assignment is not None
    assert code.quality.assignment is not None
    assert scode.quality.assignment.objective < code.quality.assignment.objective
    with pytest.warns(ProxyhashWarning, match="every assignment to classes has the same objective"):
        design_proxies(4, 3, "scode", similarity[:4, :4])  # the simplex code


@pytest.mark.slow
@pytest.mark.parametrize(("bits", "min_distance"), [(32, 11), (64, 24)])
def test_joint_follows_twenty_superclasses_of_five(bits: int, min_distance: int) -> None:
    quality = design_proxies(100, bits, "joint", families(20, 5), min_distance=min_distance).quality
    assert quality.min_distance >= min_distance
    assert quality.assignment is not None
    assert quality.assignment.correlation >= 0.45
