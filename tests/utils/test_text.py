import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxyhash.utils.text import printable, valid_text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain ünï 猫 \\ [x] 👩‍🚀.png", "plain ünï 猫 \\ [x] 👩‍🚀.png"),
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("a\nb\rc\td\0", r"a\nb\rc\td\x00"),
        ("\x7f\x9b31m", r"\x7f\x9b31m"),
        ("photo\u202egnp.exe\u2066\u200f\u061c\u2028", r"photo\u202egnp.exe\u2066\u200f\u061c\u2028"),
        ("caf\udce9 \ud800", r"caf\xe9 \ud800"),
    ],
)
def test_what_a_terminal_would_obey_is_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown


@given(st.text(st.characters()))
def test_no_control_character_and_no_surrogate_is_left(text: str) -> None:
    shown = printable(text)
    assert not any(unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} for character in shown)
    assert not any(unicodedata.bidirectional(character) in {"LRE", "RLE", "LRO", "RLO", "PDF"} for character in shown)
    valid_text(text).encode()
