"""Documentation page of an OpenAPI description: complete, escaped, and readable without network and JavaScript."""

import shlex
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Browser, expect

from helpers.page_session import PageSession
from helpers.service import NASTY, RunningService, make_code_index
from proxyhash.serve import create_app
from proxyhash.serve.api_docs import DocsReader, Operation, format_json, render_docs, split_blocks, split_code
from proxyhash.serve.schema_text import SchemaReader

PROBLEM = {"type": "object", "properties": {"detail": {"type": "string", "examples": ["There is no such item."]}}}


def make_openapi(**operation: Any) -> dict[str, Any]:
    """Return the description of one operation, which adds an item."""
    schema = {
        "type": "object",
        "required": ["key"],
        "properties": {
            "key": {"type": "string", "minLength": 1, "maxLength": 4096, "examples": ["it's/7.jpg"]},
            "count": {"type": "integer", "minimum": 1, "maximum": 1000, "default": 10, "description": "Set `count`."},
            "radius": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}], "default": None},
        },
    }
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Item"}}}
    error = {"description": "Unknown item.", "content": {"application/problem+json": {"schema": PROBLEM}}}
    values = {
        "tags": ["items"],
        "summary": "Add an item",
        "description": "First paragraph.\n\nSecond paragraph.",
        "requestBody": {"content": content},
        "responses": {"200": {"description": "Added.", "content": content}, "404": error},
        **operation,
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "example", "version": "1", "description": "Text.\n\n## What is stable\n\n- `a`\n- b"},
        "paths": {"/items/{key}": {"post": values}},
        "components": {"schemas": {"Item": schema}},
    }


def read_operation(openapi: dict[str, Any]) -> Operation:
    return DocsReader(openapi).sections()[0].operations[0]


def split_command(command: str) -> list[str]:
    return shlex.split(command.replace("\\\n", ""))


def test_page_has_all_parts_of_an_operation() -> None:
    page = render_docs(make_openapi())
    for text in (
        "<h2>What is stable</h2>",
        "<li><code>a</code></li>",
        "<h2>Items</h2>",
        "/items/{key}",
        "Add an item",
        "<p>Second paragraph.</p>",
        "integer, 1 to 1,000, default <code>10</code>",
        "Set <code>count</code>.",
        "integer or null, at least 0, default <code>null</code>",
        "Unknown item.",
        "There is no such item.",
        'href="openapi.json"',
    ):
        assert text in page, text


def test_text_of_the_description_is_escaped() -> None:
    openapi = make_openapi(summary=NASTY, description=f"{NASTY} `{NASTY}`", tags=[NASTY])
    openapi["info"] = {"title": NASTY, "version": NASTY, "description": f"# {NASTY}\n\n- {NASTY}"}
    openapi["components"]["schemas"]["Item"]["properties"][NASTY] = {"type": NASTY, "description": NASTY, "default": NASTY}
    openapi["paths"][f"/{NASTY}"] = openapi["paths"]["/items/{key}"]
    page = render_docs(openapi)
    assert "<img src=x" not in page
    assert "&lt;img src=x" in page


def test_page_has_no_script_and_only_relative_links() -> None:
    page = render_docs(make_openapi())
    assert "<script" not in page
    assert "style=" not in page
    assert 'href="/' not in page
    assert "//" not in page.replace("http://localhost:8000", "")


def test_json_command_quotes_the_example() -> None:
    command = split_command(read_operation(make_openapi()).bodies[0].curl)
    assert command == [
        "curl",
        "http://localhost:8000/items/{key}",
        "-H",
        "Content-Type: application/json",
        "-d",
        '{"key": "it\'s/7.jpg"}',
    ]


def test_command_fills_parameters_and_the_token() -> None:
    parameters = [
        {"name": "key", "in": "path", "required": True, "schema": {"type": "string"}, "example": "a b/c.jpg"},
        {"name": "limit", "in": "query", "schema": {"type": "integer", "examples": [5]}},
        {"name": "after", "in": "query", "schema": {"type": "string"}},
    ]
    openapi = make_openapi(parameters=parameters, requestBody={}, security=[{"token": []}])
    openapi["servers"] = [{"url": "/below"}]
    operation = read_operation(openapi)
    assert operation.needs_token
    assert split_command(operation.curl) == [
        "curl",
        "-X",
        "POST",
        "http://localhost:8000/below/items/a%20b/c.jpg?limit=5",
        "-H",
        "Authorization: Bearer $TOKEN",
    ]


def test_image_bodies_are_merged_and_have_commands() -> None:
    image = {"type": "string", "format": "binary"}
    labels = {"type": "array", "items": {"type": "string"}, "examples": [["cat", "dog"]]}
    form = {"type": "object", "required": ["image"], "properties": {"image": image, "labels": labels}}
    content = {
        "image/*": {"schema": image},
        "application/octet-stream": {"schema": image},
        "multipart/form-data": {"schema": form},
    }
    raw, multipart = read_operation(make_openapi(requestBody={"content": content})).bodies
    assert raw.content_type == "image/* or application/octet-stream"
    assert split_command(raw.curl)[2:] == ["-H", "Content-Type: image/jpeg", "--data-binary", "@image.jpg"]
    assert split_command(multipart.curl)[2:] == ["-F", "image=@image.jpg", "-F", "labels=cat", "-F", "labels=dog"]
    assert [field.type for field in multipart.fields] == ["file", "array of string"]


def test_response_example_is_made_from_the_schema() -> None:
    schema = {
        "type": "object",
        "properties": {
            "next": {"anyOf": [{"type": "null"}, {"type": "string"}]},
            "items": {"type": "array", "items": {"$ref": "#/components/schemas/Item"}},
        },
    }
    reader = SchemaReader(make_openapi())
    item = {"key": "it's/7.jpg", "count": 10, "radius": 0}
    assert reader.example(schema, is_request=False) == {"next": "string", "items": [item]}
    assert [field.name for field in reader.fields(schema)] == [
        "next",
        "items",
        "items[].key",
        "items[].count",
        "items[].radius",
    ]


def test_description_of_an_alternative_is_used() -> None:
    schema = {"anyOf": [{"type": "string", "description": "Key of an item."}, {"type": "null"}]}
    assert SchemaReader({}).field("key", schema).description == "Key of an item."


def test_schema_that_contains_itself_ends() -> None:
    node = {"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#/components/schemas/Node"}}}}
    reader = SchemaReader({"components": {"schemas": {"Node": node}}})
    assert len(reader.fields(node)) < 10
    assert "children" in reader.example(node, is_request=False)
    assert reader.resolve({"$ref": "#/components/schemas/Absent"}) == {}


@pytest.mark.parametrize(
    ("schema", "name", "limits"),
    [
        ({"type": "array", "items": {"type": "string", "maxLength": 9}, "maxItems": 100}, "array of string", 2),
        ({"enum": ["a", "b"]}, '"a" or "b"', 0),
        ({"type": ["integer", "null"], "minimum": 0.5}, "integer or null", 1),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, "object of integer", 0),
        ({"type": "string", "pattern": "^a$"}, "string", 1),
        ({}, "any", 0),
    ],
)
def test_types_and_limits_are_text(schema: dict[str, Any], name: str, limits: int) -> None:
    reader = SchemaReader({})
    assert reader.type_name(schema) == name
    assert len(reader.limits(schema)) == limits


def test_text_is_split_into_blocks_and_code() -> None:
    assert [block.lines for block in split_blocks("# A\n\nb\nc\n\n- d\n  e\n- f\n")] == [("A",), ("b c",), ("d e", "f")]
    assert split_code("a ``b`` c") == [(False, "a "), (True, "b"), (False, " c")]
    assert split_code("") == []


def test_short_arrays_stay_on_one_line() -> None:
    assert format_json({"a": [1, 2]}) == '{\n  "a": [1, 2]\n}'
    assert format_json(["[\n", "x"]) == '[\n  "[\\n",\n  "x"\n]'


def test_all_operations_of_the_service_are_documented(tmp_path: Path) -> None:
    app = create_app(make_code_index(tmp_path / "i", 10))
    with TestClient(app, "http://localhost") as client:
        page = client.get("/docs").text
        openapi = client.get("/openapi.json").json()
    operations = [operation for section in DocsReader(openapi).sections() for operation in section.operations]
    assert len(operations) == sum(len(methods) for methods in openapi["paths"].values())
    for operation in operations:
        assert f'id="{operation.anchor}"' in page
        assert operation.curl or operation.bodies


@pytest.mark.parametrize("width", [1280, 390])
def test_documentation_is_readable_without_javascript(browser: Browser, photo_service: RunningService, width: int) -> None:
    session = PageSession(browser, photo_service.url, "/docs", width=width, java_script_enabled=False)
    page = session.page
    expect(page.locator("h1")).to_contain_text("proxyhash API")
    page.locator("nav a", has_text="/api/v1/search").click()
    article = page.locator("article:target")
    expect(article).to_contain_text("Request body")
    expect(article.locator("pre").first).to_be_visible()
    page.close()
    assert session.problems == []


def test_documentation_fits_a_phone(browser: Browser, photo_service: RunningService) -> None:
    PageSession(browser, photo_service.url, "/docs", width=390).close()
