"""Addresses of indexes on Milvus, such as milvus://host:19530/photos."""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl

from proxyhash.utils.errors import InputError

SERVER, FILE = "milvus://", "milvus-lite://"
CONSISTENCY_LEVELS = ("Strong", "Bounded", "Session", "Eventually")
PORT = 19530  # the default of Milvus

_FORM = "milvus://host:port/collection, or milvus-lite://file.db/collection"
_HOST = re.compile(r"(?P<host>[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(:(?P<port>\d+))?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")


@dataclass(frozen=True)
class Location:
    """Parsed address: `uri` and `database` for pymilvus, the `collection`, and the `consistency` level of reads."""

    text: str
    uri: str
    collection: str
    database: str = ""
    consistency: str = "Strong"

    def __str__(self) -> str:
        """Return the address as it was written."""
        return self.text


def is_milvus(location: object) -> bool:
    """Return whether this is an address of Milvus, not a folder."""
    return isinstance(location, str) and location.startswith((SERVER, FILE))


def parse_location(text: str) -> Location:
    """Parse an address: milvus://host:port/collection or milvus://host:port/database/collection, with options.

    Options follow a question mark: `consistency` is Strong (a search sees everything that was added before it), Bounded,
    Session or Eventually; `tls=yes` encrypts the connection. milvus-lite://folder/file.db/collection is a file.
    """
    address, _, query = text.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    consistency, tls = options.pop("consistency", "Strong"), options.pop("tls", "no")
    if options or consistency not in CONSISTENCY_LEVELS or tls not in ("yes", "no"):
        raise InputError(f"{text}: the options are consistency={', '.join(CONSISTENCY_LEVELS)}, and tls=yes or no.")
    if address.startswith(FILE):
        file, _, name = address.removeprefix(FILE).rpartition("/")
        return Location(text, _check_file(file, text), _check_name(name, text), "", consistency)
    host, *names = address.removeprefix(SERVER).split("/")
    parts = _HOST.fullmatch(host)
    if parts is None or len(names) not in (1, 2):
        raise InputError(f"{text} is not an address of an index; write {_FORM}.")
    uri = f"{'https' if tls == 'yes' else 'http'}://{parts['host']}:{parts['port'] or PORT}"
    return Location(text, uri, _check_name(names[-1], text), names[0] if len(names) == 2 else "", consistency)


def _check_file(file: str, text: str) -> str:
    if not file.endswith(".db"):
        raise InputError(f"{text}: a file of milvus-lite ends in .db, and the collection follows; write {_FORM}.")
    if not Path(file).absolute().parent.is_dir():
        raise InputError(f"{text}: there is no folder {Path(file).absolute().parent}.")
    return str(Path(file).absolute())


def _check_name(name: str, text: str) -> str:
    if not _NAME.fullmatch(name):
        raise InputError(f"{text}: a collection is named with letters, digits and underscores, not {name!r}.")
    return name
