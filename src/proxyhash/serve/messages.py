"""The words of the API: every request and every answer is one of these types, checked when it is read.

The OpenAPI document is made of the same types, so that it cannot say anything else.
"""

from typing import Annotated

from msgspec import Meta, Struct

from proxyhash.codes.bits import MAX_BITS

MOST = 1_000  # items that are found, or removed, at once
MOST_ADDED = 10_000

Key = Annotated[str, Meta(min_length=1, max_length=4096, description="By which an item is known: often its path.")]
Label = Annotated[str, Meta(min_length=1, max_length=1000)]
Code = Annotated[
    str,
    Meta(
        pattern="^([0-9a-f]{2})+$",
        max_length=MAX_BITS // 4,
        description="A packed code, two hexadecimal digits a byte: bit i of the code is bit i % 8 of byte i // 8.",
    ),
]


class Options(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be found."""

    k: Annotated[int, Meta(ge=1, le=MOST, description="How many items to find.")] = 10
    radius: Annotated[int, Meta(ge=0, le=MAX_BITS, description="Leave out what is farther, in bits.")] = MAX_BITS
    label: Annotated[str, Meta(max_length=1000, description="Only items with this label or tag; empty: all.")] = ""


class CodeSearch(Options, frozen=True, kw_only=True):
    """Search with a code."""

    code: Code


class KeySearch(Options, frozen=True, kw_only=True):
    """Search with an item of the index."""

    key: Key


class ImageSearch(Options, frozen=True, kw_only=True):
    """Search with an image, which is the body of the request."""

    rerank: Annotated[
        int, Meta(ge=0, le=MOST, description="Order so many candidates by how sure the image is of each bit.")
    ] = 0


class Found(Struct, frozen=True):
    """An item that was found."""

    key: str
    distance: Annotated[int, Meta(ge=0, description="Bits that differ.")]
    labels: tuple[str, ...]
    code: str
    image: Annotated[bool, Meta(description="Whether there is a picture of it, see /api/image.")]
    expected_precision: Annotated[float | None, Meta(description="How often items this far are alike.")] = None
    score: Annotated[float | None, Meta(description="The distance it was ordered by, if re-ranked.")] = None


class SearchAnswer(Struct, frozen=True):
    """What was found, best first."""

    code: Annotated[str, Meta(description="Of the query.")]
    bits: int
    matched: Annotated[bool | None, Meta(description="False: even the nearest is probably not alike. Null: not calibrated.")]
    complete: Annotated[bool, Meta(description="False: there may be more such items than were found.")]
    matches: list[Found]


class OneKey(Struct, frozen=True, forbid_unknown_fields=True):
    """Which item."""

    key: Key


class ImageOf(Struct, frozen=True, forbid_unknown_fields=True):
    """Which picture, and how large."""

    key: Key
    side: Annotated[int, Meta(ge=16, le=1024, description="Of the square it must fit, in pixels.")] = 256


class Count(Struct, frozen=True, forbid_unknown_fields=True):
    """How many."""

    count: Annotated[int, Meta(ge=1, le=100)] = 12


class ItemAnswer(Struct, frozen=True):
    """An item of the index."""

    key: str
    labels: tuple[str, ...]
    image: bool


class ItemsAnswer(Struct, frozen=True):
    """Some items."""

    items: list[ItemAnswer]


class InfoAnswer(Struct, frozen=True):
    """What the service offers."""

    items: int
    bits: int
    model: Annotated[str | None, Meta(description="Digits that change when the model does; null: codes from elsewhere.")]
    plan: Annotated[str, Meta(description="How the index is searched.")]
    calibrated: bool
    search_by_image: bool
    writable: bool
    body_bytes: Annotated[int, Meta(description="The largest upload.")]
    version: str


class NewItem(Struct, frozen=True, forbid_unknown_fields=True):
    """An item to be added; one that has its key is replaced."""

    key: Key
    code: Code
    labels: Annotated[tuple[Label, ...], Meta(max_length=1000)] = ()


class AddCodes(Struct, frozen=True, forbid_unknown_fields=True):
    """Items to be added, all or none."""

    items: Annotated[list[NewItem], Meta(min_length=1, max_length=MOST_ADDED)]


class AddImage(Struct, frozen=True, forbid_unknown_fields=True):
    """Under which key and labels an image is added, which is the body of the request."""

    key: Key
    label: Annotated[tuple[Label, ...], Meta(max_length=100)] = ()  # an address cannot be of any length


class AddAnswer(Struct, frozen=True):
    """What was done; it is on disk."""

    added: int
    replaced: int


class RemoveKeys(Struct, frozen=True, forbid_unknown_fields=True):
    """Items to be removed: all, or none if one is unknown."""

    keys: Annotated[list[Key], Meta(min_length=1, max_length=MOST)]


class RemoveAnswer(Struct, frozen=True):
    """What was done; it is on disk."""

    removed: int


class StateAnswer(Struct, frozen=True):
    """How the service is."""

    status: str


class ErrorAnswer(Struct, frozen=True):
    """Why a request was refused, in a sentence."""

    error: str
