"""Settings of a service: who may connect and write, and what a request may cost."""

from dataclasses import dataclass, field

from proxyhash.index.calibration import THRESHOLD


@dataclass(frozen=True)
class Limits:
    """Limits for one request, or for all together. Times are in seconds."""

    search_bytes: int = 65_536  # JSON body of a search
    image_bytes: int = 20_000_000  # one uploaded image
    items_bytes: int = 20_000_000  # JSON body that adds or deletes items
    bytes_in_flight: int = 100_000_000  # bodies of all requests together, until they are decoded
    max_uploads: int = 64  # images that are received, decoded or encoded at a time
    max_pixels: int = 50_000_000  # of an image: 150 MB when decoded
    max_queue_size: int = 2_000  # queries that wait for a scan
    max_batch_size: int = 512  # queries of one scan
    max_image_batch_size: int = 32  # images of one forward pass; larger batches are not faster
    max_requests: int = 4_000  # connections or requests at a time; uvicorn answers 503 above it
    item_cache_size: int = 50_000  # found items that stay in memory, about 25 MB
    thumbnail_cache_bytes: int = 64_000_000
    decoders: int = 2  # processes
    decoder_bytes: int = 1_000_000_000  # memory of a decoder beyond what it starts with
    decoder_seconds: float = 10.0  # to decode one image
    search_seconds: float = 20.0  # for one batch, then the search process is replaced
    body_seconds: float = 20.0  # to receive a body
    idle_seconds: float = 10.0  # of a connection between two requests
    shutdown_seconds: float = 30.0  # for open requests after SIGTERM


@dataclass(frozen=True)
class Settings:
    """Settings of the application.

    Attributes
    ----------
    token
        Token for writing; None: the service is read-only.
    allowed_hosts
        Host names of the service, besides localhost and IP addresses.
    allowed_origins
        Origins whose pages may use the API (CORS), such as https://example.org.
    threshold
        Expected precision of the nearest item below which a query has no match, where the model was calibrated.
    limits
        Limits of requests.
    device
        Where uploaded images are encoded: auto (a GPU if there is one), cpu, cuda, cuda:N or mps.
    """

    token: str | None = field(default=None, repr=False)
    allowed_hosts: frozenset[str] = frozenset()
    allowed_origins: frozenset[str] = frozenset()
    threshold: float = THRESHOLD
    limits: Limits = Limits()
    device: str = "auto"
