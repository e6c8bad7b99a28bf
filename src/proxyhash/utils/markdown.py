"""Escaping of text from data in Markdown."""

_MARKUP = frozenset(r"\`*_{}[]<>()#|!&~$")


def escape_markdown(text: object) -> str:
    """Return text on one line with every markup character escaped."""
    line = " ".join(str(text).split())
    kept = (letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line)
    return "".join(f"\\{letter}" if letter in _MARKUP else letter for letter in kept)
