import json
from dataclasses import replace
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest

import proxyhash
from proxyhash import Hasher, InputError
from proxyhash.codes import pack
from proxyhash.data import load_dataset, make_split
from proxyhash.evaluation import EncodedSplit, evaluate, evaluate_hasher
from proxyhash.evaluation.hasher import embed_split, encode_split
from proxyhash.models.heads import LinearHead
from proxyhash.models.network import HashNetwork
from proxyhash.utils.formats import read_json
from proxyhash.utils.progress import no_progress


@pytest.fixture(scope="module")
def hasher(tmp_path_factory: pytest.TempPathFactory, model: Path) -> Hasher:
    return Hasher.load(Path(copytree(model, tmp_path_factory.mktemp("evaluated") / "model")))


def test_a_hasher_and_its_codes_give_the_same_report(hasher: Hasher) -> None:
    digits = load_dataset("digits")
    split = make_split(digits, validation="none")
    report = evaluate_hasher(hasher, digits, split)
    embeddings, readable = embed_split(hasher, digits, split, no_progress)
    assert readable.all()
    encoded = encode_split(hasher, embeddings, split)
    again = evaluate_hasher(encoded, digits, split)
    assert again.as_dict() == report.as_dict()
    labels = digits.require_labels().values
    metrics = evaluate(encoded.query_codes, labels[split.query], encoded.database_codes, labels[split.database], split.top)
    assert [metric.as_dict() for metric in metrics] == report.as_dict()["metrics"]
    assert report.map == metrics[0].value


def test_codes_without_a_hasher_have_no_metrics_of_embeddings() -> None:
    digits = load_dataset("digits")
    split = make_split(digits, validation="none")
    signs = np.where(np.random.default_rng(0).random((len(digits), 8)) < 0.5, -1, 1)
    q, db = pack(signs[split.query]), pack(signs[split.database])
    report = evaluate_hasher(EncodedSplit(q, q, db, bits=8), digits, split, detailed=True)
    assert (report.accuracy, report.binarization_error) == (None, None)
    assert report.precision_recall is not None
    assert report.classification is None, "training saw these classes"


def test_outputs_that_are_not_bounded_have_no_binarization_error(hasher: Hasher) -> None:
    digits = load_dataset("digits")
    split = make_split(digits, validation="none")
    embeddings, _ = embed_split(hasher, digits, split, no_progress)
    bounded = evaluate_hasher(encode_split(hasher, embeddings, split), digits, split)
    assert bounded.binarization_error is not None
    linear = replace(hasher, network=HashNetwork(hasher.backbone, LinearHead(hasher.head.config)), onnx=None)
    report = evaluate_hasher(encode_split(linear, embeddings, split), digits, split)
    assert report.binarization_error is None
    assert report.map == bounded.map


def test_saved_report_is_shown_by_the_card(hasher: Hasher) -> None:
    digits = load_dataset("digits")
    report = evaluate_hasher(hasher, digits, make_split(digits, validation="none"))
    assert hasher.folder is not None
    report.save(hasher.folder)
    saved = read_json(hasher.folder / "metrics.json")
    expected = {"format": "proxyhash.metrics/2", "requires": "0.2", **json.loads(json.dumps(report.as_dict()))}
    assert saved == expected
    assert f"| mAP | {report.map:.4f} |" in (hasher.folder / "README.md").read_text()


def test_cutoff_of_the_protocol_can_be_replaced(hasher: Hasher) -> None:
    plain = proxyhash.evaluate(hasher, "digits")
    report = proxyhash.evaluate(hasher, "digits", top=20, denominator="capped")
    assert report.metrics[0].name == "mAP@20[capped] [ties expected]"
    assert report.as_dict()["protocol"] | {"top": None, "denominator": "relevant"} == plain.as_dict()["protocol"]
    assert report.map == report.metrics[0].value != plain.map
    with pytest.raises(InputError, match="The denominator retrieved needs a cutoff"):
        proxyhash.evaluate(hasher, "digits", denominator="retrieved")


def test_card_names_the_cutoff_of_the_saved_report(hasher: Hasher) -> None:
    assert hasher.folder is not None
    proxyhash.evaluate(hasher, "digits", top=20, denominator="capped").save(hasher.folder)
    assert r"held-out queries, mAP@20\[capped\] |" in (hasher.folder / "README.md").read_text()
