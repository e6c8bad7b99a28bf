"""The API as its OpenAPI document describes it: every response to generated requests conforms, none is a failure."""

from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from helpers.service import TOKEN, RunningService
from proxyhash.index.local.index import LocalIndex

FEW, MANY = 6, 250
OPERATIONS = {
    "POST /api/v1/search",
    "GET /api/v1/items",
    "POST /api/v1/items",
    "POST /api/v1/items/delete",
    "GET /api/v1/items/{key}",
    "DELETE /api/v1/items/{key}",
    "GET /api/v1/thumbnails/{key}",
    "GET /api/v1/info",
    "GET /health",
    "GET /ready",
    "GET /metrics",
}
# One check is always left out, `positive_data_acceptance`: a code may be well formed and have another length than those of
# this index, and bytes may not be an image.


def fuzz(running: RunningService, examples: int) -> None:
    """Send requests that conform to the document, and ones that do not, to every operation."""
    schema = schemathesis.openapi.from_url(f"{running.url}/openapi.json")
    names = set()
    for found in schema.get_all_operations():
        operation: Any = found.ok()  # type: ignore[union-attr]  # an error would be raised here
        names.add(operation.label)
        steady = settings(
            max_examples=examples,
            derandomize=True,
            database=None,
            deadline=None,
            phases=[Phase.generate],  # shrinking would only take time
            suppress_health_check=list(HealthCheck),
        )
        modes = [GenerationMode.POSITIVE, *([GenerationMode.NEGATIVE] if _has_input(operation) else [])]
        for mode in modes:
            _check(operation.as_strategy(mode), steady)
    assert names == OPERATIONS


def _check(cases: "st.SearchStrategy[Any]", steady: settings) -> None:
    @steady
    @given(cases)
    def check(case: Any) -> None:
        response = case.call(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60)
        assert response.status_code < 500, response.text
        invisible = [negative_data_rejection] if _is_valid_on_the_wire(response) else []
        case.validate_response(response, excluded_checks=[positive_data_acceptance, *invisible])

    check()


def _is_valid_on_the_wire(response: Any) -> bool:
    """Return whether the request is valid as sent, whatever the case says of itself.

    In an address a number for a list of labels is a list of one text, a key in a path is always a text, and the token is
    always sent by us.
    """
    address = urlsplit(str(response.request.url))
    names = {name for name, _ in parse_qsl(address.query, keep_blank_values=True)}
    has_key = address.path.startswith(("/api/v1/items/", "/api/v1/thumbnails/"))
    return has_key or names <= {"key", "labels"}


def _has_input(operation: Any) -> bool:
    """Return whether a request can be invalid: every text is a valid key in a path."""
    return any(parameter.location != "path" for parameter in operation.iter_parameters()) or bool(operation.body)


def test_api_conforms_to_its_document(photo_service: RunningService) -> None:
    fuzz(photo_service, FEW)
    _remove_added(photo_service)


@pytest.mark.slow
def test_api_conforms_to_its_document_for_many_requests(photo_service: RunningService) -> None:
    fuzz(photo_service, MANY)
    _remove_added(photo_service)


def _remove_added(running: RunningService) -> None:
    with LocalIndex.open_folder(running.index) as index:
        keys = [key for (key,) in index.store.rows("SELECT key FROM items WHERE source IS NULL")]
        if keys:
            index.remove(keys)
    with running.client() as client:
        assert client.get("/api/v1/info").json()["items"] == 13


def test_document_has_examples_and_problem_details(photo_service: RunningService) -> None:
    with photo_service.client() as client:
        document = client.get("/openapi.json").json()
    search = document["paths"]["/api/v1/search"]["post"]
    assert search["requestBody"]["content"]["application/json"]["examples"]
    assert set(search["requestBody"]["content"]) >= {"multipart/form-data", "image/*"}
    for path in document["paths"].values():
        for operation in path.values():
            errors = {status: one for status, one in operation["responses"].items() if status >= "400"}
            assert all(set(one["content"]) == {"application/problem+json"} for one in errors.values())
            assert operation["summary"]
