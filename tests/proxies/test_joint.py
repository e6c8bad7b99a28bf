import numpy as np
import pytest

from proxyhash import InputError, ProxyhashWarning, class_mean_similarity, design_proxies
from proxyhash.proxies.bit_annealing import Stage, distances, flipped, least_distance
from proxyhash.proxies.joint import following_corners, share_of, wished_distances


def families(families: int, members: int) -> np.ndarray:
    random = np.random.default_rng(0)
    means = np.repeat(random.standard_normal((families, 8)), members, axis=0)
    means += 0.5 * random.standard_normal(means.shape)
    return class_mean_similarity(means, np.arange(len(means)))


def random_signs(classes: int, bits: int, seed: int = 0) -> np.ndarray:
    return np.where(np.random.default_rng(seed).random((classes, bits)) < 0.5, -1.0, 1.0)


def test_flips_push_rows_apart_and_leave_the_fixed_ones() -> None:
    start = random_signs(20, 16)
    start[1] = start[0]  # two fixed rows that coincide are nobody's business
    stages = [Stage(temperature, 1.0, 20_000) for temperature in np.geomspace(3, 0.3, 10)]
    found = flipped(start, 5, stages, np.random.default_rng(1), fixed=6)
    np.testing.assert_array_equal(found[:6], start[:6])
    apart = distances(found)
    np.fill_diagonal(apart, np.inf)
    assert apart[6:].min() >= 5
    assert (np.abs(found) == 1).all()


def test_flips_lower_the_energy_they_claim_to() -> None:
    wishes = np.full((12, 12), 7.0)
    start = random_signs(12, 12, 3)
    found = flipped(start, 0, [Stage(1e-6, 0.0, 20_000)], np.random.default_rng(0), wishes=wishes)
    above = np.triu_indices(12, k=1)
    energies = [np.square(distances(signs)[above] - 7).sum() for signs in (start, found)]
    assert energies[1] < 0.5 * energies[0]
    for row in range(12):  # at zero temperature no single flip is left that gains
        for bit in range(12):
            other = found.copy()
            other[row, bit] *= -1
            assert np.square(distances(other)[above] - 7).sum() >= energies[1]


def test_wishes_fall_with_similarity_and_stop_at_the_floor() -> None:
    similarity = families(4, 3)
    wishes = wished_distances(similarity, 16, 6)
    above = np.triu_indices(12, k=1)
    assert wishes[above].min() == 6
    assert np.corrcoef(wishes[above], similarity[above])[0, 1] < -0.9
    np.testing.assert_array_equal(wished_distances(np.ones((5, 5)), 16, 6), np.full((5, 5), 8.0))


def test_default_floors() -> None:
    assert [share_of(distance, 0.75) for distance in (1, 2, 14, 32, 28)] == [1, 2, 11, 24, 21]


@pytest.mark.parametrize("floor", [None, 5, 7, 8])
def test_joint_keeps_its_floor_and_follows_the_classes(floor: int | None) -> None:
    similarity = families(6, 4)
    joint = design_proxies(24, 16, "joint", similarity, floor=floor)
    scode = design_proxies(24, 16, "scode", similarity)
    assert joint.quality.min_distance >= (floor or share_of(8, 0.75))
    assert scode.quality.min_distance == 8
    assert joint.quality.constant_bits == 0
    assert joint.quality.assignment is not None
    assert scode.quality.assignment is not None
    if floor != 8:
        assert joint.quality.assignment.correlation > scode.quality.assignment.correlation


def test_a_floor_is_never_left_from_a_start_that_keeps_it() -> None:
    similarity = families(6, 4)
    code = design_proxies(24, 16, "code").weights
    found = following_corners(similarity, code, 7, np.random.default_rng(0))
    assert least_distance(found) >= 7
    assert not np.array_equal(found, code)


def test_lower_floors_leave_more_to_similarity() -> None:
    similarity = families(10, 5)
    qualities = [design_proxies(50, 24, "joint", similarity, floor=floor).quality for floor in (3, 6, 9)]
    correlations = [quality.assignment.correlation for quality in qualities if quality.assignment]
    assert correlations == sorted(correlations, reverse=True)
    assert [quality.min_distance >= floor for quality, floor in zip(qualities, (3, 6, 9), strict=True)] == [True] * 3


def test_a_floor_that_cannot_be_kept_is_an_error() -> None:
    with pytest.raises(InputError, match="A floor of 9 bits is out of reach for 24 classes in 16 bits: ask for at most 8"):
        design_proxies(24, 16, "joint", families(6, 4), floor=9)
    with pytest.raises(InputError, match="floor must be at least 1, not 0"):
        design_proxies(24, 16, "joint", families(6, 4), floor=0)


def test_too_many_classes_for_all_pairs_are_sent_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxyhash.proxies.joint.MOST_CLASSES", 20)
    with pytest.raises(InputError, match="at most 20 of them: use scode"):
        design_proxies(24, 16, "joint", families(6, 4))


@pytest.mark.parametrize("kind", ["scode", "joint"])
def test_without_a_similarity_semantic_codes_are_code(kind: str) -> None:
    with pytest.warns(ProxyhashWarning, match=f"{kind} has nothing to match proxies by and is the same set as code"):
        proxies = design_proxies(20, 16, kind)
    np.testing.assert_array_equal(proxies.weights, design_proxies(20, 16, "code").weights)


def test_scode_is_code_in_another_order_and_warns_where_order_is_meaningless() -> None:
    similarity = families(6, 4)
    scode, code = (design_proxies(24, 16, kind, similarity) for kind in ("scode", "code"))
    assert {row.tobytes() for row in scode.weights} == {row.tobytes() for row in code.weights}
    assert scode.quality.assignment is not None
    assert code.quality.assignment is not None
    assert scode.quality.assignment.objective < code.quality.assignment.objective
    with pytest.warns(ProxyhashWarning, match="every assignment to classes is as good as any other"):
        design_proxies(4, 3, "scode", similarity[:4, :4])  # the simplex code


@pytest.mark.slow
@pytest.mark.parametrize(("bits", "floor"), [(32, 11), (64, 24)])
def test_joint_reaches_its_promise_for_twenty_superclasses_of_five(bits: int, floor: int) -> None:
    quality = design_proxies(100, bits, "joint", families(20, 5)).quality
    assert quality.min_distance >= floor
    assert quality.assignment is not None
    assert quality.assignment.correlation >= 0.45
