"""JSON Merge Patch (RFC 7386): objects merge by key, null removes, everything else replaces."""

from __future__ import annotations

from typing import Any

from kube.errors import bad_request


def apply_merge_patch(document: dict[str, Any], patch: Any) -> dict[str, Any]:
    """Return a merged copy that shares unchanged parts with the document; raises StatusError 400 for a non-object."""
    if not isinstance(patch, dict):
        raise bad_request("Invalid JSON Patch")
    return _merge(document, patch)


def _merge(target: Any, patch: dict[str, Any]) -> dict[str, Any]:
    merged: dict[str, Any] = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        elif isinstance(value, dict):
            merged[key] = _merge(merged.get(key), value)
        else:
            merged[key] = value
    return merged
