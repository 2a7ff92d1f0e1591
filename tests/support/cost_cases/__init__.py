"""The readers of what clients, pods, backends and nodes send, each with inputs that grow the worst way."""

from __future__ import annotations

from tests.support.cost import Case
from tests.support.cost_cases import (
    cel,
    containers,
    custom_objects,
    custom_values,
    dns,
    json_bodies,
    patches,
    protobuf,
    requests,
    streams,
    words,
    yaml_bodies,
)

_AREAS = (
    *(cel, containers, custom_objects, custom_values, dns, json_bodies),
    *(patches, protobuf, requests, streams, words, yaml_bodies),
)
CASES: list[Case] = [case for area in _AREAS for case in area.CASES]
