"""Errors about Secrets without values: the addon controller stores errors in a ConfigMap and an event, and logs them.

The API server's texts, and those of webhooks and of the YAML parser, contain what they reject: a password in the wrong place,
or one that begins with a star, which is an alias in YAML. They are meant for whoever sent the Secret.
"""

from __future__ import annotations

import re

from control.controllers.addons.applyset import GroupKind
from kube.errors import StatusError

SECRET = GroupKind("", "Secret")
_LINE = re.compile(r"\bline ([0-9]+)\b")
_FIELDS = ("apiVersion", "data", "immutable", "kind", "metadata", "stringData", "type")
_FIELD = re.compile(rf"(?:^|: )\.?({'|'.join(_FIELDS)})\b(?=[.\[:])")
"""A field of a Secret at the beginning of an error's text; what follows may be a key or a value."""


def may_have_secret(document: bytes) -> bool:
    """Return whether a document that cannot be read may have a Secret."""
    return b"secret" in document.lower()


def of_document(error: str) -> str:
    """Return an error of a document that may have a Secret, without texts of the document."""
    line = _LINE.search(error)
    where = f"line {line[1]}: " if line else ""
    return f"{where}invalid YAML or JSON; the text is not shown, because the document may have a Secret"


def of_request(kind: GroupKind, error: StatusError) -> str:
    """Return the text of an error about an object; of a Secret only the reason and the fields."""
    if kind != SECRET:
        return error.message
    causes = (str(cause.get("field") or "") for cause in error.details.get("causes") or ())
    fields = dict.fromkeys(match[1] for text in (*causes, error.message) if (match := _FIELD.search(f"{text}:")))
    about = f" ({', '.join(fields)})" if fields else ""
    return f"{error.reason or error.code}{about}; the text is not shown, because the object is a Secret"
