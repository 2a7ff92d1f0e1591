"""Settings of a damaged file, as far as they can be read: enough to remove an installation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec

from wherry import settings as saved
from wherry.errors import WherryError
from wherry.layout import Layout
from wherry.settings import Settings


def salvaged(prefix: str) -> Settings:
    """Return the settings that a damaged file has; those that are missing or of another type have their defaults."""
    path = Layout(Path(prefix)).settings
    try:
        found: Any = json.loads(path.read_bytes())
    except (ValueError, RecursionError, OSError):
        found = {}
    values = {}
    for field in msgspec.structs.fields(Settings):
        try:
            values[field.name] = msgspec.convert(found[field.encode_name], field.type)
        except (msgspec.ValidationError, KeyError, TypeError):
            continue
    return Settings(**values | {"prefix": prefix})


def load_or_salvage(prefix: str) -> tuple[Settings | None, str]:
    """Return the settings, None without a cluster, and what is wrong with their file, "" if nothing is; raises WherryError."""
    path = Layout(Path(prefix)).settings
    try:
        return saved.load(prefix), ""
    except IsADirectoryError:
        return salvaged(prefix), f"{path} is a folder"
    except WherryError as error:
        if isinstance(error.__cause__, PermissionError):
            raise
        return salvaged(prefix), str(error).partition(": remove it")[0]
