"""Text from data inside of Markdown: it must read as it is, and mean nothing."""

_MEANS_SOMETHING = frozenset(r"\`*_{}[]<>()#|!&~$")


def escaped(text: object) -> str:
    """Return text on one line in which no character is markup."""
    line = " ".join(str(text).split())
    kept = (letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line)
    return "".join(f"\\{letter}" if letter in _MEANS_SOMETHING else letter for letter in kept)
