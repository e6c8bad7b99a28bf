"""The collection of an index: its fields, and what its description says of the codes."""

import json
import logging
import os
import warnings
from dataclasses import asdict, dataclass
from typing import Any

from proxyhash.index.milvus.location import FILE, Location
from proxyhash.index.milvus.retry import patiently, sentence
from proxyhash.utils.errors import InputError

FORMAT = "proxyhash.milvus/1"
TOKEN = "PROXYHASH_MILVUS_TOKEN"  # user:password or an API key; an address would show it to whoever lists processes
CALL = 60.0  # seconds that one request may take
CONNECT = 10.0
LOAD = 600.0  # a large collection is read from the object store
LONGEST_KEY, LONGEST_TEXT = 4096, 65_535  # bytes that a field holds
_STRONG = "Strong"


@dataclass(frozen=True)
class Facts:
    """What all codes of a collection have in common; Milvus itself counts bits in bytes."""

    bits: int
    model: str | None  # the fingerprint of the model that made them

    def as_text(self) -> str:
        """Return the description of the collection."""
        return json.dumps({"format": FORMAT, **asdict(self)})


def connect(place: Location) -> Any:
    """Return pymilvus's client; a server that is not there is an error at once."""
    try:
        import pymilvus
    except ImportError:
        raise InputError(f"{place} needs pymilvus: pip install 'proxyhash[milvus]'.") from None
    # It prints every error with its traceback, even those that are raised, caught and answered with another try.
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():  # milvus-lite reads its own version in a way that is going away
            warnings.filterwarnings("ignore", "pkg_resources is deprecated")
            return pymilvus.MilvusClient(
                place.uri, db_name=place.database, token=os.environ.get(TOKEN, ""), timeout=CONNECT, dedicated=True
            )
    except Exception as error:  # of many kinds: no server, no such database, a wrong password, no milvus-lite
        if place.text.startswith(FILE) and "milvus-lite" in str(error):
            raise InputError(f"{place} needs milvus-lite: pip install 'proxyhash[milvus-lite]'.") from error
        raise InputError(f"Cannot connect to {place}: {sentence(error)}.") from error


def read_facts(client: Any, place: Location) -> Facts | None:
    """Return what a collection holds, None if it is not there."""
    if not patiently(lambda: client.has_collection(place.collection, timeout=CALL), place):
        return None
    described = patiently(lambda: client.describe_collection(place.collection, timeout=CALL), place)
    try:
        facts = json.loads(described["description"])
        if facts["format"] != FORMAT:
            raise InputError(f"{place} has format {facts['format']}; this version of proxyhash reads {FORMAT}.")
        return Facts(int(facts["bits"]), facts["model"])
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{place} is a collection, but not an index of proxyhash; choose another name.") from error


def create(client: Any, place: Location, facts: Facts) -> None:
    """Make the collection with its exact index, and load it; one that another process has just made stays."""
    from pymilvus import DataType

    schema = client.create_schema(auto_id=False, enable_dynamic_field=False, description=facts.as_text())
    schema.add_field("key", DataType.VARCHAR, is_primary=True, max_length=LONGEST_KEY)
    schema.add_field("code", DataType.BINARY_VECTOR, dim=8 * ((facts.bits + 7) // 8))
    schema.add_field("position", DataType.INT64)
    schema.add_field("labels", DataType.VARCHAR, max_length=LONGEST_TEXT)
    schema.add_field("file", DataType.VARCHAR, max_length=LONGEST_TEXT)  # the folder's digits, size, time, path
    index = client.prepare_index_params()
    index.add_index("code", index_type="BIN_FLAT", metric_type="HAMMING")
    name = place.collection
    patiently(
        lambda: client.create_collection(name, schema=schema, index_params=index, consistency_level=_STRONG, timeout=CALL),
        place,
    )


def upsert(client: Any, place: Location, columns: dict[str, list[Any]]) -> None:
    """Write items; those whose keys are there are replaced, so that doing it twice is doing it once.

    The client's own `upsert` takes rows and looks at every value of every row by itself; its connection takes whole columns,
    four times as many items a second.
    """
    from pymilvus import DataType

    kinds = {"code": DataType.BINARY_VECTOR, "position": DataType.INT64}
    fields = [
        {"name": name, "type": kinds.get(name, DataType.VARCHAR), "values": values} for name, values in columns.items()
    ]
    where = client._generate_call_context()  # the database, which the connection does not know
    patiently(lambda: client._get_connection().upsert(place.collection, fields, timeout=CALL, context=where), place)


def load(client: Any, place: Location) -> None:
    """Bring a collection to where it is searched; nothing happens if it is there."""
    patiently(lambda: client.load_collection(place.collection, timeout=LOAD), place)
