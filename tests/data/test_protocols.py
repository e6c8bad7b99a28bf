"""Every protocol keeps the contract, and the published ones choose what they always chose."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.datasets import labeled_dataset, tagged_dataset
from proxyhash.data import Dataset, Split, default_protocol, get_protocol, list_protocols, make_split
from proxyhash.data.catalog import DATASETS
from proxyhash.data.dataset import SPLITS
from proxyhash.data.images import ArrayImages
from proxyhash.data.protocols.general import class_folds
from proxyhash.data.protocols.sampling import sample_per_class, sample_per_tag
from proxyhash.labels import ClassLabels
from proxyhash.utils.errors import InputError

CIFAR10 = labeled_dataset("cifar10", np.arange(60_000) % 10, queries=10_000)
CIFAR100 = labeled_dataset("cifar100", np.arange(60_000) % 100, queries=10_000)
ILSVRC = labeled_dataset("ilsvrc2012", np.arange(12_000) % 1000, queries=2_000)
NUSWIDE = tagged_dataset("nuswide", 40_000)
FOLDER = labeled_dataset("photos", np.arange(900) % 9)
TAGGED = tagged_dataset("photos", 500, 30)

CASES = [
    (data, name)
    for data in (CIFAR10, CIFAR100, ILSVRC, NUSWIDE, FOLDER, TAGGED)
    for name in list_protocols(data.name)
    if get_protocol(name, data.name).kind == data.kind
]


def disjoint(*sets: "np.ndarray[Any, Any]") -> bool:
    together = np.concatenate(sets)
    return len(np.unique(together)) == len(together)


def inside(part: "np.ndarray[Any, Any]", whole: "np.ndarray[Any, Any]") -> bool:
    return set(part.tolist()) <= set(whole.tolist())


def keeps_the_contract(data: Dataset, split: Split) -> None:
    for indices in (split.train, split.validation, split.validation_database, split.query, split.database):
        assert (np.diff(indices) > 0).all()  # sorted, none twice
        assert inside(indices, data.labeled())
    assert min(len(split.train), len(split.query), len(split.database)) > 0
    assert disjoint(split.query, split.database)
    assert disjoint(split.query, split.training_set)
    assert disjoint(split.train, split.validation)
    assert disjoint(split.validation, split.validation_database)


def test_every_protocol_is_among_the_cases() -> None:
    assert {name for _, name in CASES} == set(list_protocols())


@pytest.mark.parametrize(("data", "name"), CASES, ids=lambda value: value if isinstance(value, str) else value.name)
def test_every_protocol_keeps_the_contract(data: Dataset, name: str) -> None:
    split, whole = make_split(data, name), make_split(data, name, validation="none")
    for each in (split, whole):
        keeps_the_contract(data, each)
    assert len(split.validation) > len(whole.validation) == 0
    np.testing.assert_array_equal(split.training_set, whole.train)
    np.testing.assert_array_equal(split.query, whole.query)
    assert f"{name}@1 of {data.name}" in repr(split)
    record = split.as_dict()
    assert record["fingerprint"] == split.fingerprint()
    assert record["sizes"] == {
        "train": len(split.train),
        "validation": len(split.validation),
        "validation_database": len(split.validation_database),
        "query": len(split.query),
        "database": len(split.database),
    }


@pytest.mark.parametrize(
    ("data", "name", "sizes", "top"),
    [
        (CIFAR10, "cifar10-paper", (50_000, 10_000, 50_000), None),
        (CIFAR100, "cifar100-paper", (50_000, 10_000, 50_000), None),
        (ILSVRC, "ilsvrc2012-paper", (10_000, 2_000, 10_000), 50_000),
        (CIFAR10, "cifar10-q1000-t500", (5_000, 1_000, 59_000), None),
        (CIFAR10, "cifar10-q1000-t5000", (50_000, 1_000, 59_000), None),
        (CIFAR10, "cifar10-q10000-t500", (5_000, 10_000, 50_000), None),
        (CIFAR10, "cifar10-q10000-t5000", (50_000, 10_000, 50_000), None),
        (CIFAR10, "cifar10-q1000-t500-apart", (5_000, 1_000, 54_000), None),
        (NUSWIDE, "nuswide-paper", (37_900, 2_100, 37_900), 50_000),
        (NUSWIDE, "nuswide-t10500", (10_500, 2_100, 37_900), 5_000),
    ],
)
def test_published_sizes_are_what_the_summaries_say(
    data: Dataset, name: str, sizes: tuple[int, int, int], top: int | None
) -> None:
    split = make_split(data, name, validation="none")
    assert (len(split.train), len(split.query), len(split.database), split.top) == (*sizes, top)
    if data.kind == "classes":
        for indices in (split.train, split.query, split.database):
            assert len(set(np.bincount(data.require_classes().values[indices]))) == 1  # classes are balanced
    assert inside(split.train, split.database) != name.endswith("apart")


def test_cutoff_and_denominator_of_a_protocol_are_part_of_its_metric() -> None:
    names = {name: get_protocol(name, data.name).map_name for data, name in CASES}
    assert {name: found for name, found in names.items() if found != "mAP"} == {
        "ilsvrc2012-paper": "mAP@50000[retrieved]",
        "ilsvrc2012-transfer": "mAP@50000[retrieved]",
        "nuswide-paper": "mAP@50000[retrieved]",
        "nuswide-t10500": "mAP@5000[retrieved]",
    }


@pytest.mark.parametrize(
    ("data", "options", "name"),
    [
        (FOLDER, {}, "mAP"),
        (FOLDER, {"top": 50}, "mAP@50[relevant]"),
        (FOLDER, {"top": 50, "denominator": "capped"}, "mAP@50[capped]"),
        (FOLDER, {"denominator": "relevant"}, "mAP"),
        (NUSWIDE, {}, "mAP@50000[retrieved]"),
        (NUSWIDE, {"denominator": "relevant"}, "mAP@50000[relevant]"),
        (NUSWIDE, {"top": 100}, "mAP@100[retrieved]"),
    ],
)
def test_cutoff_and_denominator_can_be_chosen_for_any_data_set(data: Dataset, options: dict[str, Any], name: str) -> None:
    split = make_split(data, **options)
    assert split.map_name == name
    assert repr(split).endswith(f"; {name})")
    assert (split.as_dict()["top"], split.as_dict()["denominator"]) == (split.top, split.denominator)
    assert split.fingerprint() == make_split(data).fingerprint(), "the same images"


PINNED = {
    "cifar10 holdout": "2d2bc461ce55344d",
    "cifar10 cifar10-paper": "2d2bc461ce55344d",
    "cifar10 cifar10-q1000-t500": "79b6fd485c9d83bf",
    "cifar10 cifar10-q1000-t5000": "76c6977564a248fc",
    "cifar10 cifar10-q10000-t500": "df1b7701b3f590ab",
    "cifar10 cifar10-q10000-t5000": "c0e0686614bdee3f",
    "cifar10 cifar10-q1000-t500-apart": "abaa485bea18d69d",
    "cifar10 transfer": "02c8ea3cae617204",
    "cifar100 holdout": "2d2bc461ce55344d",
    "cifar100 cifar100-paper": "2d2bc461ce55344d",
    "cifar100 transfer": "9b98e14780bfefb5",
    "ilsvrc2012 holdout": "e80459fbf9435138",
    "ilsvrc2012 ilsvrc2012-paper": "e80459fbf9435138",
    "ilsvrc2012 ilsvrc2012-transfer": "e4e87479fccfe1b8",
    "nuswide multi-label": "a5e2fc6fc56d3fb3",
    "nuswide nuswide-paper": "a4efbb1a3126e175",
    "nuswide nuswide-t10500": "eb58db774a231455",
}


def test_published_choices_never_change() -> None:
    found = {f"{data.name} {name}": make_split(data, name).fingerprint() for data, name in CASES if data.name in DATASETS}
    assert found == PINNED


def test_published_choices_depend_on_no_seed_but_for_validation() -> None:
    one, two = (make_split(CIFAR10, "q1000-t500", seed=seed) for seed in (0, 1))
    np.testing.assert_array_equal(one.query, two.query)
    np.testing.assert_array_equal(one.training_set, two.training_set)
    assert not np.array_equal(one.validation, two.validation)
    assert one.fingerprint() == two.fingerprint()


def test_every_tag_gets_its_queries_rarest_first() -> None:
    query = make_split(NUSWIDE, "paper").query
    assert (NUSWIDE.require_tags().values[query].sum(0) >= 100).all()
    scarce = np.zeros((50, 2), bool)
    scarce[:, 0] = True
    scarce[:5, 1] = True
    chosen = sample_per_tag(np.arange(50), scarce, 10, 0, "x")
    assert len(chosen) == 15
    assert scarce[chosen, 1].sum() == 5


def test_classes_with_too_few_images_give_all() -> None:
    labels = np.array([0] * 3 + [1] * 10)
    chosen = sample_per_class(np.arange(13), labels, 5, 0, "x")
    assert np.bincount(labels[chosen]).tolist() == [3, 5]


def test_transfer_has_four_folds_of_unseen_classes() -> None:
    splits = [make_split(CIFAR100, "transfer", fold=fold) for fold in range(4)]
    labels = CIFAR100.require_classes().values
    unseen = [np.unique(labels[split.query]) for split in splits]
    assert disjoint(*unseen)
    assert np.sort(np.concatenate(unseen)).tolist() == list(range(100))
    for split, classes in zip(splits, unseen, strict=True):
        keeps_the_contract(CIFAR100, split)
        assert not np.isin(labels[split.training_set], classes).any()
        assert np.isin(labels[split.database], classes).all()
        assert (len(split.training_set), len(split.query), len(split.database)) == (37_500, 2_500, 12_500)
        np.testing.assert_array_equal(np.sort(np.concatenate([split.classes, classes])), np.arange(100))
        held = np.unique(labels[split.validation])
        assert len(held) == 15
        assert not np.isin(labels[split.train], held).any()
        np.testing.assert_array_equal(np.unique(labels[split.validation_database]), held)
    assert inside(splits[0].query, CIFAR100.split_indices("query"))
    assert make_split(CIFAR100, "transfer", validation="images").validation.size == 3_750


@given(st.integers(8, 60))
def test_class_folds_are_disjoint_complete_and_even(classes: int) -> None:
    parts = class_folds(classes)
    assert np.sort(np.concatenate(parts)).tolist() == list(range(classes))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_transfer_without_parts_holds_queries_out_of_the_unseen() -> None:
    split = make_split(FOLDER, "transfer", fold=1)
    keeps_the_contract(FOLDER, split)
    hidden = np.unique(FOLDER.require_classes().values[split.query])
    assert len(split.query) == 10 * len(hidden)
    assert split.note == f"fold 2 of 4, {len(hidden)} unseen classes"


@given(st.lists(st.integers(0, 12), min_size=2, max_size=200), st.integers(0, 3))
def test_a_hold_out_survives_singletons_and_long_tails(values: list[int], seed: int) -> None:
    labels = np.unique(np.array(values), return_inverse=True)[1]
    data = labeled_dataset("photos", labels)
    counts = np.bincount(labels)
    if counts.max() == 1:
        with pytest.raises(InputError, match=r"photos is too small for the protocol holdout: it leaves .* 0 queries"):
            make_split(data, seed=seed)
        return
    split = make_split(data, seed=seed)
    keeps_the_contract(data, split)
    asked = np.bincount(labels[split.query], minlength=len(counts))
    assert (asked[counts == 1] == 0).all()
    assert (asked[counts > 1] >= 1).all()
    assert (asked < counts).all()
    assert inside(labels[split.validation], labels[split.train])
    assert split.note == f"{len(split.query):,} queries were held out"
    np.testing.assert_array_equal(np.union1d(split.query, split.database), np.arange(len(labels)))


def with_parts(**sizes: int) -> Dataset:
    parts = np.concatenate([np.full(size, SPLITS.index(name) if name in SPLITS else -1) for name, size in sizes.items()])
    pixels = np.zeros((len(parts), 1, 1, 3), np.uint8)
    return Dataset(
        "photos", ArrayImages(pixels), ClassLabels(np.arange(len(parts)) % 2, ("a", "b")), splits=parts.astype(np.int8)
    )


@pytest.mark.parametrize(
    ("sizes", "train", "query", "database"),
    [
        ({"train": 40, "query": 20, "database": 60}, 40, 20, 60),
        ({"train": 40, "query": 20}, 40, 20, 40),
        ({"query": 20, "database": 60}, 60, 20, 60),
        ({"train": 40, "database": 60}, 40, 6, 54),
        ({"train": 40}, 36, 4, 36),
        ({"query": 20, "nothing": 30}, 30, 20, 30),
        ({"train": 40, "query": 20, "nothing": 30}, 40, 20, 40),
    ],
)
def test_a_folder_s_own_parts_are_used(sizes: dict[str, int], train: int, query: int, database: int) -> None:
    data = with_parts(**sizes)
    split = make_split(data)
    keeps_the_contract(data, split)
    assert (len(split.training_set), len(split.query), len(split.database)) == (train, query, database)
    assert (split.note == "the queries are the data set's own") == ("query" in sizes)


def test_what_is_held_out_moves_with_the_seed() -> None:
    fingerprints = {make_split(FOLDER, seed=seed).fingerprint() for seed in range(5)}
    assert len(fingerprints) == 5
    counts = [np.bincount(FOLDER.require_classes().values[make_split(FOLDER, seed=seed).query]) for seed in range(3)]
    assert all((one == two).all() for one, two in pairwise(counts))


def test_images_without_labels_are_left_out() -> None:
    labels = np.arange(100) % 5
    labels[90:] = -1
    split = make_split(labeled_dataset("photos", labels))
    assert max(split.database.max(), split.query.max()) < 90


def test_short_names_and_defaults() -> None:
    assert get_protocol("paper", "cifar100").name == "cifar100-paper"
    assert get_protocol("transfer", "ilsvrc2012").name == "ilsvrc2012-transfer"
    assert get_protocol("transfer", "cifar100").name == "transfer"
    assert default_protocol(CIFAR10) == "cifar10-paper"
    assert default_protocol(NUSWIDE) == "nuswide-paper"
    assert default_protocol(FOLDER) == "holdout"
    assert default_protocol(TAGGED) == "multi-label"
    assert list_protocols("digits") == ["holdout", "transfer"]
    assert "transfer" not in list_protocols("ilsvrc2012")


@pytest.mark.parametrize(
    ("data", "arguments", "sentence"),
    [
        (
            CIFAR100,
            {"protocol": "q1000-t500"},
            "no protocol 'q1000-t500' for cifar100; choose from holdout, ",
        ),
        (FOLDER, {"protocol": "cifar10-paper"}, "There is no protocol 'cifar10-paper' for photos"),
        (FOLDER, {"protocol": "multi-label"}, "The protocol multi-label needs tags, and photos has classes."),
        (TAGGED, {"protocol": "transfer"}, "The protocol transfer needs classes, and photos has tags."),
        (TAGGED, {"validation": "classes"}, "photos has tags: hold out images for validation, not classes."),
        (FOLDER, {"validation": "some"}, "Validation holds out images, classes or none, not 'some'."),
        (FOLDER, {"protocol": "transfer", "fold": 4}, "The protocol transfer has folds 0 to 3, not 4."),
        (FOLDER, {"fold": 1}, "The protocol holdout has no folds."),
        (FOLDER, {"fold": -1}, "The fold must be at least 0, not -1."),
        (FOLDER, {"seed": -1}, "The seed must be at least 0, not -1."),
        (FOLDER, {"denominator": "retrieved"}, "The denominator retrieved needs a cutoff: give top too, such as 5000."),
        (FOLDER, {"top": 9, "denominator": "hits"}, "no denominator 'hits'; choose from relevant, capped, retrieved."),
        (FOLDER, {"top": 0}, "top must be at least 1, not 0."),
        (labeled_dataset("photos", np.arange(70) % 7), {"protocol": "transfer"}, "has 7 classes; transfer needs at least 8"),
        (labeled_dataset("photos", np.arange(30) % 3), {"validation": "classes"}, "trains on 3 classes: too few"),
        (Dataset("photos", FOLDER.images), {}, "photos has no labels: nothing says which images are alike"),
    ],
)
def test_impossible_options_are_explained(data: Dataset, arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InputError) as raised:
        make_split(data, **arguments)
    assert sentence in str(raised.value)
