"""Checks of images, labels and splits, collected in one report."""

from collections.abc import Iterator

import numpy as np

from proxyhash.data.catalog import DATASETS
from proxyhash.data.checks.duplicates import duplicates
from proxyhash.data.checks.pixels import duplicate_groups, pixel_digests, readable_images
from proxyhash.data.checks.report import DatasetReport, Finding, Level
from proxyhash.data.dataset import SPLITS, Dataset
from proxyhash.data.decoding import EMPTY, UNREADABLE
from proxyhash.data.protocols import Split
from proxyhash.data.readers.folder import EMPTY_CLASS
from proxyhash.data.readers.listing import IGNORED
from proxyhash.data.skipped import MAX_EXAMPLES, SkippedItems
from proxyhash.utils.progress import Progress, no_progress

_NOTES = (EMPTY_CLASS, *IGNORED)  # left out, but nothing is wrong with them
FEW = 5  # images of a class below which neither training nor a hold-out is meaningful


def check_dataset(
    dataset: Dataset,
    split: Split | None = None,
    *,
    pretrained_on: str | None = None,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> DatasetReport:
    """Read every image of a data set and judge it, and a protocol's split of it.

    `pretrained_on` names what a backbone has seen ("ILSVRC-2012"); classes among it cannot count as unseen.
    """
    skipped = dataset.skipped.copy()
    found = pixel_digests(dataset.images, skipped, threads, progress)
    groups = duplicate_groups(found)
    findings = [*_skipped(len(dataset), skipped), *_sizes(dataset), *duplicates(dataset, groups, split)]
    if split is not None:
        findings += [*_relevance(dataset, split), *_unseen(dataset, split, pretrained_on)]
    facts = _facts(dataset, int(readable_images(found).sum()))
    return DatasetReport(facts, tuple(findings), None if split is None else split.as_dict())


def _facts(dataset: Dataset, readable_images: int) -> dict[str, object]:
    splits = {name: int((dataset.splits == number).sum()) for number, name in enumerate(SPLITS)}
    return {
        "name": dataset.name,
        "kind": dataset.kind,
        "images": len(dataset),
        "readable": readable_images,
        "classes": len(dataset.class_names),
        "without label": len(dataset) - len(dataset.labeled()),
        "splits": {name: count for name, count in splits.items() if count},
    }


def _skipped(images: int, skipped: SkippedItems) -> Iterator[Finding]:
    """Say what could not be used."""
    if not skipped.counts[UNREADABLE] and not skipped.counts[EMPTY]:
        yield Finding("ok", f"all {images:,} images can be decoded")
    for kind, count in skipped.counts.items():
        if count:
            level: Level = "note" if kind in _NOTES else "warning"
            yield Finding(level, f"{kind}, skipped", count, tuple(skipped.examples[kind]))


def _sizes(dataset: Dataset) -> Iterator[Finding]:
    """Say how images are spread over classes or tags."""
    labels = dataset.labels
    if labels is None:
        yield Finding("note", "no labels: it can be indexed, but not trained on or evaluated")
        return
    counts, noun, plural = labels.counts(), labels.noun, labels.kind
    spread = f"{counts.min():,} to {counts.max():,} images a {noun}, {np.median(counts):,.0f} in the middle"
    yield Finding("ok", spread)
    none, single, few = (np.flatnonzero(chosen) for chosen in (counts == 0, counts == 1, (counts > 1) & (counts < FEW)))
    if len(none):
        names = tuple(labels.names[number] for number in none[:MAX_EXAMPLES])
        yield Finding("warning", f"{plural} without images", len(none), names)
    if len(single):
        names = tuple(labels.names[number] for number in single[:MAX_EXAMPLES])
        yield Finding("warning", f"{plural} with one image, which can be searched but not found again", len(single), names)
    if len(few):
        names = tuple(f"{labels.names[number]} ({counts[number]})" for number in few[:MAX_EXAMPLES])
        yield Finding("note", f"{plural} with fewer than {FEW} images", len(few), names)


def _relevance(dataset: Dataset, split: Split) -> Iterator[Finding]:
    """Say whether every query has something to find."""
    labels = dataset.require_labels()
    without_relevant = split.query[~labels.subset(split.query).has_relevant(labels.subset(split.database))]
    if len(without_relevant):
        names = tuple(dataset.images.key(int(index)) for index in without_relevant[:MAX_EXAMPLES])
        yield Finding("warning", "queries with nothing relevant in the database", len(without_relevant), names)
    else:
        yield Finding("ok", "every query has something relevant in the database")
    inside = np.intersect1d(split.query, np.union1d(split.database, split.training_set))
    if len(inside):
        yield Finding("error", "queries that are themselves in the database or in training", len(inside))


def _unseen(dataset: Dataset, split: Split, pretrained_on: str | None) -> Iterator[Finding]:
    """Say whether classes that should be unseen are."""
    if "transfer" not in split.protocol:
        return
    asked = dataset.require_labels().subset(split.query).present_classes()
    both = np.intersect1d(asked, split.classes)
    if len(both):
        yield Finding("error", "classes that are both trained and called unseen", len(both))
    else:
        yield Finding("ok", f"none of the {len(asked)} unseen classes occurs in training")
    known = DATASETS[dataset.name].overlapping_pretraining if dataset.name in DATASETS else ()
    wordnet = [name for name in dataset.class_names if len(name) == 9 and name[0] == "n" and name[1:].isdigit()]
    if pretrained_on is not None and (pretrained_on in known or (pretrained_on == "ILSVRC-2012" and wordnet)):
        share = "these very" if wordnet else "many of these"
        what = f"the backbone was pretrained on {pretrained_on}, which holds {share} unseen classes"
        yield Finding("error" if wordnet else "warning", what, len(asked))
