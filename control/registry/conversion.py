"""Resources that more than one group version shows: stored once, converted in requests and responses.

Events live in the store as core/v1 and are shown as events.k8s.io/v1 too; horizontal pod autoscalers are stored as
autoscaling/v2 and shown as v1. The first row of the resource table is the stored version. Conversions are pure; the dict
that comes in is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from control.registry.autoscaling import conversion as autoscaling
from kube.json_object import Object
from kube.resources import RESOURCES, Resource

Convert = Callable[[Object], Object]


class Conversion(msgspec.Struct, frozen=True):
    """From the stored version to a served one and back."""

    stored: Resource
    to_served: Convert
    to_stored: Convert


def conversion(resource: Resource) -> Conversion | None:
    """Return how a built-in resource is converted, None if it is stored as it is served."""
    return _CONVERTED.get((resource.group, resource.version, resource.plural))


_EVENT_NAMES = {
    "message": "note",
    "involvedObject": "regarding",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
    "reportingComponent": "reportingController",
}
_EVENT_NAMES_BACK = {new: old for old, new in _EVENT_NAMES.items()}


def _event_to_served(obj: Object) -> Object:
    found = {_EVENT_NAMES.get(key, key): value for key, value in obj.items()}
    return found | {"apiVersion": "events.k8s.io/v1", "kind": "Event"}


def _event_to_stored(obj: Object) -> Object:
    found = {_EVENT_NAMES_BACK.get(key, key): value for key, value in obj.items()}
    return found | {"apiVersion": "v1", "kind": "Event"}


_CONVERSIONS: dict[tuple[str, str], tuple[Convert, Convert]] = {
    ("events.k8s.io/v1", "Event"): (_event_to_served, _event_to_stored),
    ("autoscaling/v1", "HorizontalPodAutoscaler"): (autoscaling.to_v1, autoscaling.to_v2),
}
_CONVERTED = {
    (r.group, r.version, r.plural): Conversion(
        next(other for other in RESOURCES if other.storage_prefix == r.storage_prefix),
        *_CONVERSIONS[r.api_version, r.kind],
    )
    for r in RESOURCES
    if (r.api_version, r.kind) in _CONVERSIONS
}
