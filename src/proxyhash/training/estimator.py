"""An encoder of vectors with the interface of scikit-learn."""

from importlib.util import find_spec
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from proxyhash.utils.errors import InputError

if find_spec("sklearn") is None:
    raise InputError("HashEncoder needs scikit-learn: pip install 'proxyhash[sklearn]'.")

from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data

from proxyhash.codes import unpack
from proxyhash.evaluation.code_recall import code_recall, query_folds
from proxyhash.evaluation.metrics import mean_average_precision
from proxyhash.labels import ClassLabels, Labels, TagLabels
from proxyhash.methods import get_method, list_methods
from proxyhash.models.vector_hasher import VectorHasher
from proxyhash.training.config import OptimConfig
from proxyhash.training.vectors import DEFAULT_LABELED_METHOD, DEFAULT_METHOD, fit_vectors

OUTPUTS = ("packed", "signs", "embeddings")


class HashEncoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Vectors to binary codes, as a transformer of scikit-learn.

    Parameters
    ----------
    bits
        The length of the codes.
    method
        A name from `proxyhash methods`; None for itq without labels, and for shclm with labels. A method that learns from
        nothing ignores `y`.
    settings
        Settings of the method, by name.
    normalize
        Scale vectors to length 1, so that codes follow the cosine.
    epochs, batch_size, lr, weight_decay, hidden_dim
        How a method trains that trains a head, see `OptimConfig`; None for its defaults. Other methods ignore them.
    output
        What `transform` returns: "packed" codes (N, ceil(bits / 8)) of uint8, which an index and `proxyhash.codes` take;
        "signs" (N, bits) of -1 and 1, for other estimators; or "embeddings" (N, bits) of float32, the values before the
        signs are taken.
    random_state
        A number that decides every random draw, or as scikit-learn has it.

    Attributes
    ----------
    hasher_ : VectorHasher
        The fitted encoder; `hasher_.save("encoder")` writes the folder that `proxyhash` commands take as a model.
    n_features_in_ : int
        Number of values of a vector.
    feature_names_in_ : ndarray of str
        Names of the columns, if `fit` was given a table whose columns have names.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> vectors = rng.normal(size=(200, 32))
    >>> encoder = HashEncoder(bits=16).fit(vectors)
    >>> encoder.transform(vectors[:2]).shape
    (2, 2)
    >>> bool(0 < encoder.score(vectors) < 1)
    True
    """

    def __init__(
        self,
        bits: int = 64,
        *,
        method: str | None = None,
        settings: dict[str, Any] | None = None,
        normalize: bool = True,
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        weight_decay: float | None = None,
        hidden_dim: int | None = None,
        output: Literal["packed", "signs", "embeddings"] = "packed",
        random_state: Any = 0,
    ) -> None:
        self.bits = bits
        self.method = method
        self.settings = settings
        self.normalize = normalize
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.hidden_dim = hidden_dim
        self.output = output
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike | None = None) -> Self:
        """Learn codes.

        Parameters
        ----------
        X
            Vectors (N, width).
        y
            Classes (N,), or a matrix (N, T) of 0 and 1 for tags; None without labels.

        Returns
        -------
        HashEncoder
            The estimator itself.

        Raises
        ------
        InputError
            For invalid parameters, vectors of zeros that are to be scaled, and labels that the method cannot learn from.
        """
        _check_output(self.output)
        vectors = self._vectors(X, reset=True)
        name = self.method or (DEFAULT_METHOD if y is None else DEFAULT_LABELED_METHOD)
        info = get_method(name)
        if info.learns_from != "nothing" and y is None:
            raise InputError(f"{info.title} requires y to be passed, but the target y is None; itq learns without labels.")
        labels = None if info.learns_from == "nothing" else _read_labels(y, len(vectors))
        self.hasher_ = fit_vectors(
            vectors,
            self.bits,
            labels=labels,
            method=name,
            settings=self.settings,
            optim=self._optim(),
            normalize=self.normalize,
            seed=self._seed(),
        )
        return self

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """Return the codes, signs or embeddings of vectors (N, width), by the parameter `output`."""
        check_is_fitted(self)
        _check_output(self.output)
        vectors = self._vectors(X, reset=False)
        if self.output == "embeddings":
            return self.hasher_.embed(vectors)
        codes = self.hasher_.encode(vectors)
        return codes if self.output == "packed" else unpack(codes, self.hasher_.bits)

    def score(self, X: ArrayLike, y: ArrayLike | None = None) -> float:
        """Search vectors among each other by their codes, and return a score between 0 and 1; higher is better.

        The rows of `X` are divided into five random parts, and each part searches the other four. At most 1,000 rows are
        queries. The training vectors take no part, so that vectors held out of `fit` show how codes generalize.

        Parameters
        ----------
        X
            Vectors (N, width).
        y
            Classes (N,), or a matrix (N, T) of 0 and 1 for tags; None without labels.

        Returns
        -------
        float
            With labels, the mean average precision. Without, recall@10: the share of the 10 nearest vectors of a query that
            is among its 10 nearest codes.
        """
        check_is_fitted(self)
        vectors = self._vectors(X, reset=False)
        labels = None if y is None else _read_labels(y, len(vectors)).values
        rows = self.hasher_.rows(vectors)
        queries, codes = self.hasher_.encode_queries(vectors), self.hasher_.encode(vectors)
        scores = []
        for part, others in query_folds(len(vectors)):
            if labels is None:
                metric = code_recall(rows[part], rows[others], queries[part], codes[others])
            else:
                metric = mean_average_precision(queries[part], labels[part], codes[others], labels[others])
            scores.append(metric.per_query)
        return float(np.concatenate(scores).mean())

    def __sklearn_tags__(self) -> Any:
        """Describe the estimator: what it needs, and that codes do not have the type of vectors."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        tags.target_tags.required = self.method in list_methods() and get_method(self.method).learns_from != "nothing"
        return tags

    @property
    def _n_features_out(self) -> int:
        """Return the number of columns of `transform`, for `get_feature_names_out`."""
        hasher: VectorHasher = self.hasher_
        columns = {"packed": -(-hasher.bits // 8), "signs": hasher.bits, "embeddings": hasher.head.out_features}
        return columns[self.output]

    def _vectors(self, X: ArrayLike, *, reset: bool) -> NDArray[Any]:
        """Return vectors as a matrix of floats, checked as scikit-learn does it."""
        vectors: NDArray[Any] = validate_data(
            self, X, reset=reset, dtype=[np.float32, np.float64, np.float16], ensure_min_samples=2 if reset else 1
        )
        return vectors

    def _optim(self) -> OptimConfig:
        names = ("epochs", "batch_size", "lr", "weight_decay", "hidden_dim")
        return OptimConfig.frozen(**{name: getattr(self, name) for name in names})

    def _seed(self) -> int:
        if isinstance(self.random_state, (int, np.integer)):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31))


def _check_output(output: str) -> None:
    if output not in OUTPUTS:
        raise InputError(f"There is no output {output!r}; choose from {', '.join(OUTPUTS)}.")


def _read_labels(y: Any, count: int) -> Labels:
    """Return the labels of `count` vectors from classes (N,), or a dense or sparse matrix (N, T) of 0 and 1."""
    check_classification_targets(y)
    kind = type_of_target(y, input_name="y")
    if kind == "multilabel-indicator":
        tags = np.asarray(y.toarray() if hasattr(y, "toarray") else y)
        check_consistent_length(tags, np.empty(count))
        return TagLabels(tags.astype(bool), tuple(str(number) for number in range(tags.shape[1])))
    if kind not in ("binary", "multiclass"):
        raise InputError(f"y must be classes (N,), or a matrix (N, T) of 0 and 1, not {kind}.")
    names, values = np.unique(column_or_1d(y, warn=True), return_inverse=True)
    check_consistent_length(values, np.empty(count))
    return ClassLabels(values.astype(np.int64), tuple(str(name) for name in names))
