"""Where an index on Milvus is: an address such as milvus://host:19530/photos."""

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl

from proxyhash.utils.errors import InputError

SERVER, FILE = "milvus://", "milvus-lite://"
CONSISTENCIES = ("Strong", "Bounded", "Session", "Eventually")
PORT = 19530  # what Milvus listens at unless it is told otherwise

_FORM = "milvus://host:port/collection, or milvus-lite://file.db/collection"
_HOST = re.compile(r"(?P<host>[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(:(?P<port>\d+))?")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")


@dataclass(frozen=True)
class Location:
    """What pymilvus connects to (`uri`, `database`), the collection there, and how fresh answers must be."""

    text: str
    uri: str
    collection: str
    database: str = ""
    consistency: str = "Strong"

    def __str__(self) -> str:
        """Return it as it was written."""
        return self.text


def is_milvus(location: object) -> bool:
    """Return whether this is an address and not a folder."""
    return isinstance(location, str) and location.startswith((SERVER, FILE))


def parse_location(text: str) -> Location:
    """Read an address: milvus://host:port/collection or milvus://host:port/database/collection, perhaps with options.

    The options follow a question mark: `consistency` is Strong (a search sees everything that was added before it), Bounded,
    Session or Eventually; `tls=yes` encrypts the connection. milvus-lite://folder/file.db/collection is a file.
    """
    place, _, query = text.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    consistency, tls = options.pop("consistency", "Strong"), options.pop("tls", "no")
    if options or consistency not in CONSISTENCIES or tls not in ("yes", "no"):
        raise InputError(f"{text}: the options are consistency={', '.join(CONSISTENCIES)}, and tls=yes or no.")
    if place.startswith(FILE):
        file, _, name = place.removeprefix(FILE).rpartition("/")
        return Location(text, _checked_file(file, text), _checked_name(name, text), "", consistency)
    host, *names = place.removeprefix(SERVER).split("/")
    found = _HOST.fullmatch(host)
    if found is None or len(names) not in (1, 2):
        raise InputError(f"{text} is not an address of an index; write {_FORM}.")
    uri = f"{'https' if tls == 'yes' else 'http'}://{found['host']}:{found['port'] or PORT}"
    return Location(text, uri, _checked_name(names[-1], text), names[0] if len(names) == 2 else "", consistency)


def _checked_file(file: str, text: str) -> str:
    if not file.endswith(".db"):
        raise InputError(f"{text}: a file of milvus-lite ends in .db, and the collection follows; write {_FORM}.")
    if not Path(file).absolute().parent.is_dir():
        raise InputError(f"{text}: there is no folder {Path(file).absolute().parent}.")
    return str(Path(file).absolute())


def _checked_name(name: str, text: str) -> str:
    if not _NAME.fullmatch(name):
        raise InputError(f"{text}: a collection is named with letters, digits and underscores, not {name!r}.")
    return name
