"""The alias for an API object, or a part of one, as decoded JSON."""

from __future__ import annotations

from typing import Any

Object = dict[str, Any]
