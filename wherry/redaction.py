"""Removal of secrets from texts and objects that leave the machine in a bug report.

Texts lose what has the form of a secret: private keys, tokens, passwords in URLs and behind their names. Objects lose the
values of environment variables and of data, which may be anything.
"""

from __future__ import annotations

import re
from typing import Any

REMOVED = "<removed>"
_NAMES = r"(?:password|passwd|token|secret|certificate-key|client-key-data|auth|authorization|x-api-key)"
_PATTERNS = (
    (
        re.compile(r"-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----[^-]{0,20000}(?:-----END [A-Z ]{0,30}PRIVATE KEY-----)?"),
        REMOVED,
    ),
    (re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?"), REMOVED),  # JSON web tokens
    (re.compile(r"\b[a-z0-9]{6}\.[a-z0-9]{16}\b"), REMOVED),  # bootstrap tokens
    (re.compile(r"(\b[a-z][a-z0-9+.-]{1,20}://)[^\s/@:\"']{1,256}:[^\s/@\"']{1,1024}@", re.I), rf"\1{REMOVED}@"),
    (re.compile(r"\b((?:bearer|basic) )[\w.~+/=-]{8,}", re.I), rf"\1{REMOVED}"),
    (re.compile(rf"(\b{_NAMES}[\"']?\s{{0,8}}[:=]\s{{0,8}}[\"']?)[^\s\"',}}]{{1,4096}}", re.I), rf"\1{REMOVED}"),
)
_DATA = ("data", "stringData", "binaryData")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def redacted(text: str) -> str:
    """Return a text without what has the form of a secret."""
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    return text


def without_values(obj: Any) -> Any:
    """Return an object, or a list of objects, without values of variables and data and without managed fields."""
    if isinstance(obj, list):
        return [without_values(item) for item in obj]
    if not isinstance(obj, dict):
        return redacted(obj) if isinstance(obj, str) else obj
    found: dict[str, Any] = {}
    for key, value in obj.items():
        if key == "managedFields" or key == _LAST_APPLIED:
            continue
        if key in _DATA and isinstance(value, dict):
            found[key] = dict.fromkeys(value, REMOVED)
        elif key == "env" and isinstance(value, list):
            found[key] = [_variable(one) for one in value]
        else:
            found[key] = without_values(value)
    return found


def _variable(one: Any) -> Any:
    return {**one, "value": REMOVED} if isinstance(one, dict) and "value" in one else without_values(one)
