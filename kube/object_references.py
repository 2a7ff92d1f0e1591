"""References to objects, as events have them."""

from __future__ import annotations

from typing import Any

import msgspec

from kube import resources
from kube.api import core_v1
from kube.object_names import metadata_of


def reference(obj: Any, field_path: str = "") -> core_v1.ObjectReference:
    """Return a reference to an object, with a field path such as `spec.containers{web}` where one is meant."""
    if isinstance(obj, core_v1.ObjectReference):
        return msgspec.structs.replace(obj, field_path=field_path) if field_path else obj
    resource = resources.of(type(obj))
    metadata = metadata_of(obj)
    return core_v1.ObjectReference(
        api_version=resource.api_version,
        kind=resource.kind,
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        field_path=field_path or None,
    )
