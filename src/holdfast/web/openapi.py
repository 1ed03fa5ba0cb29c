"""The OpenAPI document, made from the functions behind pages and actions."""

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast.web.routes import MISSING, Action, Page, Parameter, Place

_PATH = re.compile(r"\{(\w+)\}")
PROBLEM = {
    "type": "object",
    "required": ["error", "message"],
    "properties": {"error": {"type": "string"}, "message": {"type": "string"}},
}


def document(places: Iterable[Place], *, root: str, version: str) -> dict[str, Any]:
    """What can be asked of these, and what they answer."""
    known = list(places)
    types = [each.answer for each in known] + [parameter.type for each in known for parameter in each.parameters]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    answers, asked = schemas[: len(known)], iter(schemas[len(known) :])
    paths: dict[str, Any] = {}
    for place, answer in zip(known, answers, strict=True):
        given = [(each, next(asked)) for each in place.parameters]
        method = "post" if isinstance(place, Action) else "get"
        paths.setdefault(f"/api{place.path.rstrip('/')}", {})[method] = _operation(place, given, answer)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Holdfast", "version": version},
        "servers": [{"url": root or "/"}],
        "paths": paths,
        "components": {
            "schemas": {**components, "Problem": PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(place: Place, given: list[tuple[Parameter, Any]], answer: Any) -> dict[str, Any]:
    inside = _PATH.findall(place.path)
    told: dict[str, Any] = {
        "operationId": place.name,
        "summary": place.about.split("\n")[0],
        "description": place.about,
        "parameters": [
            {"name": each.name, "in": "path", "required": True, "schema": schema}
            for each, schema in given
            if each.name in inside
        ],
        "responses": {
            "200": {"description": "", "content": {"application/json": {"schema": answer}}},
            "default": {
                "description": "Why not.",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
            },
        },
    }
    others = [(each, schema) for each, schema in given if each.name not in inside]
    if isinstance(place, Page):
        told["parameters"] += [
            {"name": each.name, "in": "query", "required": each.default is MISSING, "schema": schema}
            for each, schema in others
        ]
    else:
        told["requestBody"] = {
            "required": any(each.default is MISSING for each, _ in others),
            "content": {
                "application/json": {
                    "schema": {
                        "type": "object",
                        "additionalProperties": False,
                        "required": [each.name for each, _ in others if each.default is MISSING],
                        "properties": {each.name: schema for each, schema in others},
                    }
                }
            },
        }
    return told
