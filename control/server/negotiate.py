"""Which form of an answer a client wants: the object, a Table of it, or only its metadata; as JSON or YAML.

`Accept` lists media types with parameters; the first that can be served is. Protobuf is not served, which clients that ask
for it expect: they name JSON after it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Literal

from kube import errors

OFFERED = "application/json, application/yaml"
Form = Literal["object", "table", "metadata"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The chosen form. `version` is the meta.k8s.io version of a Table or of partial metadata."""

    form: Form = "object"
    yaml: bool = False
    version: str = "v1"

    @property
    def content_type(self) -> bytes:
        return b"application/yaml" if self.yaml else b"application/json"


PLAIN = Wanted()


@functools.lru_cache(maxsize=512)
def negotiate(accept: str, transform: bool = True) -> Wanted:
    """Choose by an Accept header; raises 406 where nothing in it is offered. `transform` off: only plain objects."""
    if not accept or accept in ("application/json", "*/*"):
        return PLAIN
    for clause in _by_preference(accept):
        media, *rest = [part.strip() for part in clause.split(";")]
        media = media.lower()
        parameters = dict(part.split("=", 1) for part in rest if "=" in part)
        if media in ("application/json", "*/*", "application/*"):
            yaml = False
        elif media in ("application/yaml", "text/yaml"):
            yaml = True
        else:
            continue
        kind = parameters.get("as", "")
        if not kind:
            if "stream" in parameters and parameters["stream"] != "watch":
                continue
            return Wanted("object", yaml)
        if not transform or parameters.get("g") != "meta.k8s.io" or parameters.get("v") not in ("v1", "v1beta1"):
            continue
        version = parameters["v"]
        if kind == "Table":
            return Wanted("table", yaml, version)
        if kind in ("PartialObjectMetadata", "PartialObjectMetadataList"):
            return Wanted("metadata", yaml, version)
    raise errors.not_acceptable(OFFERED)


def _by_preference(accept: str) -> list[str]:
    clauses = [clause for clause in accept.split(",") if clause.strip()]
    return sorted(clauses, key=lambda clause: -_quality(clause))


def _quality(clause: str) -> float:
    for part in clause.split(";")[1:]:
        name, _, value = part.strip().partition("=")
        if name == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0
