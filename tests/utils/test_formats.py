import json
import re
from pathlib import Path

import pytest

from proxyhash.utils.errors import InputError
from proxyhash.utils.formats import check_format, dump_json, parse_json

PATH = Path("file.json")


def test_a_changed_value_is_found() -> None:
    text = dump_json({"a": [1, {"b": None}], "c": "d"})
    assert parse_json(text.encode(), PATH) == {"a": [1, {"b": None}], "c": "d"}
    with pytest.raises(InputError, match=r"file.json is damaged: its content does not match its checksum."):
        parse_json(text.replace('"d"', '"e"').encode(), PATH)


def test_keys_that_are_numbers_are_read_as_text() -> None:
    assert parse_json(dump_json({"counts": {9: 1, 10: 2}}).encode(), PATH) == {"counts": {"9": 1, "10": 2}}


def test_a_file_without_a_checksum_is_read() -> None:
    assert parse_json(json.dumps({"a": 1}).encode(), PATH) == {"a": 1}


def test_a_file_that_lost_its_checksum_is_refused() -> None:
    text = dump_json({"requires": "0.2"}).replace("sha256_of_content", "sha256_of_contens")
    with pytest.raises(InputError, match="its content does not match its checksum"):
        parse_json(text.encode(), PATH)


@pytest.mark.parametrize("depth", [200, 900, 2_000, 100_000])
def test_deep_nesting_is_read_or_refused(depth: int) -> None:
    deep = b"[" * depth + b"]" * depth
    for text in (deep, b'{"sha256_of_content": "0", "a": ' + deep + b"}"):
        try:
            parse_json(text, PATH)
        except InputError as error:
            assert str(error).startswith("file.json is damaged: ")  # noqa: PT017


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"1" * 5_000, b"nul"])
def test_other_content_is_refused_in_one_sentence(text: bytes) -> None:
    with pytest.raises(InputError, match=r"^file.json is damaged: [^\n]+\.$"):
        parse_json(text, PATH)


@pytest.mark.parametrize(
    ("requires", "sentence"),
    [
        ("0.7", "file.json has the format proxyhash.hasher/9 and needs proxyhash 0.7 or later."),
        (None, "file.json has the format proxyhash.hasher/9 and needs a later version than "),
        (["\n"], "needs a later version than "),
    ],
)
def test_newer_format_names_the_release_that_it_needs(requires: object, sentence: str) -> None:
    with pytest.raises(InputError, match=re.escape(sentence)):
        check_format(PATH, "proxyhash.hasher/9", ("proxyhash.hasher/3", "proxyhash.hasher/2"), requires)


@pytest.mark.parametrize("found", [None, 3, "proxyhash.proxies/9", "proxyhash.hasher/x", "proxyhash.hasher/1"])
def test_other_formats_are_refused(found: object) -> None:
    with pytest.raises(InputError, match=r"is not a file of the format proxyhash.hasher/3"):
        check_format(PATH, found, ("proxyhash.hasher/3", "proxyhash.hasher/2"))
