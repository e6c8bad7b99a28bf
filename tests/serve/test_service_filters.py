"""Filters and columns in the service."""

from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from helpers.codes import clustered_codes, make_keys
from helpers.service import TOKEN
from proxyhash.index.local.index import LocalIndex
from proxyhash.serve import create_app
from proxyhash.serve.settings import Settings

AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}
CODE = "00" * 8
DAY = date(2024, 5, 31)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder: Path = tmp_path_factory.mktemp("filters") / "i"
    with LocalIndex.open_folder(folder, bits=64) as index:
        index.add(
            clustered_codes(40, 8, 0),
            make_keys(40),
            ["cat", "dog"] * 20,
            columns={"year": range(2000, 2040), "day": [DAY] * 40},
        )
    with TestClient(create_app(folder, Settings(token=TOKEN)), "http://localhost") as client:
        yield client


def search(client: TestClient, **fields: object) -> list[dict[str, Any]]:
    response = client.post("/api/v1/search", json={"code": CODE, "k": 100, **fields})
    assert response.status_code == 200, response.text
    return list(response.json()["matches"])


def test_filter_restricts_a_search(client: TestClient) -> None:
    found = search(client, where="year < 2010 and label == 'cat'")
    assert sorted(match["columns"]["year"] for match in found) == [2000, 2002, 2004, 2006, 2008]
    assert len(search(client, where="year < 2010", labels=["dog"])) == 5
    assert len(search(client)) == 40


@pytest.mark.parametrize(
    ("where", "sentence"),
    [
        ("yaer > 3", "The index has no column yaer; did you mean year?"),
        ("year > 'a'", "year is a number; compare it with a number"),
        ("year >", "at character 7"),
        ("day == 'soon'", "'soon' is not an ISO date"),
        ("", "at least 1 character"),
        ("x" * 10_001, "at most 10000 characters"),
    ],
)
def test_wrong_filters_get_one_sentence(client: TestClient, where: str, sentence: str) -> None:
    response = client.post("/api/v1/search", json={"code": CODE, "where": where})
    assert response.status_code == 422
    assert sentence in response.json()["detail"]
    assert response.json()["field"] == "where"


def test_error_without_a_known_field_has_none(client: TestClient) -> None:
    response = client.post("/api/v1/search", json={"key": "unknown", "where": "year > 2020"})
    assert response.status_code == 404
    assert "field" not in response.json()


def test_items_are_added_and_shown_with_columns(client: TestClient) -> None:
    items = [
        {"key": "one", "code": CODE, "columns": {"year": 1990, "title": "A cat", "price": 1.5, "sold": True}},
        {"key": "two", "code": CODE, "columns": {"title": None}},
    ]
    response = client.post("/api/v1/items", json={"items": items}, headers=AUTHORIZED)
    assert response.json() == {"added": 2, "replaced": 0}, response.text
    shown = {"year": 1990, "title": "A cat", "price": 1.5, "sold": 1}
    assert client.get("/api/v1/items/one").json()["columns"] == shown
    assert client.get("/api/v1/items/two").json()["columns"] == {}
    assert [match["key"] for match in search(client, where="title == 'A cat' and price > 1")] == ["one"]
    columns = client.get("/api/v1/info").json()["columns"]
    assert columns == {"day": "date", "price": "number", "sold": "number", "title": "text", "year": "number"}


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"year": "soon"}, "year is a column of numbers; give it numbers, not texts"),
        ({"label": "x"}, "A column may not be called label"),
        ({"year": [1]}, "year"),
        ({f"c{number}": 1 for number in range(101)}, "at most 100"),
    ],
)
def test_wrong_columns_get_one_sentence(client: TestClient, columns: dict[str, Any], sentence: str) -> None:
    items = [{"key": "bad", "code": CODE, "columns": columns}]
    response = client.post("/api/v1/items", json={"items": items}, headers=AUTHORIZED)
    assert response.status_code == 422
    assert sentence in response.json()["detail"]
