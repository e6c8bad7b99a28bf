"""The API asked by a machine that read its description: every answer is as described, and none is a failure."""

from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from helpers.service import TOKEN, Service

FEW, MANY = 6, 250
# One check is left out always, `positive_data_acceptance`: a code may be well formed and not as long as those of this index,
# and bytes may be no image.


def fuzz(running: Service, examples: int) -> None:
    """Send requests that fit the document, and ones that do not, to every operation; shrinking would only take time."""
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
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        modes = [GenerationMode.POSITIVE, *([GenerationMode.NEGATIVE] if _has_input(operation) else [])]
        for mode in modes:
            _check(operation.as_strategy(mode), steady)
    assert len(names) == 12


def _check(cases: "st.SearchStrategy[Any]", steady: settings) -> None:
    @steady
    @given(cases)
    def check(case: Any) -> None:
        response = case.call(headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60)
        assert response.status_code < 500, response.text
        invisible = [negative_data_rejection] if _is_right_on_the_wire(response) else []
        case.validate_response(response, excluded_checks=[positive_data_acceptance, *invisible])

    check()


def _is_right_on_the_wire(response: Any) -> bool:
    """Return whether an image was added as it should be, whatever the case says of itself.

    In an address a number for a list of labels is a list of one text, and the token is sent by us, always.
    """
    address = urlsplit(str(response.request.url))
    pairs = parse_qsl(address.query, keep_blank_values=True)
    keys, labels = ([value for name, value in pairs if name == wanted] for wanted in ("key", "label"))
    return address.path == "/api/add/image" and len(keys) == 1 and len(keys) + len(labels) == len(pairs)


def _has_input(operation: Any) -> bool:
    return bool(list(operation.iter_parameters())) or bool(operation.body)


def test_the_api_is_what_it_says(photo_service: Service) -> None:
    fuzz(photo_service, FEW)
    _tidy(photo_service)


@pytest.mark.slow
def test_the_api_is_what_it_says_for_long(photo_service: Service) -> None:
    fuzz(photo_service, MANY)
    _tidy(photo_service)


def _tidy(running: Service) -> None:
    """Remove what fuzzing added, and see that the service is as it was."""
    from proxyhash.index.local.index import LocalIndex

    with LocalIndex.open_folder(running.index) as index:
        keys = [key for (key,) in index.store.rows("SELECT key FROM items WHERE source IS NULL")]
        if keys:
            index.remove(keys)
    with running.client() as client:
        assert client.get("/api/info").json()["items"] == 13
