import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import ArrayLike

from proxyhash import InputError, ProxyhashWarning, design_proxies, list_kinds
from proxyhash.proxies.alignment import quantization_error
from proxyhash.proxies.kinds import STAGE_CACHE, get_kind

pytestmark = pytest.mark.filterwarnings("ignore::proxyhash.ProxyhashWarning")


def some_similarity(classes: int) -> np.ndarray:
    half = np.random.default_rng(classes).random((classes, classes))
    return half + half.T


def test_the_kinds_are_those_of_the_paper_and_the_codes() -> None:
    assert list_kinds() == ["learned", "random", "tammes", "aligned", "hclm", "shclm", "code", "scode", "joint"]


@pytest.mark.parametrize("kind", list_kinds())
@given(classes=st.integers(2, 16), bits=st.integers(1, 10), seed=st.integers(0, 99))
def test_every_kind_satisfies_the_contract(kind: str, classes: int, bits: int, seed: int) -> None:
    if get_kind(kind).binary and classes > 2**bits:
        with pytest.raises(InputError, match="cannot have different codes"):
            design_proxies(classes, bits, kind)
        return
    proxies = design_proxies(classes, bits, kind, some_similarity(classes), seed, tammes_restarts=1, rotation_restarts=2)
    assert proxies.weights.shape == (classes, bits)
    assert proxies.weights.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(proxies.weights, axis=1), np.sqrt(bits), rtol=1e-6)
    assert (proxies.kind, proxies.seed, proxies.classes, proxies.bits) == (kind, seed, classes, bits)
    assert proxies.trainable == (kind == "learned")
    assert proxies.quality.min_distance <= proxies.quality.distance_bound + 1e-5 * bits
    assert proxies.quality.assignment is not None
    if get_kind(kind).binary:
        assert proxies.binary
        assert len(np.unique(proxies.weights, axis=0)) == classes
    with pytest.raises(ValueError, match="read-only"):
        proxies.weights[0, 0] = 7


def test_auto_follows_the_similarity_if_it_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    similarity = some_similarity(20)
    known = design_proxies(20, 16, "auto", similarity, 3)
    assert known.kind == "joint"
    reached = design_proxies(20, 16, "code").quality.min_distance
    assert reached / 2 <= known.quality.min_distance < reached
    np.testing.assert_array_equal(known.weights, design_proxies(20, 16, "joint", similarity, 3).weights)
    assert design_proxies(20, 16, "auto", similarity, 3, min_distance=7).quality.min_distance >= 7
    assert design_proxies(20, 16, "auto").kind == "code"
    monkeypatch.setattr("proxyhash.proxies.joint.MAX_CLASSES", 19)
    assert design_proxies(20, 16, "auto", similarity).kind == "scode"
    with pytest.raises(InputError, match="20 classes cannot have different codes of 4 bits"):
        design_proxies(20, 4, "auto")


@pytest.mark.parametrize("kind", list_kinds())
def test_result_depends_only_on_the_seed(kind: str) -> None:
    one = design_proxies(12, 6, kind, some_similarity(12), 3, threads=1).weights
    STAGE_CACHE.clear()
    two = design_proxies(12, 6, kind, some_similarity(12), 3, threads=2).weights
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, design_proxies(12, 6, kind, some_similarity(12), 4).weights)
    np.testing.assert_array_equal(one, design_proxies(12, 6, kind, some_similarity(12), 3).weights)  # from the cache


def test_result_does_not_depend_on_blas_threads() -> None:
    script = (
        "import proxyhash; print(proxyhash.design_proxies(130, 48, 'aligned', tammes_restarts=1).weights.tobytes().hex())"
    )
    one, two = (
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for threads in ("1", "2")
    )
    assert len(one) > 130 * 48 * 8
    assert one == two


def test_the_kinds_of_one_seed_are_stages_of_one_design() -> None:
    tammes, aligned, hclm, shclm = (
        design_proxies(20, 8, kind, some_similarity(20)) for kind in ("tammes", "aligned", "hclm", "shclm")
    )
    np.testing.assert_allclose(tammes.weights @ tammes.weights.T, aligned.weights @ aligned.weights.T, atol=1e-4)
    assert quantization_error(aligned.weights) < quantization_error(tammes.weights)
    same_corner = (np.where(aligned.weights >= 0, 1, -1) == hclm.weights).all(axis=1)
    assert same_corner.mean() >= 0.9  # only repaired rows differ
    assert {row.tobytes() for row in hclm.weights} == {row.tobytes() for row in shclm.weights}
    assert hclm.quality.assignment is not None
    assert shclm.quality.assignment is not None
    assert shclm.quality.assignment.objective < hclm.quality.assignment.objective
    assert shclm.quality.assignment.correlation > hclm.quality.assignment.correlation


def test_hclm_reaches_the_distances_of_the_paper() -> None:
    quality = design_proxies(100, 16, "hclm", tammes_restarts=1).quality
    assert quality.nearest_mean == pytest.approx(4.0, abs=0.5)
    assert quality.distance_bound == 6


@pytest.mark.slow
@pytest.mark.parametrize(("bits", "mean"), [(32, 10.8), (64, 25.3)])
def test_hclm_reaches_the_distances_of_the_paper_for_more_bits(bits: int, mean: float) -> None:
    assert design_proxies(100, bits, "hclm").quality.nearest_mean == pytest.approx(mean, abs=0.5)


def test_without_a_similarity_shclm_warns_that_it_equals_hclm() -> None:
    with pytest.warns(ProxyhashWarning, match="the same set as hclm"):
        proxies = design_proxies(6, 8)
    np.testing.assert_array_equal(proxies.weights, design_proxies(6, 8, "hclm").weights)


def test_equidistant_proxies_give_a_warning() -> None:
    with pytest.warns(ProxyhashWarning, match="every assignment to classes has the same objective"):
        design_proxies(2, 8, similarity=some_similarity(2))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"classes": 17, "bits": 4}, "17 classes cannot have different codes of 4 bits.*at least 5 bits"),
        ({"classes": 1}, "classes must be at least 2, not 1"),
        ({"classes": 2.0}, "classes must be a whole number, not 2.0"),
        ({"classes": "ten"}, "classes must be a whole number"),
        ({"bits": 0}, "bits must be at least 1, not 0"),
        ({"bits": 7.5}, "bits must be a whole number, not 7.5"),
        ({"bits": True}, "bits must be a whole number, not True"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"kind": "best"}, "no proxy kind 'best'; choose from learned, random, tammes, aligned, hclm, shclm"),
        ({"solver": "luck"}, "no assignment solver 'luck'"),
        ({"similarity": np.ones((3, 3))}, "for 3 classes, but 8 are asked for"),
        ({"similarity": np.triu(np.ones((8, 8)))}, "must be symmetric"),
        ({"similarity": np.full((8, 8), np.nan)}, "not finite"),
        ({"tammes_restarts": -1}, "tammes_restarts must be at least 1"),
        ({"tammes_restarts": 0}, "tammes_restarts must be at least 1"),
        ({"rotation_restarts": 0}, "rotation_restarts must be at least 1"),
        ({"threads": 0}, "threads must be at least 1"),
    ],
)
def test_invalid_input_is_an_error(settings: dict[str, ArrayLike], sentence: str) -> None:
    with pytest.raises(InputError, match=sentence) as caught:
        design_proxies(**{"classes": 8, "bits": 8, **settings})  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    assert str(caught.value).endswith(".")


def test_misspelled_settings_are_errors() -> None:
    with pytest.raises(TypeError, match="restart"):
        design_proxies(8, 8, restart=3)  # type: ignore[call-arg]
