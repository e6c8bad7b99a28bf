"""`proxyhash.evaluate`: evaluation of a hasher in one call."""

from pathlib import Path
from typing import Any

from proxyhash.data import DataLike, load_dataset
from proxyhash.evaluation.hasher import EvalReport, evaluate_hasher, load_eval_data
from proxyhash.evaluation.metrics import DEFAULT_KS
from proxyhash.models.hasher import Hasher
from proxyhash.utils.progress import Progress, no_progress


def evaluate(
    hasher: Hasher | str | Path,
    data: DataLike | None = None,
    *,
    protocol: str | None = None,
    fold: int | None = None,
    top: int | None = None,
    denominator: str | None = None,
    ks: tuple[int, ...] = DEFAULT_KS,
    detailed: bool = False,
    data_dir: str | Path | None = None,
    progress: Progress = no_progress,
) -> EvalReport:
    """Evaluate a hasher exactly, as `proxyhash evaluate model` does: its queries are searched in its database.

    `proxyhash.evaluation.evaluate` does the same for codes of any origin.

    Parameters
    ----------
    hasher
        A hasher, or the folder of a model.
    data
        A folder of images, the name of a data set, or a `Dataset`; None for what the hasher was trained on, if this has a
        name or a folder.
    protocol
        How the data are split into queries and database. None: as in training, if `data` is None or has the same name, and
        otherwise the default of the data set.
    fold
        Fold of a transfer protocol; None for that of the training, if the protocol is the same.
    top
        Number of nearest items that count for mAP; None for the cutoff of the protocol.
    denominator
        Divisor of the sum of precisions: relevant, capped or retrieved, see `proxyhash.evaluation.mean_average_precision`;
        None for that of the protocol.
    ks
        Numbers of neighbors for precision@k and recall@k.
    detailed
        Also compute the precision-recall curve and, if training saw no class of the database, classify its codes.
    data_dir
        Folder to look for a named data set first.
    progress
        Called with the name of the work and the fraction that is done.

    Returns
    -------
    EvalReport
        `map`, `accuracy`, `binarization_error` and all `metrics`; `as_dict()` is ready for JSON.

    Raises
    ------
    InputError
        If the data have no labels, the protocol does not fit them, or a denominator has no cutoff.

    Examples
    --------
    >>> import proxyhash
    >>> hasher = proxyhash.train("digits", bits=16, method="itq", backbone="convnet")
    >>> report = proxyhash.evaluate(hasher)
    >>> round(report.map, 1), report.metrics[0].name
    (0.5, 'mAP [ties expected]')
    """
    hasher = hasher if isinstance(hasher, Hasher) else Hasher.load(hasher)
    source = None if data_dir is None else Path(data_dir)
    dataset = None if data is None else load_dataset(data, data_dir=source, progress=progress)
    cutoff: dict[str, Any] = {"top": top, "denominator": denominator}
    loaded, split = load_eval_data(hasher, dataset, protocol, fold, **cutoff, data_dir=source, progress=progress)
    return evaluate_hasher(hasher, loaded, split, ks=ks, detailed=detailed, progress=progress)
