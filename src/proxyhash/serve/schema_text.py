"""Readable text of the JSON schemas of an OpenAPI description."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_MAX_DEPTH = 5  # of nested objects; a schema may contain itself
_SAMPLES: dict[str, Any] = {"string": "string", "integer": 1, "number": 0.5, "boolean": True, "null": None}
_RANGES = (("minimum", "maximum", ""), ("minLength", "maxLength", " characters"), ("minItems", "maxItems", " items"))

Schema = Mapping[str, Any]


@dataclass(frozen=True)
class Field:
    """A field of an object, or a parameter."""

    name: str
    type: str
    is_required: bool
    default: str
    limits: tuple[str, ...]
    description: str
    location: str = ""


class SchemaReader:
    """Reader of the schemas of one OpenAPI description."""

    def __init__(self, openapi: Mapping[str, Any]) -> None:
        self._openapi = openapi

    def resolve(self, value: Schema) -> Schema:
        """Return an object of the description in place of a reference to it; an unknown reference becomes empty."""
        for _ in range(_MAX_DEPTH):
            if "$ref" not in value:
                break
            target: Any = self._openapi
            for part in value["$ref"].removeprefix("#/").split("/"):
                target = target.get(part, {})
            value = {**target, **{name: item for name, item in value.items() if name != "$ref"}}
        return value

    def field(self, name: str, schema: Schema, *, is_required: bool = False, location: str = "") -> Field:
        """Return a field with this schema."""
        schema = self.resolve(schema)
        default = json.dumps(schema["default"], ensure_ascii=False) if "default" in schema else ""
        texts = (value.get("description", "") for value in (schema, *self._options(schema)))
        text = next(filter(None, texts), "")
        return Field(name, self.type_name(schema), is_required, default, self.limits(schema), text, location)

    def fields(self, schema: Schema, prefix: str = "") -> tuple[Field, ...]:
        """Return the fields of an object and of the objects in it, which have names such as `items[].key`."""
        schema = self.resolve(schema)
        required = schema.get("required", ())
        rows: list[Field] = []
        for name, value in schema.get("properties", {}).items():
            path = f"{prefix}{name}"
            rows.append(self.field(path, value, is_required=name in required))
            if path.count(".") < _MAX_DEPTH:
                rows.extend(self._nested_fields(path, self.resolve(value)))
        return tuple(rows)

    def type_name(self, schema: Schema) -> str:
        """Return the type of a value, such as `array of string` or `integer or null`."""
        schema = self.resolve(schema)
        options = self._options(schema)
        if options:
            return " or ".join(dict.fromkeys(self.type_name(option) for option in options))
        if "const" in schema or "enum" in schema:
            return " or ".join(json.dumps(value) for value in schema.get("enum", [schema.get("const")]))
        name = schema.get("type", "any")
        if isinstance(name, list):
            return " or ".join(name)
        inner = schema.get("items") if name == "array" else schema.get("additionalProperties")
        if isinstance(inner, Mapping) and inner:
            return f"{name} of {self.type_name(inner)}"
        return "file" if schema.get("format") == "binary" else str(name)

    def limits(self, schema: Schema) -> tuple[str, ...]:
        """Return the ranges and patterns that a value is checked against."""
        schema = self.resolve(schema)
        texts = [_range(schema, low, high, unit) for low, high, unit in _RANGES]
        texts.append(f"matches {schema['pattern']}" if "pattern" in schema else "")
        if schema.get("type") == "array":
            texts.extend(f"each {text}" for text in self.limits(schema.get("items", {})))
        for option in self._options(schema):
            texts.extend(self.limits(option))
        return tuple(dict.fromkeys(text for text in texts if text))

    def example(self, schema: Schema, *, is_request: bool, depth: int = 0) -> Any:
        """Return an example value; a request has only the fields that are required or have an example."""
        schema = self.resolve(schema)
        explicit = explicit_examples(schema)
        if explicit:
            return explicit[0]
        options = self._options(schema)
        if options:
            return self.example(options[0], is_request=is_request, depth=depth)
        if "const" in schema or "enum" in schema:
            return schema.get("enum", [schema.get("const")])[0]
        if depth < _MAX_DEPTH and schema.get("type") == "array":
            return [self.example(schema.get("items", {}), is_request=is_request, depth=depth + 1)]
        if schema.get("type") == "object":
            return self._example_object(schema, is_request, depth + 1) if depth < _MAX_DEPTH else {}
        value = schema.get("default", schema.get("minimum", _SAMPLES.get(str(schema.get("type")))))
        return int(value) if schema.get("type") == "integer" and value is not None else value

    def _example_object(self, schema: Schema, is_request: bool, depth: int) -> dict[str, Any]:
        required = schema.get("required", ())
        return {
            name: self.example(value, is_request=is_request, depth=depth)
            for name, value in schema.get("properties", {}).items()
            if not is_request or name in required or explicit_examples(self.resolve(value))
        }

    def _nested_fields(self, path: str, schema: Schema) -> tuple[Field, ...]:
        for option in self._options(schema) or [schema]:
            if "properties" in option:
                return self.fields(option, f"{path}.")
            if "properties" in self.resolve(option.get("items", {})):
                return self.fields(option["items"], f"{path}[].")
        return ()

    def _options(self, schema: Schema) -> list[Schema]:
        """Return the alternatives of a schema, null last."""
        options = [self.resolve(option) for kind in ("anyOf", "oneOf", "allOf") for option in schema.get(kind, ())]
        return sorted(options, key=lambda option: option.get("type") == "null")


def explicit_examples(value: Schema) -> list[Any]:
    """Return the examples that a schema, a parameter or a media type states."""
    if "example" in value:
        return [value["example"]]
    examples = value.get("examples", [])
    if isinstance(examples, Mapping):
        return [example.get("value") for example in examples.values()]
    return list(examples)


def _range(schema: Schema, low_name: str, high_name: str, unit: str) -> str:
    low, high = schema.get(low_name), schema.get(high_name)
    if low is not None and high is not None:
        return f"{_number(low)} to {_number(high)}{unit}"
    if low is not None:
        return f"at least {_number(low)}{unit}"
    return f"at most {_number(high)}{unit}" if high is not None else ""


def _number(value: float) -> str:
    return f"{int(value):,}" if value == int(value) else f"{value:,}"
