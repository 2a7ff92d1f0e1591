"""Base64 as Secrets and tokens have it."""

from __future__ import annotations

import base64
import binascii
from typing import Any


def secret_text(secret: dict[str, Any], key: str) -> str:
    """Return one entry of a Secret's data as text, "" where it is missing or not readable."""
    try:
        return base64.b64decode(secret.get("data", {}).get(key, ""), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return ""


def base64url(data: bytes) -> str:
    """Encode as JOSE does: base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
