"""The readers of what clients, pods, backends and nodes send, each with inputs that grow the worst way."""

from __future__ import annotations

from tests.support.cost import Case
from tests.support.cost_cases import (
    cel,
    containers,
    credentials,
    custom_objects,
    custom_values,
    dns,
    http_answers,
    json_bodies,
    kernel_listings,
    maps,
    patches,
    protobuf,
    requests,
    streams,
    websockets,
    words,
    yaml_bodies,
)

_AREAS = (
    *(cel, containers, credentials, custom_objects, custom_values, dns, http_answers, json_bodies, kernel_listings),
    *(maps, patches, protobuf, requests, streams, websockets, words, yaml_bodies),
)
CASES: list[Case] = [case for area in _AREAS for case in area.CASES]
