"""Access control: tokens for writing, host names, and headers that restrict browsers."""

import hmac
import os
import stat
import warnings
from functools import lru_cache
from ipaddress import ip_address
from pathlib import Path

from fastapi import HTTPException

from proxyhash.utils.errors import InputError, ProxyhashWarning

TOKEN_VARIABLE = "PROXYHASH_TOKEN"
MIN_TOKEN_LENGTH = 16

SECURITY_HEADERS = (
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; "
        b"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
)


def read_token(path: Path | None) -> str | None:
    """Return the token in a file, or in the environment; None if there is none."""
    if path is None:
        token = os.environ.get(TOKEN_VARIABLE, "")
        return _check_token_format(token, f"The token in {TOKEN_VARIABLE}") if token else None
    try:
        token = path.read_text(encoding="ascii").strip()
        readable_by_others = path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH)
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"The token cannot be read from {path}: {getattr(error, 'strerror', None) or error}.") from error
    if readable_by_others and os.name == "posix":
        warnings.warn(f"Others can read the token in {path}; close it to them: chmod 600 {path}", ProxyhashWarning, 2)
    return _check_token_format(token, f"The token in {path}")


def _check_token_format(token: str, name: str) -> str:
    if len(token) < MIN_TOKEN_LENGTH or not (token.isascii() and token.isprintable()) or " " in token:
        raise InputError(f"{name} must have at least {MIN_TOKEN_LENGTH} characters, no spaces, all of them ASCII.")
    return token


def check_token(header: str | None, token: str | None) -> None:
    """Raise HTTPException unless the Authorization header holds the token; the comparison takes constant time."""
    if token is None:
        raise HTTPException(403, "This service is read-only; its operator can allow writing with --token-file.")
    scheme, _, given = (header or "").partition(" ")
    if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), token.encode()):
        sentence = "Writing needs the right token: Authorization: Bearer TOKEN."
        raise HTTPException(401, sentence, headers={"WWW-Authenticate": "Bearer"})


@lru_cache(256)
def is_allowed_host(host: str, names: frozenset[str]) -> bool:
    """Return whether a Host header names this service: localhost, an IP address, or one of some names.

    This prevents DNS rebinding: a page of another site, whose name is made to resolve to the address of this service,
    sends that name.
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
