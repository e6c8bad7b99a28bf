"""Who may ask: the name a client calls the service by, and the token of those who write."""

import hmac
import os
import stat
import warnings
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path

from proxyhash.serve.http import RefusalError
from proxyhash.utils.errors import InputError, ProxyhashWarning

VARIABLE = "PROXYHASH_TOKEN"
SHORTEST = 16  # characters of a token; fewer could be guessed


def read_token(path: Path | None) -> str | None:
    """Return the token in a file, or in the environment; None if there is none and nobody may write."""
    if path is None:
        token = os.environ.get(VARIABLE, "")
        return _checked(token, f"The token in {VARIABLE}") if token else None
    try:
        token = path.read_text(encoding="ascii").strip()
        others = path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"The token cannot be read from {path}: {getattr(error, 'strerror', None) or error}.") from error
    if others and os.name == "posix":
        warnings.warn(f"Others can read the token in {path}; close it to them: chmod 600 {path}", ProxyhashWarning, 2)
    return _checked(token, f"The token in {path}")


def _checked(token: str, name: str) -> str:
    if len(token) < SHORTEST or not (token.isascii() and token.isprintable()) or " " in token:
        raise InputError(f"{name} must have at least {SHORTEST} characters, no spaces, all of them ASCII.")
    return token


def check_token(header: str | None, token: str | None) -> None:
    """Refuse to write unless the header holds the token; how long that takes says nothing about it."""
    if token is None:
        raise RefusalError(403, "This service is read-only; whoever runs it can allow writing with --token-file.")
    kind, _, given = (header or "").partition(" ")
    if kind.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), token.encode()):
        raise RefusalError(401, "Writing needs the right token: Authorization: Bearer TOKEN.", WWW_Authenticate="Bearer")


@lru_cache(256)
def is_allowed_host(host: str, names: frozenset[str]) -> bool:
    """Return whether a Host header names this service: localhost, an address, or one of some names.

    Pages of strangers can make a browser send requests to addresses that it alone can reach, by a name whose address they
    change (DNS rebinding). Such requests carry that name.
    """
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
    name = name.removesuffix(".").lower()
    if name == "localhost" or name in names:
        return True
    try:
        ip_address(name[1:-1] if name.startswith("[") and name.endswith("]") else name)
    except ValueError:
        return False
    return True
