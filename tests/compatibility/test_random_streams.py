import ast
import json
import re
from pathlib import Path

import numpy as np

from helpers.release_0_1 import read_json
from proxyhash.utils.legacy_names import upgrade_split

SOURCE = Path(__file__).parents[2] / "src"


def test_random_streams_give_the_same_numbers() -> None:
    from proxyhash.utils.random import generator, permutation

    table = read_json("streams.json")
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
    purposes = {
        word for stream in read_json("streams.json")["streams"] for word in stream["purpose"] if isinstance(word, str)
    }
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
    from proxyhash.labels import ClassLabels, TagLabels

    def dataset(name: str, classes: int, images: int, queries: int, tags: bool = False) -> Dataset:
        pixels = ArrayImages(np.zeros((images, 1, 1, 3), np.uint8))
        names = tuple(f"class {number:04d}" for number in range(classes))
        if tags:
            matrix = np.zeros((images, classes + 4), bool)
            np.put_along_axis(matrix, np.arange(images)[:, None] * np.array([3, 5, 7]) % (classes + 4), True, 1)
            return Dataset(name, pixels, TagLabels(matrix[:, :classes], names))
        parts = (np.arange(images) < queries).astype(np.int8) if queries else np.zeros(0, np.int8)
        return Dataset(name, pixels, ClassLabels(np.arange(images) % classes, names), parts)

    made = {json.dumps(case["data"]): case["data"] for case in read_json("splits.json")}
    datasets = {key: dataset(**facts) for key, facts in made.items()}
    for case in read_json("splits.json"):
        options = {"seed": case["seed"], "fold": case["round"], "validation": case["validation"]}
        split = make_split(datasets[json.dumps(case["data"])], case["protocol"], **options)
        made = split.as_dict()
        assert made.pop("denominator") == ("relevant" if split.top is None else "retrieved")  # it was always relevant
        assert made == upgrade_split(case["record"])
        held_out = [int(split.validation.sum()), int(split.validation_database.sum()), split.validation[:5].tolist()]
        assert held_out == case["held_out"]
