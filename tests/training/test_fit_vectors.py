"""Encoders of vectors: every method fits, saves and loads; codes follow the cosine; invalid input writes nothing."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import proxyhash.methods.itq
from proxyhash import Hasher
from proxyhash.cli.app import main
from proxyhash.codes.files import read_code_file
from proxyhash.evaluation import mean_average_precision
from proxyhash.labels import ClassLabels
from proxyhash.methods import get_method, list_methods
from proxyhash.models.onnx_backend import OnnxBackend
from proxyhash.models.storage import fingerprint
from proxyhash.models.vector_hasher import VectorHasher
from proxyhash.training.config import OptimConfig
from proxyhash.training.vectors import fit_vectors
from proxyhash.utils.errors import InputError
from proxyhash.utils.formats import dump_json

RNG = np.random.default_rng(0)
CLASSES = RNG.integers(0, 6, 300)
VECTORS = (RNG.normal(size=(6, 24))[CLASSES] + 0.7 * RNG.normal(size=(300, 24))).astype(np.float32)
LABELS = ClassLabels(CLASSES, tuple("abcdef"))
OPTIM = OptimConfig.frozen(epochs=2, hidden_dim=16, batch_size=64)


@pytest.mark.parametrize("method", list_methods())
def test_every_method_fits_saves_and_loads(method: str, tmp_path: Path) -> None:
    hasher = fit_vectors(VECTORS, 16, labels=LABELS, method=method, optim=OPTIM)
    hasher.save(tmp_path / "encoder")
    loaded = Hasher.load(tmp_path / "encoder")
    assert isinstance(loaded, VectorHasher)
    np.testing.assert_array_equal(loaded.encode(VECTORS), hasher.encode(VECTORS))
    np.testing.assert_array_equal(loaded.encode_queries(VECTORS[:5]), hasher.encode_queries(VECTORS[:5]))
    assert loaded.head.metric == get_method(method).metric
    assert loaded.class_names == LABELS.names
    assert len(fingerprint(tmp_path / "encoder")) == 16


def test_codes_are_the_signs_of_embeddings() -> None:
    for normalize in (True, False):
        hasher = fit_vectors(VECTORS, 24, normalize=normalize)
        embeddings = hasher.embed(VECTORS)
        clear = np.abs(embeddings) > 1e-5
        bits = np.unpackbits(hasher.encode(VECTORS), axis=1, bitorder="little", count=24).astype(bool)
        np.testing.assert_array_equal(bits[clear], (embeddings >= 0)[clear])


@settings(max_examples=20, deadline=None)
@given(st.floats(0.01, 100))
def test_normalized_codes_do_not_depend_on_the_length(scale: float) -> None:
    hasher = fit_vectors(VECTORS, 16)
    clear = (np.abs(hasher.embed(VECTORS)) > 1e-4).all(1)
    np.testing.assert_array_equal(hasher.encode(VECTORS[clear] * np.float32(scale)), hasher.encode(VECTORS[clear]))


def test_labels_improve_retrieval() -> None:
    noisy = np.hstack([VECTORS, 5 * RNG.normal(size=(300, 24))]).astype(np.float32)  # most variance says nothing of classes

    def score(hasher: VectorHasher) -> float:
        codes = hasher.encode(noisy)
        return mean_average_precision(codes, CLASSES, codes, CLASSES).value

    optim = OptimConfig.frozen(epochs=20, hidden_dim=64, batch_size=64)
    assert score(fit_vectors(noisy, 16, labels=LABELS, optim=optim)) > 0.9
    assert score(fit_vectors(noisy, 16)) < 0.5


def test_vectors_without_a_label_are_left_out() -> None:
    partly = ClassLabels(np.where(np.arange(300) < 200, CLASSES, -1), LABELS.names)
    with_rest = fit_vectors(VECTORS, 16, labels=partly, method="itq-cca")
    alone = fit_vectors(VECTORS[:200], 16, labels=partly.subset(np.arange(200)), method="itq-cca")
    np.testing.assert_array_equal(with_rest.encode(VECTORS), alone.encode(VECTORS))


def test_rotation_is_fitted_to_a_sample_of_large_data(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fit_vectors(VECTORS, 8)
    monkeypatch.setattr(proxyhash.methods.itq, "MAX_ROTATED", 100)
    sampled = fit_vectors(VECTORS, 8)  # 128 of 300 rows
    assert not np.array_equal(whole.encode(VECTORS), sampled.encode(VECTORS))
    assert np.array_equal(sampled.encode(VECTORS), fit_vectors(VECTORS, 8).encode(VECTORS))


def test_memory_mapped_vectors_of_half_precision(tmp_path: Path) -> None:
    np.save(tmp_path / "v.npy", VECTORS.astype(np.float16))
    main(["fit", str(tmp_path / "v.npy"), "--bits", "16", "-o", str(tmp_path / "encoder")])
    main(["encode", str(tmp_path / "encoder"), str(tmp_path / "v.npy"), "-o", str(tmp_path / "codes.npz")])
    codes = read_code_file(tmp_path / "codes.npz")
    assert (codes.codes.shape, codes.bits, codes.keys[:2] if codes.keys else None) == ((300, 2), 16, ["0", "1"])
    hasher = Hasher.load(tmp_path / "encoder")
    np.testing.assert_array_equal(codes.codes, hasher.encode(VECTORS.astype(np.float16)))


def test_command_writes_a_model_for_each_length(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "v.npz", vectors=VECTORS, labels=CLASSES)
    options = ["--bits", "8,16", "--epochs", "1", "--hidden-dim", "0", "--json"]
    main(["fit", str(tmp_path / "v.npz"), *options, "-o", str(tmp_path / "encoders")])
    printed = json.loads(capsys.readouterr().out)
    assert [model["config"]["bits"] for model in printed["models"]] == [8, 16]
    assert printed["models"][0]["config"]["method"] == "shclm"
    assert Hasher.load(tmp_path / "encoders" / "16").bits == 16
    card = (tmp_path / "encoders" / "16" / "README.md").read_text(encoding="utf-8")
    assert "# Vector hasher: shclm, 16 bits" in card
    assert "- vectors: 24 values, scaled to length 1" in card
    assert "no labeled vectors were held out" in card
    assert "images" not in card
    assert "Learned from v.npz." in card


def write(path: Path, values: Any) -> Path:
    np.save(path, values)
    return path


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        ({(7, 3): np.nan}, "", "row 7 is not finite"),
        ({(7, 3): np.inf}, "", "row 7 is not finite"),
        ({7: 0}, "", "row 7 is all zeros and has no direction"),
        ({}, "--bits 25", "ITQ finds at most 24 principal components, not 25 bits"),
        ({}, "--bits 8,8", "must be different whole numbers"),
        ({}, "--bits 5000 --method lsh", "bits must be"),
        ({}, "--bits 8 --method dpsh", "DPSH learns from labels, and there are none"),
        ({}, "--bits 8 --method itk", "did you mean itq"),
        ({}, "--bits 8 --lr 0.1", "ITQ trains no network, so lr has no effect"),
        ({}, "--bits 8 --method cibhash --lr 0.1", "such as cibhash:lr=0.001, so lr has no effect"),
        ({}, "--bits 8 --method itq:iteration=3", "did you mean iterations"),
        ({}, "--bits 8 --labels short.npy", "there are 300 vectors and 5 labels"),
        ({}, "--bits 8 --tags short.npy", "there are 300 vectors and 5 tags"),
        ({}, "--bits 8 --labels one.npy", "one class, and two are needed"),
        ({}, "--bits 8 --labels none.npy", "None of the vectors has a label"),
        ({}, "--bits 8 --labels one.npy --tags one.npy", "not both"),
        ({}, "--bits 8 --vector-column v", "has no columns"),
    ],
)
def test_invalid_input_writes_nothing(
    change: dict[Any, float],
    options: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    values = VECTORS.copy()
    for place, value in change.items():
        values[place] = value
    write(Path("v.npy"), values)
    write(Path("short.npy"), np.arange(5))
    write(Path("one.npy"), np.zeros(300, int))
    write(Path("none.npy"), np.full(300, -1))
    with pytest.raises(SystemExit) as stopped:
        main(["fit", "v.npy", *options.split(), "-o", "encoder"])
    assert stopped.value.code == 2
    printed = capsys.readouterr().err
    assert message in printed
    assert printed.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["none.npy", "one.npy", "short.npy", "v.npy"]


def test_zero_vectors_are_encoded_without_scaling() -> None:
    values = VECTORS.copy()
    values[7] = 0
    assert fit_vectors(values, 8, normalize=False).encode(values).shape == (300, 1)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (VECTORS[:, :5], "the model takes vectors of 24 values, not 5"),
        (VECTORS.astype(int), "must be a matrix"),
        (VECTORS[:0], "there are no vectors"),
        (np.full((2, 24), np.nan, np.float32), "row 0 is not finite"),
    ],
)
def test_hasher_refuses_other_vectors(values: Any, message: str) -> None:
    hasher = fit_vectors(VECTORS, 8)
    for use in (hasher.encode, hasher.embed, hasher.encode_queries):
        with pytest.raises(InputError, match=message):
            use(values)


@pytest.mark.parametrize("method", ["itq", "shclm", "ksh"])
def test_exported_encoder_gives_the_same_embeddings(method: str, tmp_path: Path) -> None:
    fit_vectors(VECTORS, 16, labels=LABELS, method=method, optim=OPTIM).save(tmp_path / "encoder")
    main(["export", str(tmp_path / "encoder"), "-o", str(tmp_path / "encoder.onnx")])
    expected = Hasher.load(tmp_path / "encoder").embed(VECTORS)  # type: ignore[arg-type]
    np.testing.assert_allclose(OnnxBackend(tmp_path / "encoder.onnx")(VECTORS), expected, rtol=1e-3, atol=1e-4)


def test_hasher_of_vectors_takes_no_images() -> None:
    hasher = fit_vectors(VECTORS, 8)
    pixels = np.zeros((1, 16, 16, 3), np.uint8)
    for use in (lambda: hasher.embed_pixels(pixels), lambda: hasher.pixel_spec, lambda: hasher.features(pixels)):
        with pytest.raises(InputError, match=r"^This model encodes vectors, not images\.$"):
            use()


def test_damaged_encoder_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "encoder"
    fit_vectors(VECTORS, 8).save(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    weights = (folder / "model.safetensors").read_bytes()
    for field, value, message in (
        ("normalize", "yes", "normalize must be true or false"),
        ("head", {"kind": "tanh", "in_features": 10**9, "bits": 8}, "does not hold the head"),
        ("head", 7, "is not a model that can be read"),
        ("format", "proxyhash.vector-hasher/9", "needs"),
        ("metadata", 7, "metadata"),
    ):
        changed = {name: each for name, each in config.items() if not name.startswith("sha256_of")} | {field: value}
        (folder / "config.json").write_text(dump_json(changed), encoding="utf-8")
        with pytest.raises(InputError, match=message):
            Hasher.load(folder)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "model.safetensors").write_bytes(weights[:-1] + bytes([weights[-1] ^ 1]))
    with pytest.raises(InputError, match="its checksum differs"):
        Hasher.load(folder)
