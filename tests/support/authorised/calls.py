"""Requests as they are sent, and the parts that all forms of them share: paths, names, queries, headers, encodings."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any
from urllib.parse import quote, unquote

import yaml

from control.http import encodings
from control.http.negotiate import MediaTypeOptions
from tests.support.authorised.objects import NAMESPACES
from tests.support.authorised.targets import Target
from tests.support.authorised.world import World

Pairs = tuple[tuple[str, str], ...]
JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
UPGRADES = ("websocket", "SPDY/3.1")
HIDDEN = "zqhidden-"
"""Beginning of the values of headers that are the front proxy's, or the client's own credentials."""


@dataclass(frozen=True)
class Call:
    """One request; `raw` is the path as it stands on the request line."""

    method: str
    raw: str
    query: str = ""
    headers: Pairs = ()
    body: bytes = b""
    form: str = ""
    user: str = "mallory"

    @property
    def path(self) -> str:
        return unquote(self.raw)

    @property
    def upgrades(self) -> bool:
        return any(name == "upgrade" for name, _ in self.headers)

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name), "")

    def __str__(self) -> str:
        line = f"{self.method} {self.raw}" + (f"?{self.query}" if self.query else "")
        headers = "".join(f"\n    {name}: {value}" for name, value in self.headers)
        return f"{line} (as {self.user}){headers}" + (f"\n    {self.body.decode('latin-1')}" if self.body else "")


def some(rng: Random, chances: int) -> bool:
    """Say yes once in so many times."""
    return rng.randrange(chances) == 0


def one(rng: Random, values: Sequence[Any]) -> Any:
    return rng.choice(values)


def namespace_of(rng: Random, target: Target) -> str:
    return one(rng, NAMESPACES) if target.namespaced else ""


def name_of(rng: Random, world: World, target: Target, namespace: str) -> str:
    """Return mostly the name of an object that there is."""
    return one(rng, (*world.seeded(target, namespace), "a", "a", "absent"))


def spelled(rng: Random, path: str) -> str:
    """Return a path in one of the spellings that clients may choose, mostly the plain one."""
    match one(rng, range(24)):
        case 0:
            return path + "/"
        case 1:
            return path.replace("/namespaces/", "//namespaces/", 1)
        case 2:
            return path[::-1].replace("/", "%2F"[::-1], 1)[::-1]
        case 3:
            head, _, tail = path.rpartition("/")
            return f"{head}/{one(rng, ('.', '..', '%2e%2e', '%2e'))}/{tail}"
        case 4:
            head, _, tail = path.rpartition("/")
            return f"{head}/{''.join(f'%{ord(c):02x}' for c in tail)}"
        case 5:
            return path + one(rng, ("%20", "%00", ";a=b", "%3Fwatch=true", "%2f..%2fb", "/status", "/zq"))
        case 6:
            return path.replace("/namespaces/left/", one(rng, ("/namespaces//", "/namespaces/left%2F", "/")), 1)
        case _:
            return path


def name_selector(rng: Random, name: str, other: str) -> str:
    """Return a field selector about names, in one of its spellings, encoded for a query."""
    key = one(rng, ("metadata.name",) * 6 + ("metadata%2Ename", "Metadata.name", "metadata.namespace"))
    equals = one(rng, ("=", "==", "%3D", "%3D%3D", "=%3D", "!=", "%21%3D"))
    term = f"{key}{equals}{quote(name, safe='')}"
    match one(rng, range(10)):
        case 0:
            return f"{term},metadata.name={other}"
        case 1:
            return f"metadata.name={other}%2C{term}"
        case 2:
            return f"{term},metadata.namespace=right"
        case 3:
            return f"%20{term}"
        case 4:
            return f"{term}%5C%2Cmetadata.name%3D{other}"
        case _:
            return term


_ACCEPT = (
    JSON,
    YAML,
    PROTOBUF,
    f"{JSON};as=Table;v=v1;g=meta.k8s.io",
    f"{JSON};as=PartialObjectMetadata;v=v1;g=meta.k8s.io,{JSON}",
    f"{JSON};as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,{JSON}",
    f"{PROTOBUF};as=PartialObjectMetadata;v=v1;g=meta.k8s.io,{JSON}",
    f"{JSON};stream=watch",
)


def headers_of(rng: Random, *more: tuple[str, str]) -> Pairs:
    found = [("user-agent", "mallory"), *more]
    if some(rng, 3):
        found.append(("accept", one(rng, _ACCEPT)))
    if some(rng, 12):
        found += _impersonation(rng)
    if some(rng, 20):
        found.append(("x-http-method-override", one(rng, ("DELETE", "PUT", "GET"))))
    return tuple(found)


def _impersonation(rng: Random) -> list[tuple[str, str]]:
    users = ("other", "system:serviceaccount:left:a", "system:node:n2", "system:admin")
    found = [("impersonate-user", one(rng, users))]
    if some(rng, 6):
        found.append(("impersonate-user", one(rng, users)))  # the first is meant
    if some(rng, 3):
        found.append(("impersonate-group", one(rng, ("staff", "system:masters"))))
    if some(rng, 5):
        found.append(("impersonate-uid", "u-1"))
    if some(rng, 5):
        found.append(("impersonate-extra-example.com%2fscopes", "view"))
    return found


def credentials(rng: Random) -> list[tuple[str, str]]:
    """Return headers that no backend may be shown: a front proxy's words under all its names, and credentials."""
    names = (
        "x-remote-user",
        "x-remote-group",
        "x-remote-uid",
        "x-remote-extra-scopes",
        "x-boat-user",
        "x-boat-group",
        "x-boat-uid",
        "x-boat-extra-scopes",
        "authorization",
    )
    chosen = rng.sample(names, rng.randrange(1, 5))
    return [(name, f"Bearer {HIDDEN}{name}" if name == "authorization" else HIDDEN + name) for name in chosen]


def joined(options: Sequence[str]) -> str:
    return "&".join(option for option in options if option)


def encoded(rng: Random, obj: Any, target: Target | None, kind: tuple[str, str] = ("", "")) -> tuple[bytes, str]:
    """Return a body and its content type: mostly JSON, else YAML or, where the kind has one, protobuf."""
    module, name = kind
    if target is not None and target.built_in is not None:
        module, name = target.built_in.module, target.kind
    match one(rng, range(8)):
        case 0:
            return yaml.safe_dump(obj).encode(), YAML
        case 1 if module and isinstance(obj, dict):
            try:
                return encodings.write(obj, MediaTypeOptions(protobuf=True), module, name), PROTOBUF
            except (TypeError, ValueError, KeyError, AttributeError):
                return json.dumps(obj).encode(), JSON  # what was drawn does not fit the type
        case _:
            return json.dumps(obj).encode(), JSON
