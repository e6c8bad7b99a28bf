"""Versions of file formats, and JSON files with a checksum of their own."""

import hashlib
import json
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

from proxyhash.utils.errors import InputError

REQUIRES = "requires"
"""Field of every file, in all formats: the first release that reads it."""

RELEASE = "0.2"
"""The first release that reads the files which this one writes."""

_SHA256 = "sha256_of_content"
_MAX_DEPTH_MESSAGE = "it is nested too deeply"


def check_format(path: Path, found: object, known: tuple[str, ...], requires: object = None) -> None:
    """Raise an `InputError` unless a file has one of the known formats.

    Parameters
    ----------
    path
        The file, for the message.
    found
        Its format, such as "proxyhash.hasher/2".
    known
        The formats that this release reads, the newest first.
    requires
        The release that the file says it needs.

    Examples
    --------
    >>> check_format(Path("model/config.json"), "proxyhash.hasher/9", ("proxyhash.hasher/2",), "0.7")
    Traceback (most recent call last):
    proxyhash.utils.errors.InputError: model/config.json has the format proxyhash.hasher/9 and needs proxyhash 0.7 or later.
    """
    if found in known:
        return
    kind, _, number = known[0].partition("/")
    if not isinstance(found, str) or found.partition("/")[0] != kind or not _is_newer(found, number):
        raise InputError(f"{path} is not a file of the format {known[0]}.")
    release = f"proxyhash {requires} or later" if _is_release(requires) else f"a later version than {version('proxyhash')}"
    raise InputError(f"{path} has the format {found[:100]} and needs {release}.")


def _is_newer(found: str, number: str) -> bool:
    own = found.partition("/")[2]
    return own.isdecimal() and len(own) < 10 and int(own) > int(number)


def _is_release(requires: object) -> bool:
    return isinstance(requires, str) and len(requires) < 20 and requires.replace(".", "").isalnum()


def dump_json(content: Mapping[str, Any]) -> str:
    """Return JSON with a checksum of all its fields, which `parse_json` checks.

    >>> parse_json(dump_json({"a": 1}).encode(), Path("a.json"))
    {'a': 1}
    """
    plain = json.loads(json.dumps(content))  # keys that are numbers become texts, and are sorted as such
    return json.dumps({**plain, _SHA256: _digest(plain)}, indent=2)


def parse_json(text: bytes, path: Path) -> Any:
    """Return the content of a JSON file; its checksum is checked and left out. Files of release 0.1 have none.

    Raises
    ------
    InputError
        If it is not JSON, is nested too deeply, or does not match its checksum.
    """
    try:
        content = json.loads(text)
        expected = content.pop(_SHA256, None) if isinstance(content, dict) else None
        is_intact = not _has_checksum(content) if expected is None else expected == _digest(content)
    except RecursionError:
        raise InputError(f"{path} is damaged: {_MAX_DEPTH_MESSAGE}.") from None
    except ValueError as error:  # also of bytes that are not UTF-8, and of integers with too many digits
        raise InputError(f"{path} is damaged: {' '.join(str(error).split())[:200]}.") from None
    if not is_intact:
        raise InputError(f"{path} is damaged: its content does not match its checksum.")
    return content


def read_json(path: Path) -> Any:
    """Return the content of a JSON file; see `parse_json`."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise InputError(f"Cannot read {path}: {error.strerror}.") from error
    return parse_json(text, path)


def _has_checksum(content: Any) -> bool:
    """Return whether a file was written with a checksum: those that name the release they need were."""
    return isinstance(content, dict) and REQUIRES in content


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
