"""Records with made-up numbers, as a grid would write them."""

from typing import Any

from proxyhash.experiments import Record


def make_record(label: str, bits: int, value: float, seed: int = 0, **changes: Any) -> Record:
    """Return a record of CIFAR-100 with this mAP."""
    method = label.partition(":")[0]
    settings = {"triplet": 1.0} if "triplet" in label else {}
    precisions = {f"precision@{k} [ties expected]": value for k in (1, 10, 100)}
    metrics: dict[str, Any] = {
        "map": value,
        "all": precisions,
        "precision_recall": {"recall": [0.0, 0.5, 1.0], "precision": [1.0, value, 0.01]},
        **changes.pop("metrics", {}),
    }
    facts: dict[str, Any] = {
        "data": {"name": "cifar100", "tags": None, "backbone": "convnet", "image_size": None, "finetune": False},
        "protocol": {"protocol": "cifar100-paper", "version": 1, "eval_on": "test"},
        "trial": {
            "label": label,
            "method": method,
            "settings": settings,
            "code_lengths": [bits],
            "seed": seed,
            "fold": 0,
            "optim": None,
        },
        "bits": bits,
        "metrics": metrics,
        "seconds": {"fit": 1.0, "all": 2.0},
        "versions": {"python": "3.11"},
        "machine": {"cores": 2},
    }
    return Record(**{**facts, **changes})


PROXIES = {
    "accuracy": 0.75,
    "binarization_error": 0.05,
    "binarization_histogram": [3, 2, 1],
    "proxy_histogram": [5, 0, 5],
    "proxies": {"min_distance": 5.0, "nearest_mean": 5.5, "assignment": None},
}
RECORDS = [
    make_record("lsh", 16, 0.03),
    make_record("lsh", 32, 0.05),
    make_record("shclm", 16, 0.70, 0, metrics=PROXIES),
    make_record("shclm", 16, 0.72, 1, metrics=PROXIES),
    make_record("shclm", 32, 0.76, metrics=PROXIES),
    make_record("shclm:triplet=1", 32, 0.74, metrics=PROXIES),
]
