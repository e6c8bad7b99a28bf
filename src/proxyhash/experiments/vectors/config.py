"""Settings of a comparison of encodings."""

from dataclasses import dataclass

from proxyhash.codes.bits import MAX_BITS
from proxyhash.evaluation.neighbors import check_metric
from proxyhash.methods import check_settings, parse_method
from proxyhash.models.device import AUTO, check_device_name
from proxyhash.utils.errors import InputError
from proxyhash.utils.validation import check_int


@dataclass(frozen=True, kw_only=True)
class VectorEvalConfig:
    """What is compared, and how.

    Parameters
    ----------
    bits
        Code lengths; the other encodings get as many bytes.
    methods
        Names from `list_methods`, with settings as in `itq:iterations=10`.
    baselines
        Compare other encodings too: PQ, OPQ, RaBitQ, int8, float16 and float32.
    metric
        Distance of the exact ranking: `cosine` (vectors are scaled to length 1), `l2` or `ip`.
    ks
        Numbers of neighbors; None for those of 1, 10 and 100 that the database has.
    num_queries
        Random vectors that are held out as queries; None for 1,000, or a tenth of fewer than 10,000 vectors.
    max_vectors
        Random vectors to use, queries among them; None for all.
    seed
        Decides every random draw.
    device
        Where methods that train are fitted, see `find_device`; by default a GPU if there is one.
    """

    bits: tuple[int, ...] = (64, 128, 256, 512)
    methods: tuple[str, ...] = ("itq", "random-rotation")
    baselines: bool = True
    metric: str = "cosine"
    ks: tuple[int, ...] | None = None
    num_queries: int | None = None
    max_vectors: int | None = None
    seed: int = 0
    device: str = AUTO

    def __post_init__(self) -> None:
        """Check all values."""
        check_metric(self.metric)
        check_int("seed", self.seed, 0)
        check_device_name(self.device)
        for name, values, most in (("bits", self.bits, MAX_BITS), ("k", self.ks or (1,), 1_000_000)):
            if not values or len(set(values)) < len(values):
                raise InputError(f"{name} must be one number or several different ones.")
            for value in values:
                check_int(name, value, 1, most)
        for name, number in (("num_queries", self.num_queries), ("max_vectors", self.max_vectors)):
            if number is not None:
                check_int(name, number, 1)
        if not self.methods or len(set(self.methods)) < len(self.methods):
            raise InputError("methods must be one name or several different ones, such as itq,random-rotation.")
        for label in self.methods:
            name, settings = parse_method(label)
            check_settings(name, settings)
