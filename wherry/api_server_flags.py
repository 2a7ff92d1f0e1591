"""kube-apiserver's flags on a machine that Wherry set up: /etc/wherry/apiserver.yaml, a mapping of their names to values.

    audit-log-maxage: 30
    shutdown-delay-duration: 20s

Names and units are upstream's. Addresses and most files have fixed paths in /etc/wherry and no flag here. A flag
with a fixed value is accepted with this value and rejected with the reason otherwise.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from control import features
from control.flags.api_server import FIXED, PLACES, SETTINGS
from control.flags.command import LOGGING, FlagError, check
from kube import yaml_errors
from wherry.errors import WherryError


def load(path: Path) -> dict[str, Any]:
    """Return the fields that a file sets, none if it does not exist; raises WherryError with the invalid flag."""
    try:
        text = path.read_text()
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", "") or "it is not UTF-8"
        raise WherryError(f"{path} cannot be read: {why}") from error
    try:
        found = yaml.safe_load(text) or {}
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise WherryError(f"{path} cannot be read: {yaml_errors.with_line(error, text)}") from error
    if not isinstance(found, dict):
        raise WherryError(f"{path}: write a flag's name and its value on each line, as `audit-log-maxage: 30`")
    changes: dict[str, Any] = {}
    for name, value in found.items():
        if name in PLACES:
            raise WherryError(f"{path}: {name}: `wherry up` settles this; see docs/install.md and docs/security.md")
        if name in FIXED:
            try:
                check(name, value, FIXED)
            except FlagError as error:
                raise WherryError(f"{path}: {error}") from error
            continue
        if name in LOGGING:
            continue
        if name not in SETTINGS:
            raise WherryError(f"{path}: {name}: there is no such flag here; there are {', '.join(sorted(SETTINGS))}")
        field, kind = SETTINGS[name]
        try:
            changes[field] = kind.read(value)
            if field == "feature_gates":
                features.check(changes[field])
        except (TypeError, ValueError) as error:
            raise WherryError(f"{path}: {name}: {value!r}: {error}") from error
    return changes
