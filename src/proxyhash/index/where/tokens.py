"""Tokens of a filter expression."""

import math
import re
from dataclasses import dataclass

from proxyhash.utils.errors import FilterError
from proxyhash.utils.text import printable, valid_text

MAX_LENGTH = 65_536  # characters of a filter
_MAX_DIGITS = 400  # of a number; Python takes quadratic time for long ones

_PATTERN = re.compile(
    r"""\s*(?:
    (?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?!\w)
    |(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    |(?P<name>`(?:[^`]|``)*`)
    |(?P<word>[^\W\d]\w*)
    |(?P<operator>==|!=|<=|>=|<|>)
    |(?P<mark>[()\[\],])
    |(?P<end>\Z)
    |(?P<other>.)
    )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True)
class Token:
    """A token: its kind ("constant", "name", "word", "operator", "mark", "other" or "end"), and where it begins, from 1.

    `text` is a name or word without quotes, `source` the token as it was written, and `value` that of a constant.
    """

    kind: str
    text: str
    position: int
    source: str = ""
    value: str | int | float | None = None


def tokenize(text: str) -> list[Token]:
    """Return the tokens of a filter; the last one is the end.

    Raises
    ------
    FilterError
        If the text is too long, or a number or a quoted text in it cannot be read.

    Examples
    --------
    >>> [(token.kind, token.source) for token in tokenize("year > 2020")]
    [('word', 'year'), ('operator', '>'), ('constant', '2020'), ('end', '')]
    """
    if len(text) > MAX_LENGTH:
        raise FilterError(f"A filter has at most {MAX_LENGTH:,} characters, not {len(text):,}.")
    if valid_text(text) != text:
        raise FilterError("A filter must be valid text; it has a character that cannot be encoded.")
    tokens: list[Token] = []
    end = 0
    while not tokens or tokens[-1].kind != "end":
        match = _PATTERN.match(text, end)
        assert match is not None  # the last alternatives match everything
        tokens.append(_make_token(str(match.lastgroup), match[str(match.lastgroup)], match.start(str(match.lastgroup)) + 1))
        end = match.end()
    return tokens


def _make_token(kind: str, source: str, position: int) -> Token:
    shown = printable(source if len(source) <= 40 else f"{source[:40]}...")
    if kind == "number":
        return Token("constant", source, position, shown, _parse_number(source, position))
    if kind == "text":
        return Token("constant", source, position, shown, _unescape(source[1:-1], position))
    if kind == "name":
        return Token(kind, source[1:-1].replace("``", "`"), position, shown)
    if kind == "other" and source in "'\"`":
        raise FilterError(f"The filter has a quote {source} at character {position} that is not closed.")
    return Token(kind, source, position, shown)


def _parse_number(source: str, position: int) -> int | float:
    if len(source) <= _MAX_DIGITS:
        if source.lstrip("+-").isdecimal():
            return int(source)
        if math.isfinite(value := float(source)):
            return value
    raise FilterError(f"The number at character {position} of the filter is too large.")


def _unescape(content: str, position: int) -> str:
    """Return a text without the backslashes that quote other characters."""
    for match in _ESCAPED.finditer(content):
        if match[1] not in "'\"\\":
            found = printable(match[0])
            raise FilterError(
                f"The text at character {position} of the filter has {found}; a backslash stands before a quote or another "
                "backslash."
            )
    return _ESCAPED.sub(r"\1", content)
