"""HTML documentation of an API, rendered from its OpenAPI description."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, StrictUndefined, Template

from proxyhash.serve.schema_text import Field, SchemaReader, explicit_examples

_METHODS = ("get", "post", "put", "patch", "delete")
_LOCAL_URL = "http://localhost:8000"
_JSON = re.compile(r"application/(.+\+)?json")
_MULTIPART = "multipart/form-data"
_DEFAULT_DESCRIPTION = "Successful Response"  # of FastAPI; it says nothing

Values = Mapping[str, Any]


@dataclass(frozen=True)
class TextBlock:
    """A heading, a paragraph or a list of a description."""

    kind: str
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Content:
    """A request or response body of one content type."""

    content_type: str
    description: str
    fields: tuple[Field, ...]
    examples: tuple[str, ...]
    curl: str = ""


@dataclass(frozen=True)
class Response:
    """A response with one status."""

    status: str
    description: str
    contents: tuple[Content, ...]


@dataclass(frozen=True)
class Operation:
    """A method of a path."""

    anchor: str
    method: str
    path: str
    summary: str
    description: str
    needs_token: bool
    parameters: tuple[Field, ...]
    bodies: tuple[Content, ...]
    curl: str
    responses: tuple[Response, ...]
    errors: tuple[Response, ...]


@dataclass(frozen=True)
class Section:
    """Operations with the same tag."""

    title: str
    description: str
    operations: tuple[Operation, ...]


def render_docs(openapi: dict[str, Any]) -> str:
    """Return an HTML page that documents an API.

    The page needs no JavaScript. All its links are relative, and all text is escaped.

    Parameters
    ----------
    openapi
        OpenAPI 3.1 description. Its descriptions may have paragraphs, `##` headings, `-` lists and inline code.

    Returns
    -------
    str
        HTML page.

    Examples
    --------
    >>> page = render_docs({"info": {"title": "Example", "version": "1"}, "paths": {"/a": {"get": {"summary": "Read a"}}}})
    >>> "<h1>Example" in page and "Read a" in page
    True
    """
    reader = DocsReader(openapi)
    return _template().render(info=openapi["info"], sections=reader.sections(), error=reader.error_content())


@cache
def _template() -> Template:
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(blocks=split_blocks, spans=split_code)
    source = resources.files(__package__).joinpath("templates", "docs.html.j2").read_text(encoding="utf-8")
    return environment.from_string(source)


class DocsReader:
    """Reader of the parts of an OpenAPI description that are documented."""

    def __init__(self, openapi: Values) -> None:
        self._openapi = openapi
        self._schemas = SchemaReader(openapi)

    def sections(self) -> tuple[Section, ...]:
        """Return the operations by their first tag, in the order of the description."""
        by_tag: dict[str, list[Operation]] = {}
        for path, method, values in self._operations():
            tag = next(iter(values.get("tags", ())), "operations")
            by_tag.setdefault(tag, []).append(self._operation(path, method, values))
        texts = {tag["name"]: tag.get("description", "") for tag in self._openapi.get("tags", ())}
        return tuple(Section(_capitalize(tag), texts.get(tag, ""), tuple(operations)) for tag, operations in by_tag.items())

    def error_content(self) -> Content | None:
        """Return the JSON body of errors, None if no error is described."""
        contents = (
            self._content(content_type, media, is_request=False)
            for _, _, values in self._operations()
            for status, response in values.get("responses", {}).items()
            for content_type, media in self._schemas.resolve(response).get("content", {}).items()
            if not _is_success(status) and _JSON.fullmatch(content_type)
        )
        return next(contents, None)

    def _operations(self) -> Iterator[tuple[str, str, Values]]:
        for path, item in self._openapi.get("paths", {}).items():
            for method in _METHODS:
                if method in item:
                    parameters = [*item.get("parameters", ()), *item[method].get("parameters", ())]
                    resolved = [self._schemas.resolve(parameter) for parameter in parameters]
                    yield path, method, {**item[method], "parameters": resolved}

    def _operation(self, path: str, method: str, values: Values) -> Operation:
        body = self._schemas.resolve(values.get("requestBody", {})).get("content", {})
        responses = [self._response(status, response) for status, response in sorted(values.get("responses", {}).items())]
        return Operation(
            anchor=re.sub(r"[^a-z0-9]+", "-", f"{method}{path}".lower()).strip("-"),
            method=method.upper(),
            path=path,
            summary=_summary(values),
            description=values.get("description", ""),
            needs_token=bool(values.get("security")),
            parameters=tuple(self._parameter(parameter) for parameter in values["parameters"]),
            bodies=_merge([self._body(path, method, values, *content) for content in body.items()]),
            curl="" if body else self._curl(path, method, values),
            responses=tuple(response for response in responses if _is_success(response.status)),
            errors=tuple(response for response in responses if not _is_success(response.status)),
        )

    def _parameter(self, parameter: Values) -> Field:
        schema = {**parameter.get("schema", {})}
        schema["description"] = parameter.get("description", schema.get("description", ""))
        is_required = parameter.get("required", False)
        return self._schemas.field(parameter["name"], schema, is_required=is_required, location=parameter["in"])

    def _body(self, path: str, method: str, values: Values, content_type: str, media: Values) -> Content:
        content = self._content(content_type, media, is_request=True)
        curl = self._curl(path, method, values, content_type, media)
        return replace(content, curl=curl)

    def _response(self, status: str, values: Values) -> Response:
        response = self._schemas.resolve(values)
        contents = (self._content(name, media, is_request=False) for name, media in response.get("content", {}).items())
        description = response.get("description", "").replace(_DEFAULT_DESCRIPTION, "")
        return Response(status, description, tuple(contents))

    def _content(self, content_type: str, media: Values, *, is_request: bool) -> Content:
        schema = self._schemas.resolve(media.get("schema", {}))
        examples = self._examples(media, is_request=is_request) if _JSON.fullmatch(content_type) else []
        texts = tuple(format_json(example) for example in examples)
        return Content(content_type, schema.get("description", ""), self._schemas.fields(schema), texts)

    def _examples(self, media: Values, *, is_request: bool) -> list[Any]:
        return explicit_examples(media) or [self._schemas.example(media.get("schema", {}), is_request=is_request)]

    def _curl(self, path: str, method: str, values: Values, content_type: str = "", media: Values | None = None) -> str:
        """Return a curl command; options of an image are in the query, options of other bodies are not."""
        has_options_in_query = not (_JSON.fullmatch(content_type) or content_type == _MULTIPART)
        url = self._example_url(path, values["parameters"], with_options=has_options_in_query)
        command = "curl" if method == ("post" if content_type else "get") else f"curl -X {method.upper()}"
        lines = [f"{command} {shlex.quote(url)}"]
        if values.get("security"):
            lines.append('-H "Authorization: Bearer $TOKEN"')
        if content_type:
            lines.extend(self._curl_body(content_type, media or {}))
        if any(name.startswith("image/") for name in values.get("responses", {}).get("200", {}).get("content", {})):
            lines.append("-o image.jpg")
        return " \\\n  ".join(lines)

    def _curl_body(self, content_type: str, media: Values) -> list[str]:
        if _JSON.fullmatch(content_type):
            value = json.dumps(self._examples(media, is_request=True)[0], ensure_ascii=False)
            return [f"-H 'Content-Type: {content_type}'", f"-d {shlex.quote(value)}"]
        if content_type != _MULTIPART:
            name = content_type.replace("image/*", "image/jpeg")
            return [f"-H {shlex.quote(f'Content-Type: {name}')}", "--data-binary @image.jpg"]
        return [f"-F {shlex.quote(f'{name}={value}')}" for name, value in self._form_values(media)]

    def _form_values(self, media: Values) -> Iterator[tuple[str, Any]]:
        schema = self._schemas.resolve(media.get("schema", {}))
        for name, value in self._schemas.example(schema, is_request=True).items():
            is_file = self._schemas.type_name(schema["properties"][name]) == "file"
            for item in value if isinstance(value, list) else [value]:
                yield name, "@image.jpg" if is_file else item

    def _example_url(self, path: str, parameters: Sequence[Values], *, with_options: bool) -> str:
        query = []
        for parameter in parameters:
            schema = self._schemas.resolve(parameter.get("schema", {}))
            explicit = explicit_examples(parameter) or explicit_examples(schema)
            value = (explicit or [self._schemas.example(schema, is_request=True)])[0]
            if parameter["in"] == "path":
                shown = quote(str(value), safe="/") if explicit else parameter["name"].upper()
                path = path.replace(f"{{{parameter['name']}}}", shown)
            elif parameter["in"] == "query" and (parameter.get("required") or (with_options and explicit)):
                query.append((parameter["name"], value))
        server = next(iter(self._openapi.get("servers", ())), {"url": ""})["url"].rstrip("/")
        base = server if "://" in server else f"{_LOCAL_URL}{server}"
        return f"{base}{path}{'?' if query else ''}{urlencode(query, doseq=True, safe='/')}"


def format_json(value: Any) -> str:
    """Return indented JSON with each short array on one line.

    >>> print(format_json({"labels": ["cat", "dog"]}))
    {
      "labels": ["cat", "dog"]
    }
    """
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return re.sub(r"\[\n *([^][{}]{,80})\n *\]", lambda match: "[" + re.sub(r"\n *", " ", match[1]) + "]", text)


def split_blocks(text: str) -> list[TextBlock]:
    """Return the headings, paragraphs and lists of a text, which empty lines separate.

    >>> [block.kind for block in split_blocks("## Title\\n\\nOne paragraph\\nof two lines.\\n\\n- item\\n- item")]
    ['heading', 'paragraph', 'list']
    """
    return [_block(part.strip()) for part in re.split(r"\n\s*\n", text) if part.strip()]


def _block(text: str) -> TextBlock:
    if text.startswith("#"):
        return TextBlock("heading", (text.lstrip("#").strip(),))
    if text.startswith("- "):
        return TextBlock("list", tuple(" ".join(item.split()) for item in re.split(r"(?:^|\n)\s*- ", text) if item))
    return TextBlock("paragraph", (" ".join(text.split()),))


def split_code(text: str) -> list[tuple[bool, str]]:
    """Return pieces of a text and whether each is code, which stands between backticks.

    >>> split_code("Set `k` to 5.")
    [(False, 'Set '), (True, 'k'), (False, ' to 5.')]
    """
    return [(number % 2 == 1, part) for number, part in enumerate(re.split(r"`+([^`]+)`+", text)) if part]


def _merge(contents: Sequence[Content]) -> tuple[Content, ...]:
    """Merge bodies without fields, which differ in their content type only, and take the command of the first."""
    plain = [content for content in contents if not content.fields and not content.examples]
    names = " or ".join(content.content_type for content in plain)
    return tuple(
        replace(content, content_type=names) if content in plain else content
        for content in contents
        if content not in plain[1:]
    )


def _summary(values: Values) -> str:
    """Return the summary, unless it only repeats the name of the operation, as FastAPI writes it."""
    summary: str = values.get("summary", "")
    is_name = summary == str(values.get("operationId", "")).replace("_", " ").title()
    return "" if is_name and values.get("description") else summary


def _is_success(status: str) -> bool:
    return status.startswith("2")


def _capitalize(text: str) -> str:
    return text[:1].upper() + text[1:]
