"""What a service is told: where it listens, who may write, and how much it takes on at a time."""

from dataclasses import dataclass, field

from proxyhash.index.calibration import THRESHOLD


@dataclass(frozen=True)
class Limits:
    """What one client, or all together, may cost. Times are in seconds."""

    body_bytes: int = 20_000_000  # of an upload: photographs of any camera
    pixels: int = 50_000_000  # of an image: 150 MB once decoded
    uploads: int = 64  # that are received, decoded or encoded at a time, each up to `body_bytes` in memory
    waiting: int = 2_000  # queries that wait for a scan
    together: int = 512  # queries that one scan answers
    encoded_together: int = 32  # images that the network sees at once: more are no faster
    remembered: int = 50_000  # items that are kept in memory once they were found: some 25 MB
    depth: int = 4_096  # nearest items that are looked through for a label
    connections: int = 4_000
    decoders: int = 2  # processes
    decoder_bytes: int = 1_000_000_000  # that one of them may take beyond what it begins with
    decoder_seconds: float = 10.0
    body_seconds: float = 20.0  # in which a request must have arrived
    idle_seconds: float = 10.0  # that a connection may be silent between requests, and that headers may take
    answer_seconds: float = 60.0  # from the first byte of a request to the last of its answer
    shutdown_seconds: float = 30.0  # for what is under way when the service is stopped
    thumbnail_bytes: int = 64_000_000  # of small pictures that are kept in memory


@dataclass(frozen=True)
class Settings:
    """Where a service listens and what it allows."""

    host: str = "127.0.0.1"
    port: int = 8000
    names: frozenset[str] = frozenset()  # that clients may call it by, beside localhost and addresses
    token: str | None = field(default=None, repr=False)  # who has it may write; None: nobody may
    threshold: float = THRESHOLD  # expected precision below which there is no match
    log_requests: bool = True
    limits: Limits = Limits()
