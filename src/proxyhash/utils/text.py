"""Text for people: names that anybody may have chosen, such as file names, keys and labels, and sizes of files."""

import re

_SURROGATES = re.compile("[\ud800-\udfff]")
# Control characters, line separators, and marks that change the direction of the text around them.
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def printable(text: str) -> str:
    r"""Return text with everything escaped that a terminal would obey or that hides other text.

    Examples
    --------
    >>> print(printable("cat\x1b[2J.png"), printable("exe.\u202egpj"))
    cat\x1b[2J.png exe.\u202egpj
    """
    return _UNPRINTABLE.sub(_escape, text)


def valid_text(text: str) -> str:
    r"""Return text that can be encoded: bytes of a file name that are not UTF-8 are escaped.

    Examples
    --------
    >>> print(valid_text("caf\udce9.png"))
    caf\xe9.png
    """
    return _SURROGATES.sub(_escape, text)


def format_bytes(count: int) -> str:
    """Return a number of bytes in the unit that people read.

    Examples
    --------
    >>> format_bytes(1_234_567_890), format_bytes(45_600_000), format_bytes(7_800), format_bytes(0)
    ('1.2 GB', '45.6 MB', '7.8 kB', '0 bytes')
    """
    for size, unit in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= size:
            return f"{count / size:,.1f} {unit}"
    return f"{count} bytes"


def _escape(match: re.Match[str]) -> str:
    if match[0] in _SHORT:
        return _SHORT[match[0]]
    number = ord(match[0])
    if 0xDC80 <= number <= 0xDCFF:  # Python's form of a byte that is not UTF-8
        number -= 0xDC00
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
