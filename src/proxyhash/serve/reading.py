"""From what was sent to the types of the API, or to a sentence that says what is wrong with it."""

from functools import lru_cache
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from msgspec import inspect as types

from proxyhash.serve.http import JSON, RefusalError


def read_query(text: bytes, kind: type[msgspec.Struct] | None) -> msgspec.Struct | None:
    """Return the query of an address; one that is not expected is refused, as it is likely to be a mistake."""
    try:
        pairs = parse_qsl(text.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=2_000)
    except (UnicodeDecodeError, ValueError):
        raise RefusalError(400, "The query of the address is not readable.") from None
    if kind is None:
        if pairs:
            raise RefusalError(422, f"There is no parameter {pairs[0][0]} here.")
        return None
    several, values = _lists(kind), dict[str, Any]()
    for name, value in pairs:
        if name in several:
            values.setdefault(name, []).append(value)
        elif name in values:
            raise RefusalError(422, f"{name} may be given once.")
        else:
            values[name] = value
    try:
        return msgspec.convert(values, kind, strict=False)
    except msgspec.ValidationError as error:
        raise RefusalError(422, _sentence(error)) from None


def read_json(body: bytes, kind: type[msgspec.Struct]) -> msgspec.Struct:
    """Return the body of a request."""
    try:
        message: msgspec.Struct = _decoder(kind).decode(body)
    except msgspec.ValidationError as error:
        raise RefusalError(422, _sentence(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusalError(400, f"The body of the request is not JSON: {error}.") from None
    return message


def check_kind(header: str | None, expected: str) -> None:
    """Refuse a body of another kind. Pages of strangers cannot send these kinds without being asked for permission first."""
    kind = (header or "").partition(";")[0].strip().lower()
    fits = kind == JSON if expected == JSON else kind.startswith("image/") or kind == "application/octet-stream"
    if not fits:
        wanted = JSON if expected == JSON else "image/jpeg, another kind of image, or application/octet-stream"
        raise RefusalError(415, f"The Content-Type must be {wanted}.")


def _sentence(error: msgspec.ValidationError) -> str:
    """Turn "Expected `int` >= 1 - at `$.k`" into a sentence that begins with the name."""
    words, _, place = str(error).partition(" - at `$")
    name = place.rstrip("`").lstrip(".")
    return f"The request cannot be used: {name + ': ' if name else ''}{words[:1].lower()}{words[1:]}."


@lru_cache
def _decoder(kind: type[msgspec.Struct]) -> "msgspec.json.Decoder[Any]":
    return msgspec.json.Decoder(kind)


@lru_cache
def _lists(kind: type[msgspec.Struct]) -> frozenset[str]:
    """Return the names of parameters that may be given several times."""
    info = types.type_info(kind)
    assert isinstance(info, types.StructType)
    return frozenset(field.name for field in info.fields if isinstance(field.type, (types.VarTupleType, types.ListType)))
