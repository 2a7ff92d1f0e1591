"""Negotiates the form of a response: the object, a Table, or only its metadata; as JSON, YAML or protobuf.

`Accept` lists media types with parameters; the first one that can be served is chosen. Tables have no protobuf form, and of
custom resources only the metadata: clients that request protobuf name JSON after it. A watch is not served as YAML, because
nothing would separate its documents.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from control.http.accept import by_preference, clauses
from kube import errors
from kube.bounded_cache import bounded_cache

JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
OFFERED = f"{JSON}, {YAML}, {PROTOBUF}"
OFFERED_CUSTOM = f"{JSON}, {YAML}"
STREAMS = f"{JSON}, {JSON};stream=watch, {PROTOBUF};stream=watch"
STREAMS_CUSTOM = f"{JSON}, {JSON};stream=watch"
Form = Literal["object", "table", "metadata"]
_TYPES = {JSON: JSON, "*/*": JSON, "application/*": JSON, YAML: YAML, "text/yaml": YAML, PROTOBUF: PROTOBUF}


@dataclass(frozen=True, slots=True)
class MediaTypeOptions:
    """The chosen form. `version` is the meta.k8s.io version of a Table or of partial metadata."""

    form: Form = "object"
    yaml: bool = False
    version: str = "v1"
    protobuf: bool = False
    stream: bool = False

    @property
    def content_type(self) -> bytes:
        if self.protobuf:
            return b"application/vnd.kubernetes.protobuf" + (b";stream=watch" if self.stream else b"")
        return b"application/yaml" if self.yaml else b"application/json"


PLAIN = MediaTypeOptions()


@bounded_cache(512)
def negotiate(accept: str, *, transform: bool = True, protobuf: bool = True, stream: bool = False) -> MediaTypeOptions:
    """Choose by an Accept header; raises 406 if nothing in it is offered.

    `transform` off: only plain objects. `protobuf` off: the kind has no protobuf form. `stream`: the answer is a watch.
    """
    if not accept or accept in (JSON, "*/*"):
        return PLAIN
    for media, parameters in by_preference(accept):
        kind = _TYPES.get(media.lower(), "")
        if not kind or (stream and kind == YAML) or parameters.get("stream", "watch") != "watch":
            continue
        found = _transformed(kind, parameters, transform=transform, protobuf=protobuf, stream=stream)
        if found is not None:
            return found
    if stream:
        raise errors.not_acceptable(STREAMS if protobuf else STREAMS_CUSTOM)
    raise errors.not_acceptable(OFFERED if protobuf else OFFERED_CUSTOM)


def _transformed(
    kind: str, parameters: dict[str, str], *, transform: bool, protobuf: bool, stream: bool
) -> MediaTypeOptions | None:
    yaml, wire, shown = kind == YAML, kind == PROTOBUF, parameters.get("as", "")
    if not shown:
        return None if wire and not protobuf else MediaTypeOptions("object", yaml, protobuf=wire, stream=stream)
    if not transform or parameters.get("g") != "meta.k8s.io" or parameters.get("v") not in ("v1", "v1beta1"):
        return None
    version = parameters["v"]
    if shown == "Table" and not wire:
        return MediaTypeOptions("table", yaml, version, stream=stream)
    if shown in ("PartialObjectMetadata", "PartialObjectMetadataList"):
        return MediaTypeOptions("metadata", yaml, version, wire, stream)
    return None


class Aggregated(str):
    """A version of aggregated discovery ("v2", "v2beta1"; "" where it is not wanted) and the `media` type to show it in."""

    media: str = JSON


def aggregated_version(accept: str) -> Aggregated:
    """Return the version of aggregated discovery that an Accept header requests first, "" for the plain documents."""
    for media, parameters in clauses(accept):
        if parameters.get("as") == "APIGroupDiscoveryList" and parameters.get("g") == "apidiscovery.k8s.io":
            if media in (JSON, YAML, PROTOBUF) and parameters.get("v") in ("v2", "v2beta1"):
                found = Aggregated(parameters["v"])
                found.media = media
                return found
        elif media in (JSON, YAML, PROTOBUF, "*/*"):
            break
    return Aggregated()
