"""Parts of the OpenAPI document for bodies that FastAPI does not read itself, and for errors."""

from typing import Any

from pydantic import BaseModel

from proxyhash.serve.bodies import IMAGE_FIELD, JSON, MULTIPART
from proxyhash.serve.schemas import inline_schema

Responses = dict[int | str, dict[str, Any]]

DESCRIPTION = """\
Search an index of images, of vectors, or of codes, by Hamming distance.

Stable: the paths under /api/v1, their parameters, and the fields of requests and responses. A later version may add \
optional parameters and fields; clients should ignore fields they do not know. What is removed or changed gets a new \
prefix, /api/v2. Not stable: the sentences in `detail`, the text of the page, and the names of log fields.

Codes are hexadecimal. Every error is a problem detail (RFC 9457) whose `detail` is one sentence. Status 503 has a \
Retry-After header: send the request again.
"""

ANY: Responses = {
    400: {"description": "The request is malformed."},
    421: {"description": "The service does not accept this host name."},
    422: {"description": "The request is not valid."},
}
NOT_FOUND: Responses = {404: {"description": "The index has no such item."}}
BUSY: Responses = {
    **NOT_FOUND,
    408: {"description": "The body did not arrive in time."},
    413: {"description": "The body is too large."},
    415: {"description": "The body has another media type."},
    501: {"description": "Images and vectors cannot be encoded here."},
    503: {"description": "The service is busy; try again."},
}
WRITE: Responses = {
    **BUSY,
    401: {"description": "The token is missing or wrong."},
    403: {"description": "The service is read-only."},
}


def json_body(model: type[BaseModel]) -> dict[str, Any]:
    """Return the content of a JSON body, with the examples of the model."""
    schema = inline_schema(model)
    examples = schema.pop("examples", [])
    named = {str(number): {"value": example} for number, example in enumerate(examples, 1)}
    return {JSON: {"schema": schema, **({"examples": named} if named else {})}}


def image_bodies(options: type[BaseModel]) -> dict[str, Any]:
    """Return the content of a body that is an image, or a form with one and with options."""
    image = {"type": "string", "format": "binary"}
    form = inline_schema(options)
    form["properties"] = {IMAGE_FIELD: {**image, "description": "The image file."}, **form["properties"]}
    form["required"] = [IMAGE_FIELD, *form.get("required", [])]
    return {
        "image/*": {"schema": image},
        "application/octet-stream": {"schema": image},
        MULTIPART: {"schema": form},
    }


def query_parameters(model: type[BaseModel], note: str, *, optional: bool = False) -> list[dict[str, Any]]:
    """Return the fields of a model as query parameters."""
    schema = inline_schema(model)
    required = [] if optional else schema.get("required", [])
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "description": f"{field.pop('description', '')} {note}".strip(),
            "schema": field,
        }
        for name, field in schema["properties"].items()
    ]
