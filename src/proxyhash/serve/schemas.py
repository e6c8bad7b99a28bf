"""Requests and responses of the API."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, Json, model_validator

from proxyhash.codes.bits import MAX_BITS
from proxyhash.columns import MAX_NAME_LENGTH, MAX_TEXT_BYTES

MAX_RESULTS = 1_000
MAX_ADDED = 10_000
MAX_LABELS = 100
MAX_WIDTH = 1_000_000
MAX_WHERE = 10_000  # characters of a filter
MAX_COLUMNS = 100

Key = Annotated[
    str, Field(min_length=1, max_length=4096, description="Key of an item, often its path.", examples=["cats/7.jpg"])
]
Label = Annotated[str, Field(min_length=1, max_length=1000)]
Code = Annotated[
    str,
    Field(
        pattern="^([0-9a-f]{2})+$",
        max_length=MAX_BITS // 4,
        description="Packed code, two hexadecimal digits per byte; bit i of the code is bit i % 8 of byte i // 8.",
        examples=["00ff00ff"],
    ),
]
Vector = Annotated[
    list[Annotated[float, Field(allow_inf_nan=False)]],
    Field(
        min_length=1,
        max_length=MAX_WIDTH,
        description="Vector for the model of the index to encode, with as many numbers as `width` of /api/v1/info.",
        examples=[[0.12, -0.5, 0.33]],
    ),
]
Labels = Annotated[list[Label], Field(max_length=MAX_LABELS)]
Where = Annotated[
    str | None,
    Field(
        min_length=1,
        max_length=MAX_WHERE,
        description="Only items for which this is true: labels and columns compared by == != < <= > >= in, and, or, not.",
        examples=["label == 'cat' and year > 2020"],
    ),
]
Value = Annotated[float, Field(allow_inf_nan=False)] | int | bool | Annotated[str, Field(max_length=MAX_TEXT_BYTES)] | None
Columns = Annotated[
    dict[Annotated[str, Field(min_length=1, max_length=MAX_NAME_LENGTH)], Value],
    Field(
        max_length=MAX_COLUMNS,
        description="Values by the name of their column: numbers, texts, or dates as ISO text; null: missing.",
        examples=[{"year": 2021, "title": "A cat"}],
    ),
]


class Strict(BaseModel):
    """A request; unknown fields are errors, and a number is not read from a string."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class SearchOptions(Strict):
    """Options of every search."""

    k: Annotated[int, Field(ge=1, le=MAX_RESULTS, description="Number of items to find.")] = 10
    radius: Annotated[
        int | None, Field(ge=0, le=MAX_BITS, description="Leave out items that are more than so many bits away.")
    ] = None
    labels: Annotated[Labels, Field(description="Only items with at least one of these labels; empty: all items.")] = []
    where: Where = None
    rerank: Annotated[
        int | None,
        Field(
            ge=1,
            le=MAX_RESULTS,
            description="Sort so many nearest items by the real-valued embedding of the query; not for keys and codes.",
        ),
    ] = None
    refine: Annotated[
        bool | None,
        Field(
            description="Sort items at the same distance by their refinement. Null: if the index has one, and the query is "
            "an image, a vector or a key. True: an error if that is not so."
        ),
    ] = None


class SearchRequest(SearchOptions):
    """A search by exactly one of `key`, `code`, `embedding` and `vector`."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"key": "cats/7.jpg", "k": 5}, {"vector": [0.12, -0.5, 0.33], "k": 5}]}
    )

    key: Key | None = None
    code: Code | None = None
    embedding: Annotated[
        list[Annotated[float, Field(allow_inf_nan=False)]] | None,
        Field(min_length=1, max_length=MAX_BITS, description="Real-valued embedding, one number per bit of the code."),
    ] = None

    vector: Vector | None = None

    @model_validator(mode="after")
    def _check_query(self) -> Self:
        given = (self.key, self.code, self.embedding, self.vector)
        if sum(value is not None for value in given) != 1:
            raise ValueError("give exactly one of key, code, embedding and vector")
        if self.rerank is not None and self.embedding is None and self.vector is None:
            raise ValueError("rerank needs an embedding, a vector or an image")
        return self


class FormSearchOptions(SearchOptions):
    """Options of a search by image, from query parameters or form fields, which are text."""

    model_config = ConfigDict(strict=False)


class MatchResponse(BaseModel):
    """An item that was found."""

    key: str
    distance: Annotated[int, Field(ge=0, description="Number of bits that differ from the query.")]
    labels: list[str]
    code: Code
    has_image: Annotated[bool, Field(description="Whether /api/v1/thumbnails has an image of it.")]
    expected_precision: Annotated[
        float | None,
        Field(
            description="Share of validation pairs at this distance with the same label; null: the model is not calibrated."
        ),
    ]
    score: Annotated[float | None, Field(description="Distance to the real-valued query; null: not re-ranked.")]
    columns: Columns


class SearchResponse(BaseModel):
    """The nearest items, nearest first."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "code": "00ff00ff",
                    "bits": 32,
                    "matched": True,
                    "complete": True,
                    "refined": False,
                    "matches": [
                        {
                            "key": "cats/7.jpg",
                            "distance": 2,
                            "labels": ["cat"],
                            "code": "00ff00fc",
                            "has_image": True,
                            "expected_precision": 0.98,
                            "score": None,
                            "columns": {"year": 2021},
                        }
                    ],
                }
            ]
        }
    )

    code: Annotated[Code, Field(description="Code of the query.")]
    bits: int
    matched: Annotated[
        bool | None,
        Field(description="False: the expected precision of the nearest item is below the threshold. Null: not calibrated."),
    ]
    complete: Annotated[bool, Field(description="False: there may be more items within the radius than k.")]
    refined: Annotated[bool, Field(description="Whether items at the same distance are ordered by their refinement.")]
    matches: list[MatchResponse]


class ItemResponse(BaseModel):
    """An item of the index."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"key": "cats/7.jpg", "labels": ["cat"], "has_image": True, "columns": {"year": 2021}}]
        }
    )

    key: str
    labels: list[str]
    has_image: bool
    columns: Columns


class ItemPage(BaseModel):
    """Items in the order of their keys."""

    items: list[ItemResponse]
    next: Annotated[str | None, Field(description="Value of `after` for the next page; null: this is the last page.")]


class ItemQuery(BaseModel):
    """Which items to list."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1, le=MAX_RESULTS, description="Number of items.")] = 100
    after: Annotated[str | None, Field(max_length=4096, description="List items whose keys come after this one.")] = None
    sample: Annotated[
        int | None, Field(ge=1, le=100, description="Return so many random items instead; `after` and `limit` are not used.")
    ] = None


class ThumbnailQuery(BaseModel):
    """Size of a thumbnail."""

    model_config = ConfigDict(extra="forbid")

    size: Annotated[int, Field(ge=16, le=1024, description="The thumbnail fits a square of this side, in pixels.")] = 256


class NoQuery(BaseModel):
    """No query parameters."""

    model_config = ConfigDict(extra="forbid")


class NewItem(Strict):
    """An item to add, by its code or its vector; it replaces an item with the same key."""

    key: Key
    code: Code | None = None
    vector: Vector | None = None
    labels: Annotated[list[Label], Field(max_length=MAX_RESULTS)] = []
    columns: Columns = {}

    @model_validator(mode="after")
    def _check_original(self) -> Self:
        if (self.code is None) == (self.vector is None):
            raise ValueError("give exactly one of code and vector")
        return self


class AddRequest(Strict):
    """Items to add, all or none; either all have codes, or all have vectors."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"items": [{"key": "cats/8.jpg", "code": "00ff00ff", "labels": ["cat"], "columns": {"year": 2021}}]},
                {"items": [{"key": "text 8", "vector": [0.12, -0.5, 0.33], "labels": ["news"]}]},
            ]
        }
    )

    items: Annotated[list[NewItem], Field(min_length=1, max_length=MAX_ADDED)]

    @model_validator(mode="after")
    def _check_kinds(self) -> Self:
        if len({item.vector is None for item in self.items}) > 1:
            raise ValueError("give codes or vectors, not both")
        return self


class ImageItem(BaseModel):
    """Key, labels and columns of an uploaded image, from query parameters or form fields."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    key: Key
    labels: Labels = []
    columns: Annotated[Json[Columns], Field(description="Values by the name of their column, as a JSON object.")] = {}


class AddResponse(BaseModel):
    """The change is on disk."""

    added: int
    replaced: int


class DeleteRequest(Strict):
    """Items to delete: all, or none if one is unknown."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"keys": ["cats/7.jpg", "cats/8.jpg"]}]})

    keys: Annotated[list[Key], Field(min_length=1, max_length=MAX_RESULTS)]


class DeleteResponse(BaseModel):
    """The change is on disk."""

    deleted: int


class InfoResponse(BaseModel):
    """The index and what the service can do with it."""

    items: int
    bits: int
    model: Annotated[str | None, Field(description="Fingerprint of the model; null: the index holds codes from elsewhere.")]
    plan: Annotated[str, Field(description="How the index is searched: a scan, or a number of clusters.")]
    calibrated: bool
    threshold: Annotated[float, Field(description="Expected precision of the nearest item below which there is no match.")]
    input: Annotated[
        Literal["image", "vector", "code"],
        Field(description="What the model of the index encodes: images or vectors; code: there is no model."),
    ]
    width: Annotated[int | None, Field(description="Number of values of a vector; null: the model takes no vectors.")]
    columns: Annotated[
        dict[str, Literal["number", "text", "date"]], Field(description="Types of the columns of items by name.")
    ]
    can_search_images: bool
    can_search_vectors: bool
    writable: bool
    max_image_bytes: int
    version: str


class StatusResponse(BaseModel):
    """State of the service."""

    status: str


class Problem(BaseModel):
    """Problem details (RFC 9457)."""

    type: Annotated[str, Field(examples=["about:blank"])]
    title: Annotated[str, Field(examples=["Not Found"])]
    status: Annotated[int, Field(examples=[404])]
    detail: Annotated[str, Field(description="One sentence.", examples=["The index has no item cats/9.jpg."])]
    field: Annotated[
        str | None,
        Field(
            description="Field or parameter of the request that is wrong; absent if that is not known.", examples=["where"]
        ),
    ] = None


def inline_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the JSON schema of a model without references, for places where FastAPI does not collect models."""
    schema = model.model_json_schema()
    definitions = schema.pop("$defs", {})

    def resolve(node: Any) -> Any:
        if isinstance(node, dict):
            if "$ref" in node:
                return resolve(definitions[node["$ref"].rpartition("/")[2]])
            return {name: resolve(value) for name, value in node.items()}
        return [resolve(value) for value in node] if isinstance(node, list) else node

    return dict(resolve(schema))
