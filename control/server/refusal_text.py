"""Text of a refused request in the journal: code, reason, fields and the admission plugin; nothing of the object.

Messages of errors quote what clients send and what is stored, as upstream's do: a patch, a whole Secret, the object that a
webhook denies. A client gets its own message; the journal is read by others, also later. So a text is made here of words that
the server knows: reasons of the API, and the parts of a field's path that are fields of the kind. Keys of maps, which clients
choose, are shown as `*`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from kube.errors import StatusError
from kube.resources import Resource
from kube.schema import fields

REASONS = frozenset(
    "Unauthorized Forbidden NotFound AlreadyExists Conflict Gone Invalid ServerTimeout StoreReadError Timeout TooManyRequests"
    " BadRequest MethodNotAllowed NotAcceptable RequestEntityTooLarge UnsupportedMediaType InternalError Expired"
    " ServiceUnavailable".split()
)
"""Reasons of a Status (meta.k8s.io/v1). A webhook answers any text as one."""
CAUSES = frozenset(
    "FieldValueNotFound FieldValueRequired FieldValueDuplicate FieldValueInvalid FieldValueNotSupported FieldValueForbidden"
    " FieldValueTooLong FieldValueTooMany FieldValueInternalError FieldValueTypeInvalid FieldManagerConflict".split()
)
OPTIONS = frozenset(("patch", "fieldManager", "force", "fieldValidation", "dryRun", "gracePeriodSeconds"))
"""Fields that errors name and that no object has: options, and the patch itself."""
CUSTOM = frozenset(("apiVersion", "kind", "metadata", "spec", "status"))
"""Fields that are shown of custom resources, without what is in them: only their definitions know that."""
MOST_FIELDS = 5
LONGEST_PATH = 1000
"""Characters of a field's path: webhooks answer any, and schemas nest as deep as is wanted."""
_PART = re.compile(r"([^.\[\]]+)|\[([0-9]{1,6})\]")


def text_of(error: StatusError, resource: Resource | None) -> str:
    """Return what the journal keeps of an error; `resource` is the object's, None for a custom one."""
    text = " ".join(filter(None, (str(error.code), error.reason if error.reason in REASONS else "")))
    causes = error.details.get("causes")
    shown = list(dict.fromkeys(_causes(causes if isinstance(causes, list) else (), resource)))
    by = f" by {error.refused_by}" if error.refused_by else ""
    return f"({text}){by}{': ' if shown else ''}{', '.join(shown)}"


def _causes(causes: Iterable[Any], resource: Resource | None) -> Iterable[str]:
    for cause in list(causes)[:MOST_FIELDS]:
        path, reason = (cause.get("field"), cause.get("reason")) if isinstance(cause, dict) else ("", "")
        if isinstance(path, str) and path:
            yield f"{known_path(path, resource)}{f' ({reason})' if isinstance(reason, str) and reason in CAUSES else ''}"


def known_path(path: str, resource: Resource | None) -> str:
    """Return the beginning of a field's path that names fields of a kind and indexes of lists; `*` is for the rest."""
    if path in OPTIONS:
        return path
    if resource is None:
        first = re.split(r"[.\[]", path, maxsplit=1)[0]
        return first if first in CUSTOM else "*"
    shown, at, type_ = "", 0, fields.of_struct(resource.type)
    while at < len(path):
        if at >= LONGEST_PATH:
            return f"{shown}.*"
        part = _PART.match(path, at)
        name, index = part.groups() if part is not None else (None, None)
        struct = type_.struct
        found = fields.field_types(struct).get(name) if name and struct is not None else None
        if part is not None and found is not None:
            shown, type_ = f"{shown}.{name}" if shown else str(name), found
        elif part is not None and index and type_.kind == "list" and type_.item is not None:
            shown, type_ = f"{shown}[{index}]", type_.item
        else:
            return f"{shown}.*" if shown else "*"
        at = part.end() + (path[part.end() : part.end() + 1] == ".")
    return shown
