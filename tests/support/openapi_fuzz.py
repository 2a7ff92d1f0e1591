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

JSON = "application/json"
METHODS = ("get", "put", "post", "delete", "patch")
NAMES = ("a", "b", "default", "kubernetes", "system:node:a", "x" * 300, "..", "A_b", "%2f", "a b", "é", "kube-system")
WORDS = st.sampled_from(
    [
        *("", "a", "b", "default", "fuzz", "Always", "None", "TCP", "10.0.0.1", "10.96.0.7", "::1", "1.2.3.4/33", "*"),
        *(
            "/",
            "..",
            "a/b",
            "1",
            "-1",
            "0",
            "1Gi",
            "100m",
            "1e3",
            "50%",
            "nginx:1",
            "example.com/a",
            "==",
            "a=b",
            "a in (b",
        ),
        *(
            "2026-01-02T03:04:05Z",
            "5s",
            "*/5 * * * *",
            "v1",
            "apps/v1",
            "Pod",
            "pods",
            "{",
            "object.spec",
            "self.a > 1",
        ),
        *(
            "\x00",
            "\ud7ff",
            "\U0001f600",
            "x" * 260,
            "YQ==",
            "metadata.name",
            "spec.nodeName=a",
            "All",
            "true",
            "9" * 40,
        ),
    ]
)
GOOD = st.sampled_from(
    [
        *(
            "a",
            "b",
            "x",
            "default",
            "Always",
            "IfNotPresent",
            "TCP",
            "UDP",
            "10.0.0.1",
            "::1",
            "192.0.2.1",
            "nginx:1",
            "web",
            "v1",
        ),
        *(
            "apps/v1",
            "Pod",
            "pods",
            "example.com/a",
            "example.com",
            "User",
            "Secret",
            "get",
            "/x",
            "*",
            "RollingUpdate",
            "Equal",
        ),
        *(
            "NoSchedule",
            "Exists",
            "Gi",
            "kubernetes.io/hostname",
            "ClusterIP",
            "true",
            "object.metadata.name == 'a'",
            "*/5 * * * *",
        ),
    ]
)
SMALL = st.one_of(st.integers(-2, 5), st.sampled_from([80, 443, 65535, 65536, 2**31 - 1, -(2**31)]))
NUMBERS = st.one_of(SMALL, st.sampled_from([2**31, 2**63, -(2**63), 10**30, 1.5]))
ANYTHING = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, st.floats(allow_nan=False, allow_infinity=False), WORDS),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORDS, inner, max_size=3)),
    max_leaves=5,
)
_BODY_TYPES = (
    JSON,
    JSON,
    JSON,
    JSON,
    JSON,
    "application/yaml",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "text/plain",
    "",
)


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
    """What one document declares, as hypothesis draws it."""

    def __init__(self, document: dict[str, Any], safe: tuple[str, ...], valid: Iterable[dict[str, Any]] = ()) -> None:
        self._definitions: dict[str, Any] = document["definitions"]
        self._safe = safe
        """Beginnings of paths whose objects would change what the server does to others: written with dryRun alone."""
        self._valid = {(obj["apiVersion"], obj["kind"]): obj for obj in valid}
        """An object of a kind that the server takes."""
        self._wild = 0
        """How many values in thirty are drawn regardless of the schema."""
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
            path = path.replace("{namespace}", quote(draw(_NAMESPACES), safe=""))
        name = draw(_NAMES) if "{name}" in path else ""
        path = path.replace("{name}", quote(name, safe=""))
        query = draw(self._query(operation)) if draw(st.integers(0, 2)) == 0 else {}
        if method in ("get",) and "watch" in query:
            query["timeoutSeconds"] = "1"
        if method != "get" and (template.startswith(self._safe) or (method == "delete" and not path.endswith("/b"))):
            query["dryRun"] = "All"
        body, headers = None, draw(st.one_of(st.just({}), st.just({}), _HEADERS))
        headers = dict(headers)
        for parameter in operation["parameters"]:
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
            p["name"]: _OPTIONS.get(p["name"], _BY_TYPE[p["type"]])
            for p in operation["parameters"]
            if p["in"] == "query"
        }
        some = st.lists(st.sampled_from(sorted(declared)), max_size=3, unique=True) if declared else st.just([])
        return some.flatmap(lambda names: st.fixed_dictionaries({name: declared[name] for name in names}))

    def _body(
        self, draw: st.DrawFn, method: str, operation: dict[str, Any], schema: dict[str, Any], name: str
    ) -> tuple[bytes, str]:
        kind = draw(st.sampled_from(operation["consumes"] if method == "patch" else _BODY_TYPES))
        if draw(st.integers(0, 19)) == 0:
            return draw(st.binary(max_size=40)), kind
        gvk = operation["x-kubernetes-group-version-kind"]
        if kind == "application/json-patch+json":
            value = draw(_JSON_PATCH)
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
            return draw(st.one_of(WORDS, NUMBERS)) if schema.get("format") == "int-or-string" else draw(WORDS)
        match schema.get("format"):
            case "int-or-string":
                return draw(st.sampled_from([1, 80, "50%", "http", 0]))
            case "date-time":
                return draw(
                    st.sampled_from(["2026-01-02T03:04:05Z", "2026-01-02T03:04:05.000000Z", "1970-01-01T00:00:00Z"])
                )
            case "byte":
                return draw(st.sampled_from(["", "YQ==", "AAECAw=="]))
        if "quantity" in schema.get("description", "").lower()[:12]:
            return draw(st.sampled_from(["1", "100m", "1Gi", "0", "1e3", "-1", ".5", "1500u"]))
        return draw(GOOD)

    def _value(self, draw: st.DrawFn, schema: dict[str, Any], depth: int) -> Any:
        if "$ref" in schema:
            schema = self._definitions[schema["$ref"].removeprefix("#/definitions/")]
        if self._wild and draw(st.integers(0, 29)) < self._wild:
            return draw(ANYTHING)
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
                    return draw(ANYTHING) if depth < 6 else {}
                return {self._text(draw, {}): self._value(draw, of, depth + 1) for _ in range(draw(st.integers(0, 2)))}
            case "array":
                count = draw(st.integers(0, 2)) if depth < 9 else 0
                return [self._value(draw, schema["items"], depth + 1) for _ in range(count)]
            case "integer" | "number":
                return draw(SMALL)
            case "boolean":
                return draw(st.booleans())
            case "string":
                return self._text(draw, schema)
        return draw(ANYTHING)


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


_NAMESPACES = st.sampled_from(("fuzz",) * 20 + ("default", "none", "..", "A_b"))
_NAMES = st.sampled_from(("a",) * 60 + ("b",) * 10 + NAMES)
_POINTERS = st.sampled_from(
    [
        *(
            "",
            "/",
            "/metadata",
            "/metadata/labels",
            "/metadata/labels/a",
            "/metadata/labels/-",
            "/metadata/name",
            "/spec",
        ),
        *(
            "/spec/a",
            "/spec/containers/0",
            "/spec/containers/-",
            "/spec/containers/99",
            "/spec/containers/0/image",
            "a",
            "/~2",
        ),
        *(
            "/data",
            "/data/a",
            "/metadata/finalizers",
            "/metadata/finalizers/-",
            "/metadata/ownerReferences",
            "/kind",
            "/spec/ports",
        ),
    ]
)
_JSON_PATCH = st.one_of(
    ANYTHING,
    st.lists(
        st.fixed_dictionaries(
            {
                "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "test", "bad"]),
                "path": _POINTERS,
            },
            optional={"value": ANYTHING, "from": _POINTERS},
        ),
        max_size=4,
    ),
)
_HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "Accept": st.sampled_from(
            [
                *("application/json", "application/yaml", "*/*", "text/html", "application/vnd.kubernetes.protobuf"),
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
                "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
                "application/vnd.kubernetes.protobuf;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
                *(
                    "application/json;as=Table;v=v9;g=meta.k8s.io",
                    ";;q=,",
                    "application/cbor",
                    "application/json;stream=watch",
                ),
            ]
        ),
        "Accept-Encoding": st.sampled_from(["gzip", "identity", "br"]),
    },
)
_BY_TYPE = {
    "string": WORDS,
    "boolean": st.sampled_from(["true", "false", "1", "0", "", "maybe"]),
    "integer": st.sampled_from(["0", "1", "5", "-1", "x", "", "9" * 30]),
}
_OPTIONS: dict[str, st.SearchStrategy[str]] = {
    "dryRun": st.sampled_from(["All", "", "none"]),
    "fieldManager": st.sampled_from(["me", "you", "", "x" * 200, "\x00"]),
    "fieldValidation": st.sampled_from(["Strict", "Warn", "Ignore", "Odd"]),
    "fieldSelector": st.sampled_from(
        ["metadata.name=a", "metadata.namespace!=fuzz", "spec.nodeName=", "=", "a", "a=b,c", "\\"]
    ),
    "labelSelector": st.sampled_from(["a=b", "a in (b,c),!d", "a,b notin (c)", "a>1", "(", "a=é", "=", ",", "x" * 300]),
    "continue": st.sampled_from(["", "x", "e30", "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhIn0"]),
    "resourceVersion": st.sampled_from(["", "0", "1", "-1", "x", "99999999999999999999999"]),
    "resourceVersionMatch": st.sampled_from(["", "Exact", "NotOlderThan", "Odd"]),
    "propagationPolicy": st.sampled_from(["Foreground", "Background", "Orphan", "Odd", ""]),
}
