"""Files of release 0.1 are read, and give the answers they gave.

tests/fixtures/make_release_0_1.py has written them. Every test imports what it needs by itself, so that a name that changes
breaks the tests that use it and no others. Codes are compared exactly: their outputs are far from zero. Other floats are
compared bit for bit on the kind of processor that the files were made with, and closely elsewhere.
"""

import ast
import io
import json
import lzma
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
import pytest
import torch
from numpy.typing import NDArray

FILES = Path(__file__).parents[1] / "fixtures" / "release-0.1"
SOURCE = Path(__file__).parents[2] / "src"
MARGIN = 0.02  # of outputs whose signs are compared, as in the script that made the files
FIRST_TIME, STEP = 1_700_000_000_000_000_000, 1_000_000_000  # nanoseconds, when images were modified
RUNS = ("learned", "adsh", "bhc", "csq", "drsch", "dsdh", "hashnet", "mdsh", "softmax-pq")
EIGENVECTORS = ("hbmp", "hbmp-regress")  # whose signs depend on the processor
SAVED_METHODS = ("itq", "ksh", "adsh", "csq", "drsch", "ninh", "softmax-pq", "subic")


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep features of these tests by themselves, beginning with those that release 0.1 has kept."""
    folder = tmp_path_factory.mktemp("cache")
    shutil.copytree(FILES / "features", folder / "features")
    usual = Path(os.environ.get("PROXYHASH_CACHE") or platformdirs.user_cache_path("proxyhash")) / "compiled"
    with suppress(OSError):  # then everything is compiled once more
        usual.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "compiled").symlink_to(usual)
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PROXYHASH_CACHE", str(folder))
        yield folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the images, modified when they were: that is in fingerprints."""
    folder = tmp_path_factory.mktemp("data") / "photos"
    shutil.copytree(FILES / "photos", folder)
    for number, path in enumerate(sorted(folder.glob("*/*.png"))):
        os.utime(path, ns=(FIRST_TIME + number * STEP,) * 2)
    return folder


def read(name: str) -> Any:
    return json.loads((FILES / name).read_text(encoding="utf-8"))


def arrays(name: str) -> dict[str, NDArray[Any]]:
    with np.load(FILES / name) as archive:
        return {name: archive[name] for name in archive.files}


def copied(name: str, tmp_path: Path) -> Path:
    """Return a copy of a folder that a test may change."""
    return Path(shutil.copytree(FILES / name, tmp_path / Path(name).name))


def index_folder(name: str, tmp_path: Path) -> Path:
    """Return a copy of an index, unpacked, with its copy of the model."""
    folder = copied(name, tmp_path)
    (folder / "expected.json").unlink()
    if (folder / "index.sqlite.xz").is_file():
        (folder / "index.sqlite").write_bytes(lzma.decompress((folder / "index.sqlite.xz").read_bytes()))
        (folder / "index.sqlite.xz").unlink()
    else:
        model = read("expected-models.json")["model"]["fingerprint"]
        shutil.copytree(FILES / "model", folder / "models" / model)
    return folder


def same_processor() -> bool:
    """Return whether floats round as they did when the files were made."""
    made = read("made.json")
    try:
        names = re.findall(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        names = []
    here = (torch.backends.cpu.get_cpu_capability(), torch.__version__, names[:1])
    return here == (made["cpu"], made["versions"]["torch"], [made["machine"]["processor"]])


def assert_floats(found: Any, expected: Any, tolerance: float = 1e-3) -> None:
    """Compare bit for bit where that can be asked."""
    if same_processor():
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def assert_signs(codes: NDArray[np.uint8], expected: NDArray[np.uint8], outputs: NDArray[np.floating[Any]]) -> None:
    """Compare the bits of codes whose outputs are not near zero; all of them where floats round the same way."""
    if same_processor():
        np.testing.assert_array_equal(codes, expected)
    bits = outputs.shape[1]
    sure = np.abs(outputs) > MARGIN
    assert sure.mean() > 0.8
    found, known = (np.unpackbits(each, axis=1, count=bits, bitorder="little") for each in (codes, expected))
    np.testing.assert_array_equal(found[sure], known[sure])


def command(*words: object) -> Any:
    """Run a command as if it had been typed, and return the JSON that it prints."""
    from proxyhash.cli.app import main

    printed = io.StringIO()
    with redirect_stdout(printed):
        main([*(str(word) for word in words), "--json"])
    return json.loads(printed.getvalue())


class Steps:
    """Counts training steps."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, work: str, _: float) -> None:
        self.count += work.startswith("training")


def listed(matches: Any) -> dict[str, Any]:
    return {
        "keys": [match.key for match in matches],
        "distances": [match.distance for match in matches],
        "labels": [list(match.labels) for match in matches],
        "expected_precision": [match.expected_precision for match in matches],
        "matched": matches.matched,
    }


def test_random_streams_give_the_same_numbers() -> None:
    from proxyhash.support.seeds import generator, permutation

    table = read("streams.json")
    for stream in table["streams"]:
        seed, purpose = table["seed"], stream["purpose"]
        assert [str(n) for n in generator(seed, *purpose).bit_generator.random_raw(4)] == stream["raw"], purpose
        assert permutation(8, seed, *purpose).tolist() == stream["permutation"], purpose


def test_random_streams_keep_their_purposes() -> None:
    passed = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            # Purposes follow a seed, in calls of these two or of functions that pass them on.
            if isinstance(node, ast.Call) and re.search(
                r"\b(generator|permutation)\(|seed\b", ast.unparse(node), re.IGNORECASE
            ):
                passed |= {each.value for each in node.args[1:] if isinstance(each, ast.Constant)}
    purposes = {word for stream in read("streams.json")["streams"] for word in stream["purpose"] if isinstance(word, str)}
    by_name = {
        "convnet",
        "efficientnet_lite0",
        "learned",
        "random",
    }  # of backbones and kinds: the test of proxies has the latter
    assert purposes - by_name <= passed


def test_protocols_make_the_same_splits() -> None:
    from proxyhash.data import Dataset, make_split
    from proxyhash.data.images import ArrayImages

    def dataset(name: str, classes: int, images: int, queries: int, tags: bool = False) -> Dataset:
        pixels = ArrayImages(np.zeros((images, 1, 1, 3), np.uint8))
        names = tuple(f"class {number:04d}" for number in range(classes))
        if tags:
            matrix = np.zeros((images, classes + 4), bool)
            np.put_along_axis(matrix, np.arange(images)[:, None] * np.array([3, 5, 7]) % (classes + 4), True, 1)
            return Dataset(name, pixels, names, tags=matrix[:, :classes])
        parts = (np.arange(images) < queries).astype(np.int8) if queries else np.zeros(0, np.int8)
        return Dataset(name, pixels, names, np.arange(images) % classes, parts=parts)

    made = {json.dumps(case["data"]): case["data"] for case in read("splits.json")}
    datasets = {key: dataset(**facts) for key, facts in made.items()}
    for case in read("splits.json"):
        options = {name: case[name] for name in ("seed", "round", "validation")}
        split = make_split(datasets[json.dumps(case["data"])], case["protocol"], **options)
        assert split.record() == case["record"]
        held_out = [int(split.validation.sum()), int(split.validation_database.sum()), split.validation[:5].tolist()]
        assert held_out == case["held_out"]


def test_stored_proxies_are_read_as_they_were_written(tmp_path: Path) -> None:
    from proxyhash import ProxySet

    folder, weights, quality = copied("proxies", tmp_path), arrays("proxies/expected.npz"), read("proxies/expected.json")
    for kind, facts in quality.items():
        proxies = ProxySet.load(folder / f"{kind}.safetensors")
        np.testing.assert_array_equal(proxies.weights, weights[kind])
        assert (proxies.kind, proxies.seed) == (kind, 1)
        assert proxies.as_dict() == facts
        proxies.save(folder / "again.safetensors")
        np.testing.assert_array_equal(ProxySet.load(folder / "again.safetensors").weights, weights[kind])


@pytest.mark.filterwarnings("ignore::proxyhash.ProxyhashWarning")
def test_proxies_are_designed_as_before() -> None:
    from proxyhash import design_proxies

    points = np.sin(np.outer(np.arange(1, 11), np.arange(1, 6)) ** 1.5)
    unit = points / np.linalg.norm(points, axis=1, keepdims=True)
    weights, quality = arrays("proxies/expected.npz"), read("proxies/expected.json")
    for kind, facts in quality.items():
        proxies = design_proxies(10, 12, kind, (1 + unit @ unit.T) / 2, seed=1)
        if same_processor() or kind in ("learned", "random", "code"):
            np.testing.assert_allclose(proxies.weights, weights[kind], rtol=0 if same_processor() else 1e-6)
        # Elsewhere another optimum may be found, as good as the first.
        assert proxies.quality.min_distance == pytest.approx(facts["quality"]["min_distance"], rel=0.05)
    for classes, bits in ((40, 16), (7, 24), (100, 32), (17, 9)):
        np.testing.assert_array_equal(design_proxies(classes, bits, "code").weights, weights[f"code-{classes}-{bits}"])


@pytest.mark.parametrize("name", SAVED_METHODS)
def test_saved_methods_give_the_same_codes(name: str, tmp_path: Path) -> None:
    from proxyhash.methods.deep.fitting import HeadHasher
    from proxyhash.methods.shallow.feature_hasher import FeatureHasher

    expected = arrays("methods/expected.npz")
    path = copied("methods", tmp_path) / f"{name}.safetensors"
    encoder = FeatureHasher.load(path) if name in ("itq", "ksh") else HeadHasher.load(path)
    assert (encoder.method, encoder.bits) == (name, 8)
    outputs, codes = encoder.embed(expected["features"]), encoder.encode(expected["features"])
    assert_floats(outputs[:, :16], expected[f"{name}/outputs"])
    if name in ("softmax-pq", "subic"):
        np.testing.assert_array_equal(codes, expected[f"{name}/codes"])
    else:
        assert_signs(codes, expected[f"{name}/codes"], expected[f"{name}/outputs"])


@pytest.mark.filterwarnings("ignore::proxyhash.ProxyhashWarning")
def test_methods_are_fitted_as_before() -> None:
    from proxyhash.evaluation import bootstrap_interval, mean_average_precision
    from proxyhash.methods import Lesson, fit_method
    from proxyhash.training.plan import Plan

    expected, scores = arrays("methods/expected.npz"), read("methods/expected.json")
    features, labels = expected["features"], expected["labels"]
    plan = Plan.frozen(epochs=3, batch=20, hidden=8, rate=0.02, seed=1)
    for name, score in scores.items():
        settings = {"anchors": 12} if name in ("ksh", "sdh") else {}
        encoder = fit_method(name, Lesson(8, features, labels, seed=1), plan, **settings)
        if name in EIGENVECTORS and not same_processor():
            continue
        codes = encoder.encode(features)
        assert_floats(encoder.embed(features)[:, :16], expected[f"{name}/outputs"])
        if score["searches"].endswith("Hamming"):
            assert_signs(codes, expected[f"{name}/codes"], expected[f"{name}/outputs"])
        if same_processor():
            np.testing.assert_array_equal(codes, expected[f"{name}/codes"], name)
            metric = mean_average_precision(encoder.queries(features), labels, codes, labels)
            assert metric.value == pytest.approx(score["map"], rel=1e-12)
            assert bootstrap_interval(metric) == pytest.approx(score["interval"], rel=1e-12)


@pytest.mark.parametrize("name", ["scanned", "clustered"])
def test_scanned_or_clustered_index_gives_the_same_answers(name: str, tmp_path: Path) -> None:
    from proxyhash import Index

    folder, expected = index_folder(f"{name}-index", tmp_path), read(f"{name}-index/expected.json")
    queries = np.array(expected["queries"], np.uint8)
    with Index.open(folder) as index:
        assert (index.info().plan == "scan") == (name == "scanned"), "groups that are on disk are used"
        assert [listed(matches) for matches in index.search(queries, expected["k"])] == expected["nearest"]
        assert [listed(matches) for matches in index.within(queries, expected["radius"])] == expected["within"]
    assert command("index", "verify", folder)["whole"]


@pytest.mark.parametrize("name", ["scanned", "clustered"])
def test_index_takes_and_loses_items(name: str, tmp_path: Path) -> None:
    from proxyhash import Index

    folder, expected = index_folder(f"{name}-index", tmp_path), read(f"{name}-index/expected.json")
    queries = np.array(expected["queries"], np.uint8)
    with Index.open(folder) as index:
        before = len(index)
        index.add(queries, [f"new {number}" for number in range(len(queries))], ["new"] * len(queries))
        assert {"new 0", "new 1"} <= {match.key for matches in index.within(queries[:2], 0) for match in matches}
        index.remove([f"new {number}" for number in range(len(queries))])
        assert len(index) == before
        assert [listed(matches) for matches in index.search(queries, expected["k"])] == expected["nearest"]
    assert command("index", "verify", folder)["whole"]
    command("index", "compact", folder)
    with Index.open(folder) as index:
        assert [listed(matches) for matches in index.search(queries, expected["k"])] == expected["nearest"]


def test_clustered_index_is_searched_approximately_as_before(tmp_path: Path) -> None:
    pytest.importorskip("faiss")
    from proxyhash import Index

    expected = read("clustered-index/expected.json")
    with Index.open(index_folder("clustered-index", tmp_path)) as index:
        found = index.search(np.array(expected["queries"], np.uint8), expected["k"], approximate=4)
    assert [[match.distance for match in matches] for matches in found] == [
        matches["distances"] for matches in expected["approximate"]["nearest"]
    ]


@pytest.mark.parametrize("name", ["model", "shallow"])
def test_model_gives_the_same_codes(name: str, tmp_path: Path, photos: Path) -> None:
    from proxyhash import Hasher

    expected, known = read("expected-models.json")[name], arrays("expected-models.npz")
    folder = copied(name, tmp_path)
    images = [photos / path for path in expected["images"]]
    for path in (None, folder / "model.onnx"):
        if path is not None:
            path.unlink(missing_ok=True)
        hasher = Hasher.load(folder)
        np.testing.assert_array_equal(hasher.encode(images), known[f"{name}/codes"])
        np.testing.assert_allclose(hasher.embed(images), known[f"{name}/outputs"], atol=1e-4)
    assert hasher.bits == expected["bits"]
    assert list(hasher.names) == expected["names"]
    if "classes" in expected:
        assert hasher.classify(images) == expected["classes"]


def test_model_measures_as_before(tmp_path: Path, photos: Path) -> None:
    folder = copied("model", tmp_path)
    measured, kept = command("evaluate", "model", folder, "--data", photos), read("model/measured.json")
    for name in ("map", "accuracy"):
        assert measured[name] == pytest.approx(kept[name], rel=1e-9)
    assert measured["binarisation_error"] == pytest.approx(kept["binarisation_error"], rel=1e-4)
    assert {metric["name"]: metric["value"] for metric in measured["metrics"]} == pytest.approx(
        {metric["name"]: metric["value"] for metric in kept["metrics"]}, rel=1e-9
    )
    assert measured["protocol"] == kept["protocol"]
    calibrated = command("index", "calibrate", folder, "--data", photos)
    assert calibrated["precision"] == pytest.approx(read("model/calibration.json")["precision"], rel=1e-9)


def test_features_in_the_cache_are_found_again(tmp_path: Path, photos: Path, cache: Path) -> None:
    before = {path.name for path in (cache / "features").iterdir()}
    measured = command("evaluate", "model", copied("shallow", tmp_path), "--data", photos)
    assert measured["map"] == pytest.approx(read("shallow/measured.json")["map"], rel=1e-9)
    assert {path.name for path in (cache / "features").iterdir()} == before


def test_index_of_images_gives_the_same_answers(tmp_path: Path, photos: Path) -> None:
    from proxyhash import Index

    folder, expected = index_folder("photos-index", tmp_path), read("photos-index/expected.json")
    queries = [photos / name for name in expected["queries"]]
    with Index.open(folder, model=copied("model", tmp_path)) as index:  # its own model, by the fingerprint
        assert index.model == read("expected-models.json")["model"]["fingerprint"]
        assert [listed(matches) for matches in index.search(queries, expected["k"])] == expected["nearest"]
        assert [listed(matches) for matches in index.within(queries, expected["radius"])] == expected["within"]
        item = index.item(expected["item"]["key"])
        assert list(item.labels) == expected["item"]["labels"]
        assert index.info().calibrated
        reranked = index.search(queries, expected["k"], rerank=expected["reranked"]["rerank"])
        for matches, keys in zip(reranked, expected["reranked"]["keys"], strict=True):
            assert set(keys[:3]) & {match.key for match in matches}
            if same_processor():
                assert [match.key for match in matches] == keys
    assert command("index", "verify", folder)["whole"]


def test_index_knows_its_model_when_that_is_saved_again(tmp_path: Path) -> None:
    from proxyhash import Hasher, Index

    folder, model = index_folder("photos-index", tmp_path), copied("model", tmp_path)
    Hasher.load(model).save(tmp_path / "again")
    with Index.open(folder, model=tmp_path / "again") as index:
        assert index.model == read("expected-models.json")["model"]["fingerprint"]


def test_shards_are_not_encoded_again(tmp_path: Path, photos: Path) -> None:
    shards, model = copied("shards", tmp_path), copied("model", tmp_path)
    before = {path.name: path.stat().st_mtime_ns for path in shards.iterdir()}
    done = command("encode", model, photos, "--shards", shards, "--shard-size", 30)
    assert (done["written"], done["there"]) == (0, 3)
    assert {path.name: path.stat().st_mtime_ns for path in shards.iterdir()} == before


def test_shards_and_files_of_codes_are_imported(tmp_path: Path, photos: Path) -> None:
    from proxyhash import Index

    codes = arrays("expected-models.npz")["model/all_codes"]
    keys = [path.relative_to(photos).as_posix() for path in sorted(photos.glob("*/*.png"))]
    command("index", "import", copied("shards", tmp_path), "--model", copied("model", tmp_path), "--index", tmp_path / "one")
    shutil.copyfile(FILES / "codes.npz", tmp_path / "codes.npz")
    command("index", "import", tmp_path / "codes.npz", "--index", tmp_path / "two")
    for name in ("one", "two"):
        with Index.open(tmp_path / name) as index:
            assert len(index) == len(keys)
            np.testing.assert_array_equal(np.concatenate([index.code(key) for key in keys]), codes)
            assert index.item("two/012.png").labels == (("two",) if name == "one" else ())


def test_records_are_read(tmp_path: Path) -> None:
    from proxyhash.experiments import read_records

    records = {record.file_name: record for record in read_records(copied("records", tmp_path))}
    paths = sorted((FILES / "records").iterdir())
    assert len(paths) == 13
    assert records.keys() == {path.name for path in paths}, "a file's name is made of what it says"
    for path in paths:
        record, stored = records[path.name], json.loads(path.read_text())
        assert (record.key, record.bits, record.trial["label"]) == (stored["key"], stored["bits"], stored["trial"]["label"])
        assert record.metrics["map"] == stored["metrics"]["map"]
        assert record.metrics["all"] == stored["metrics"]["all"]


def test_records_are_reported(tmp_path: Path) -> None:
    from proxyhash.experiments import read_records
    from proxyhash.report import compare

    compared = repr(compare(read_records(copied("records", tmp_path))))
    for method in ("softmax-pq", "sdh", "learned"):
        assert method in compared


@pytest.mark.parametrize("name", ["frozen", "transfer", "finetuned"])
def test_complete_grid_is_not_run_again(name: str, tmp_path: Path) -> None:
    folder = copied(f"grids/{name}", tmp_path)
    before = {path.name: path.read_bytes() for path in (folder / "records").iterdir()}
    records = command("benchmark", "--recipe", folder / "recipe.toml", "-o", folder / "records")
    found = [(record["trial"]["label"], record["bits"], record["metrics"]["map"]) for record in records]
    assert found == [(each["label"], each["bits"], each["map"]) for each in read(f"grids/{name}/expected.json")]
    assert {path.name: path.read_bytes() for path in (folder / "records").iterdir()} == before


def test_tuned_grid_is_not_run_again(tmp_path: Path) -> None:
    from proxyhash.experiments import Grid, run_grid
    from proxyhash.experiments.tuning import tune

    folder = copied("grids/tuned", tmp_path) / "records"
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    plan = {"epochs": 1, "hidden": 16}
    grid = Grid("digits", ("lsh", "itq-cca", "shclm:triplet=1"), (8,), backbone="convnet", plan=plan)
    tune(grid, folder)
    records = run_grid(grid.with_choices(folder / "chosen.toml"), folder)
    found = [(record.trial["label"], record.bits, record.metrics["map"]) for record in records]
    assert found == [(each["label"], each["bits"], each["map"]) for each in read("grids/tuned/expected.json")]
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_choices_are_read(tmp_path: Path) -> None:
    from proxyhash.experiments import Grid
    from proxyhash.experiments.tuning import tuned_grids

    grid = Grid("cifar100", ("shclm:triplet=1", "shclm", "itq-cca", "bhc", "sdh"), (16,))
    (chosen,) = tuned_grids(grid, copied("chosen", tmp_path))
    assert [trial.facts(tags=False) for trial in chosen.trials()] == read("chosen/expected.json")
    rounds = Grid("cifar100", ("itq-cca", "ksh"), (16,), protocol="transfer", rounds=(0, 1))
    first, second = tuned_grids(rounds, copied("chosen-rounds", tmp_path))
    assert (first.rounds, second.rounds) == ((0,), (1,))
    assert first.settings == {"itq-cca": {"ridge": 10.0}, "ksh": {"anchors": 1000}}


def resumed(name: str, photos: Path, run: Path) -> tuple[list[Any], int]:
    """Go on with a run, and return its hashers and how many steps were left."""
    from proxyhash.data import load_dataset, make_split
    from proxyhash.training.plan import Plan
    from proxyhash.training.train import Order, train_hashers

    if name == "finetuned":
        plan = Plan.finetune(batch=20, epochs=3)
        order = Order((8, 16), "shclm", {"triplet": 1}, "convnet", image_size=16, plan=plan)
    else:
        ema = 0.5 if name == "learned" else 0.0
        plan = Plan.frozen(epochs=3, batch=20, hidden=0, rate=0.05, dropout=0.1, ema=ema)
        order = Order((8,), name, {"tau": 4.0} if name == "learned" else {}, "convnet", image_size=16, plan=plan)
    dataset, steps = load_dataset(photos), Steps()
    return train_hashers(dataset, make_split(dataset), order, run, resume=True, progress=steps), steps.count


def assert_outcome(name: str, hasher: Any, photos: Path) -> None:
    """Compare a hasher with that of the run that nobody stopped."""
    expected = arrays("runs/expected.npz")
    outputs = hasher.embed(sorted(photos.glob("*/*.png")))
    codes = hasher.head.codes(outputs)
    assert_floats(outputs, expected[f"{name}/outputs"], 1e-2)
    if f"{name}/sure" in expected:
        sure = expected[f"{name}/sure"]
        np.testing.assert_array_equal(codes[sure], expected[f"{name}/codes"][sure])
    if same_processor():
        np.testing.assert_array_equal(codes, expected[f"{name}/codes"])
        if f"{name}/training_codes" in expected:
            np.testing.assert_array_equal(hasher.training_codes, expected[f"{name}/training_codes"])


@pytest.mark.parametrize("name", RUNS)
def test_stopped_run_ends_as_if_nobody_had_stopped_it(name: str, tmp_path: Path, photos: Path) -> None:
    (hasher,), steps = resumed(name, photos, copied(f"runs/{name}", tmp_path))
    assert steps == read("runs/expected.json")["steps_left"][name]
    assert_outcome(name, hasher, photos)


def test_stopped_run_of_two_lengths_ends_as_if_nobody_had_stopped_it(tmp_path: Path, photos: Path) -> None:
    hashers, steps = resumed("finetuned", photos, copied("runs/finetuned", tmp_path))
    assert steps == read("runs/expected.json")["steps_left"]["finetuned"]
    for hasher in hashers:
        assert_outcome(f"finetuned-{hasher.bits}", hasher, photos)


def test_finished_run_gives_its_best_epoch(tmp_path: Path, photos: Path) -> None:
    run = copied("runs/finished", tmp_path)
    (hasher,), steps = resumed("csq", photos, run)
    assert steps == 0
    assert_outcome("csq", hasher, photos)
    log = [json.loads(line) for line in (FILES / "runs/finished/log.jsonl").read_text().splitlines()]
    best = max(log, key=lambda line: float(line["map"]))
    assert (hasher.record["validation"]["epoch"], hasher.record["validation"]["map"]) == (best["epoch"], best["map"])


def test_grid_that_was_stopped_goes_on(tmp_path: Path, photos: Path) -> None:
    from dataclasses import replace

    from proxyhash.experiments import Grid, run_grid

    folder, steps = copied("grids/under-way", tmp_path), Steps()
    grid = replace(Grid.from_toml(folder / "recipe.toml"), data=str(photos))
    (record,) = run_grid(grid, folder / "records", progress=steps)
    assert steps.count == read("grids/under-way/expected.json")["steps_left"]
    (expected,) = read("grids/under-way/expected.json")["records"]
    assert (record.file_name, record.trial["label"]) == (expected["file"], expected["label"])
    assert record.metrics["map"] == pytest.approx(expected["map"], abs=1e-12 if same_processor() else 0.05)
    assert [path.name for path in (folder / "records").iterdir()] == [expected["file"]]


def test_finished_quickstart_is_not_run_again(tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "quick"
    shutil.copytree(FILES / "quickstart", out)
    shutil.copytree(FILES / "model", out / "model")
    for name in ("index", "results"):
        (out / name).mkdir()
    (out / "report.html").write_text("")
    before = (out / "quickstart.json").read_bytes()
    shutil.copytree(photos, tmp_path / "photos", copy_function=shutil.copy2)
    monkeypatch.chdir(tmp_path)
    words = ("--bits", 8, "--backbone", "convnet", "--epochs", 2, "-o", "quick")
    told = command("quickstart", "photos", *words)
    assert (out / "quickstart.json").read_bytes() == before
    assert told["numbers"]["map"] == json.loads(before)["steps"]["measuring"]["answer"]["map"]
