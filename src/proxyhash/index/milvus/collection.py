"""Collection of an index on Milvus: its schema, and the description of its codes."""

import json
import logging
import os
import warnings
from dataclasses import dataclass
from typing import Any

from proxyhash.index.milvus.location import FILE, Location
from proxyhash.index.milvus.retry import call_with_retry, describe_error
from proxyhash.utils.errors import InputError
from proxyhash.utils.legacy_names import MILVUS_ITEM_ID

FORMAT = "proxyhash.milvus/2"
FORMAT_1 = "proxyhash.milvus/1"  # without the field of labels and columns
ATTRIBUTES = "attributes"  # the field of labels and columns, as JSON
TOKEN = "PROXYHASH_MILVUS_TOKEN"  # user:password or an API key; an address would show it to whoever lists processes
REQUEST_TIMEOUT = 60.0  # seconds
CONNECT_TIMEOUT = 10.0
LOAD_TIMEOUT = 600.0  # a large collection is read from the object store
MAX_KEY_BYTES, MAX_TEXT_BYTES = 4096, 65_535
_STRONG = "Strong"


@dataclass(frozen=True)
class CollectionMeta:
    """Description of a collection: code length and model. Milvus itself counts bits in bytes."""

    bits: int
    model: str | None  # fingerprint of the model that made the codes
    width: int | None = None  # of the vectors that the model takes
    has_columns: bool = True  # False for a collection of release 0.2 or before

    def to_json(self) -> str:
        """Return the description that is stored with the collection."""
        values = {"bits": self.bits, "model": self.model} | ({} if self.width is None else {"width": self.width})
        return json.dumps({"format": FORMAT if self.has_columns else FORMAT_1, **values})


def connect(location: Location) -> Any:
    """Return pymilvus's client; a server that does not answer is an error at once."""
    try:
        import pymilvus
    except ImportError:
        raise InputError(f"{location} needs pymilvus: pip install 'proxyhash[milvus]'.") from None
    # pymilvus logs every error with its traceback, even those that are retried.
    logging.getLogger("pymilvus").setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():  # milvus-lite reads its own version in a deprecated way
            warnings.filterwarnings("ignore", "pkg_resources is deprecated")
            return pymilvus.MilvusClient(
                location.uri,
                db_name=location.database,
                token=os.environ.get(TOKEN, ""),
                timeout=CONNECT_TIMEOUT,
                dedicated=True,
            )
    except Exception as error:  # of many kinds: no server, no such database, a wrong password, no milvus-lite
        if location.text.startswith(FILE) and "milvus-lite" in str(error):
            raise InputError(f"{location} needs milvus-lite: pip install 'proxyhash[milvus-lite]'.") from error
        raise InputError(f"Cannot connect to {location}: {describe_error(error)}.") from error


def read_meta(client: Any, location: Location) -> CollectionMeta | None:
    """Return the description of a collection, None if there is no such collection."""
    name = location.collection
    if not call_with_retry(lambda: client.has_collection(name, timeout=REQUEST_TIMEOUT), location):
        return None
    described = call_with_retry(lambda: client.describe_collection(name, timeout=REQUEST_TIMEOUT), location)
    try:
        meta = json.loads(described["description"])
        if meta["format"] not in (FORMAT, FORMAT_1):
            raise InputError(f"{location} has format {meta['format']}; this version of proxyhash reads {FORMAT}.")
        width = meta.get("width")
        has_columns = meta["format"] == FORMAT
        return CollectionMeta(int(meta["bits"]), meta["model"], None if width is None else int(width), has_columns)
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{location} is a collection, but not an index of proxyhash; choose another name.") from error


def create(client: Any, location: Location, meta: CollectionMeta) -> None:
    """Create the collection with its exact index, and load it; one that another process has just created stays."""
    from pymilvus import DataType

    schema = client.create_schema(auto_id=False, enable_dynamic_field=False, description=meta.to_json())
    schema.add_field("key", DataType.VARCHAR, is_primary=True, max_length=MAX_KEY_BYTES)
    schema.add_field("code", DataType.BINARY_VECTOR, dim=8 * ((meta.bits + 7) // 8))
    schema.add_field(MILVUS_ITEM_ID, DataType.INT64)
    schema.add_field("labels", DataType.VARCHAR, max_length=MAX_TEXT_BYTES)
    schema.add_field("file", DataType.VARCHAR, max_length=MAX_TEXT_BYTES)  # digest of the folder, size, time, path
    if meta.has_columns:
        schema.add_field(ATTRIBUTES, DataType.JSON)
    index = client.prepare_index_params()
    index.add_index("code", index_type="BIN_FLAT", metric_type="HAMMING")
    options = {"schema": schema, "index_params": index, "consistency_level": _STRONG, "timeout": REQUEST_TIMEOUT}
    call_with_retry(lambda: client.create_collection(location.collection, **options), location)


def upsert(client: Any, location: Location, columns: dict[str, list[Any]]) -> None:
    """Write items over those with the same keys, so that repeating it changes nothing.

    The client's own `upsert` takes rows and checks every value by itself; its connection takes whole columns, four times as
    many items a second.
    """
    from pymilvus import DataType

    types = {"code": DataType.BINARY_VECTOR, MILVUS_ITEM_ID: DataType.INT64, ATTRIBUTES: DataType.JSON}
    fields = [
        {"name": name, "type": types.get(name, DataType.VARCHAR), "values": values} for name, values in columns.items()
    ]
    options = {"timeout": REQUEST_TIMEOUT, "context": client._generate_call_context()}  # the context names the database
    call_with_retry(lambda: client._get_connection().upsert(location.collection, fields, **options), location)


def load(client: Any, location: Location) -> None:
    """Load a collection into the memory of the server; nothing happens if it is loaded."""
    call_with_retry(lambda: client.load_collection(location.collection, timeout=LOAD_TIMEOUT), location)
