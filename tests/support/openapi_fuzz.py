"""Requests made of an OpenAPI document by hypothesis: mostly what the document says, here and there what it does not.

`calls(document)` draws a `Call`: a method, a path with its parameters filled in, a query and a body of the declared type.
Bodies follow the schemas so that they come past the decoder, and some values in them are replaced by others of any type.
Only a few of an object's fields are drawn, or nothing would ever be short enough to be understood.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from hypothesis import strategies as st

from tests.support import fuzz_values as values

METHODS = ("get", "put", "post", "delete", "patch")


@dataclass
class Call:
    """One request."""

    method: str
    path: str
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.method} {self.path} {self.headers} {self.body!r}"


class Requests:
    """Requests of one document, as hypothesis draws them."""

    def __init__(self, document: dict[str, Any], safe: tuple[str, ...], valid: Iterable[dict[str, Any]] = ()) -> None:
        self._definitions: dict[str, Any] = document["definitions"]
        self._safe = safe
        """Beginnings of paths whose objects would change what the server does to others: written with dryRun alone."""
        self._valid = {(obj["apiVersion"], obj["kind"]): obj for obj in valid}
        """An object of a kind that the server takes."""
        self._wild = 0
        """Values in thirty that are drawn regardless of the schema."""
        self.operations: list[tuple[str, str, dict[str, Any]]] = []
        for path, item in sorted(document["paths"].items()):
            for method in METHODS:
                if method in item:
                    self.operations.append((method, path, item[method]))

    @st.composite
    @staticmethod
    def _drawn(draw: st.DrawFn, self: Requests) -> Call:
        method, template, operation = draw(st.sampled_from(self.operations))
        path = template
        if "{namespace}" in path:
            path = path.replace("{namespace}", quote(draw(values.NAMESPACE), safe=""))
        name = draw(values.NAME) if "{name}" in path else ""
        path = path.replace("{name}", quote(name, safe=""))
        query = draw(self._query(operation)) if draw(st.integers(0, 2)) == 0 else {}
        if method in ("get",) and "watch" in query:
            query["timeoutSeconds"] = "1"
        if method != "get" and (template.startswith(self._safe) or (method == "delete" and not path.endswith("/b"))):
            query["dryRun"] = "All"
        body, headers = None, draw(st.one_of(st.just({}), st.just({}), values.HEADERS))
        headers = dict(headers)
        for parameter in operation.get("parameters", ()):
            if parameter["in"] == "body":
                body, headers["Content-Type"] = self._body(draw, method, operation, parameter["schema"], name)
                if "apply-patch" in headers["Content-Type"]:
                    query.setdefault("fieldManager", "me")
        return Call(method.upper(), path + ("?" + urlencode(query) if query else ""), body, headers)

    def calls(self) -> st.SearchStrategy[Call]:
        """Draw requests."""
        return Requests._drawn(self)

    def _query(self, operation: dict[str, Any]) -> st.SearchStrategy[dict[str, str]]:
        declared = {
            p["name"]: values.OPTIONS.get(p["name"], values.BY_TYPE[p["type"]])
            for p in operation.get("parameters", ())
            if p["in"] == "query"
        }
        some = st.lists(st.sampled_from(sorted(declared)), max_size=3, unique=True) if declared else st.just([])
        return some.flatmap(lambda names: st.fixed_dictionaries({name: declared[name] for name in names}))

    def _body(
        self, draw: st.DrawFn, method: str, operation: dict[str, Any], schema: dict[str, Any], name: str
    ) -> tuple[bytes, str]:
        kind = draw(st.sampled_from(operation["consumes"] if method == "patch" else values.BODY_TYPES))
        if draw(st.integers(0, 19)) == 0:
            return draw(st.binary(max_size=40)), kind
        gvk = operation["x-kubernetes-group-version-kind"]
        if kind == "application/json-patch+json":
            value = draw(values.JSON_PATCH)
        else:
            if method == "patch":
                schema = self._of_kind(gvk) or schema
            self._wild = draw(st.sampled_from((0, 0, 0, 1, 5)))
            value = self._value(draw, schema, 0)
            if isinstance(value, dict) and method != "delete" and draw(st.integers(0, 9)) > 0:
                value = self._named(draw, value, gvk, name)
        return json.dumps(value).encode(), kind

    def _named(self, draw: st.DrawFn, value: dict[str, Any], gvk: dict[str, str], name: str) -> dict[str, Any]:
        """Make what was drawn an object of the kind, mostly by laying a part of it over one that is valid."""
        version = f"{gvk['group']}/{gvk['version']}".lstrip("/")
        whole = self._valid.get((version, gvk["kind"]))
        if whole is not None and draw(st.integers(0, 3)) > 0:
            value = _laid_over(whole, value)
        meta = value["metadata"] if isinstance(value.get("metadata"), dict) else {}
        if not self._wild:
            meta = {k: v for k, v in meta.items() if k != "namespace"}
        meta = {**meta, "name": name or draw(st.sampled_from("ab"))}
        return {**value, "apiVersion": version, "kind": gvk["kind"], "metadata": meta}

    def _of_kind(self, gvk: dict[str, str]) -> dict[str, Any] | None:
        for schema in self._definitions.values():
            if gvk in schema.get("x-kubernetes-group-version-kind", ()):
                return schema  # type: ignore[no-any-return]
        return None

    def _text(self, draw: st.DrawFn, schema: dict[str, Any]) -> Any:
        if self._wild:
            return (
                draw(st.one_of(values.WORDS, values.NUMBERS))
                if schema.get("format") == "int-or-string"
                else draw(values.WORDS)
            )
        match schema.get("format"):
            case "int-or-string":
                return draw(values.INT_OR_STRING)
            case "date-time":
                return draw(values.TIMES)
            case "byte":
                return draw(values.ENCODED)
        if "quantity" in schema.get("description", "").lower()[:12]:
            return draw(values.QUANTITIES)
        return draw(values.GOOD)

    def _value(self, draw: st.DrawFn, schema: dict[str, Any], depth: int) -> Any:
        if "$ref" in schema:
            schema = self._definitions[schema["$ref"].removeprefix("#/definitions/")]
        if self._wild and draw(st.integers(0, 29)) < self._wild:
            return draw(values.ANYTHING)
        if "enum" in schema:
            return draw(st.sampled_from(schema["enum"]))
        match schema.get("type"):
            case "object" if "properties" in schema:
                required = [n for n in schema.get("required", ()) if draw(st.integers(0, 9)) > 0]
                more = sorted(schema["properties"].keys() - {"apiVersion", "kind", "status"})
                most = 4 if depth < 5 else 1
                names = draw(st.lists(st.sampled_from(more), max_size=most, unique=True)) if more and depth < 9 else []
                for always in ("spec", "metadata"):
                    if depth == 0 and always in more:
                        names.append(always)
                if depth == 0 and "status" in schema["properties"] and draw(st.integers(0, 3)) == 0:
                    names.append("status")
                return {
                    n: self._value(draw, schema["properties"][n], depth + 1) for n in dict.fromkeys((*required, *names))
                }
            case "object":
                of = schema.get("additionalProperties")
                if not isinstance(of, dict) or depth > 8:
                    return draw(values.ANYTHING) if depth < 6 else {}
                return {self._text(draw, {}): self._value(draw, of, depth + 1) for _ in range(draw(st.integers(0, 2)))}
            case "array":
                count = draw(st.integers(0, 2)) if depth < 9 else 0
                return [self._value(draw, schema["items"], depth + 1) for _ in range(count)]
            case "integer" | "number":
                return draw(values.LARGE if schema.get("format") == "int64" else values.SMALL)
            case "boolean":
                return draw(st.booleans())
            case "string":
                return self._text(draw, schema)
        return draw(values.ANYTHING)


def _laid_over(whole: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """Return `whole` with the values of `part`; an empty one, which would only break it, changes nothing."""
    both = dict(whole)
    for key, value in part.items():
        below = both.get(key)
        if isinstance(below, dict) and isinstance(value, dict):
            both[key] = _laid_over(below, value)
        elif value or key not in both:
            both[key] = value
    return both
