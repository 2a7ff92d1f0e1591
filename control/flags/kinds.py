"""Types of flag values: parsed from a command line or a YAML file, and printed for /flagz.

Readers raise ValueError with what is wrong. A boolean is Go's; a duration is Go's and becomes seconds.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from kube import duration, tls_settings

_TRUE, _FALSE = ("1", "t", "true"), ("0", "f", "false")


class Kind(msgspec.Struct, frozen=True):
    """One kind of value."""

    read: Callable[[Any], Any]
    show: Callable[[Any], str] = str


def _bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in (*_TRUE, *_FALSE):
        return value.lower() in _TRUE
    raise ValueError("must be true or false")


def _number(value: Any) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("must be a whole number, not below zero")
    return value


def _float(value: Any) -> float:
    try:
        found = math.nan if isinstance(value, bool) else float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        raise ValueError("must be a number")
    return found


def _seconds(value: Any) -> float:
    found = duration.parse(str(value))
    if found < 0:
        raise ValueError("must not be below zero")
    return found


def _names(value: Any) -> tuple[str, ...]:
    found = value.split(",") if isinstance(value, str) else value
    if not isinstance(found, list | tuple) or not all(isinstance(name, str) for name in found):
        raise ValueError("must be names, as a list or with commas between")
    return tuple(name.strip() for name in found if name.strip())


def _pairs(value: Any) -> dict[str, str]:
    """Read NAME=VALUE pairs, between commas or as a mapping."""
    if isinstance(value, dict):
        return {str(name): str(each).lower() if isinstance(each, bool) else str(each) for name, each in value.items()}
    found = {}
    for part in _names(value):
        name, is_there, each = part.partition("=")
        if not is_there:
            raise ValueError(f"missing = in {part!r}")
        found[name.strip()] = each.strip()
    return found


def _gates(value: Any) -> dict[str, bool]:
    return {name: _bool(each) for name, each in _pairs(value).items()}


def _ports(value: Any) -> tuple[int, int]:
    """Read a range of ports, 30000-32767 or 30000+2767."""
    text = str(value)
    first, plus, more = text.partition("+")
    if plus:
        return _number(first), _number(first) + _number(more)
    first, dash, last = text.partition("-")
    found = _number(first), _number(last if dash else first)
    if not 0 < found[0] <= found[1] < 65536:
        raise ValueError("must be a range of ports, as 30000-32767")
    return found


def _networks(value: Any) -> str:
    for each in _names(value):
        ipaddress.ip_network(each)
    return ",".join(_names(value))


def one_of(*words: str) -> Kind:
    def read(value: Any) -> str:
        if value not in words:
            raise ValueError(f"must be one of {', '.join(words)}")
        return str(value)

    return Kind(read)


def times(unit: int) -> Kind:
    """A whole number of units, kept as what `unit` of them make (bytes, seconds)."""
    return Kind(lambda value: _number(value) * unit, lambda setting: str(round(setting / unit)))


def _listed(setting: Any) -> str:
    return f"[{','.join(setting)}]"


def _path(value: Any) -> Path | None:
    return Path(str(value)) if value else None


BOOL = Kind(_bool, lambda setting: str(setting).lower())
NUMBER = Kind(_number)
FLOAT = Kind(_float)
DURATION = Kind(_seconds, duration.render)
WHOLE_SECONDS = Kind(lambda value: int(_seconds(value)), duration.render)
SECONDS = Kind(lambda value: float(_number(value)), lambda setting: str(int(setting)))
"""Seconds that are written as a bare number."""
NAMES = Kind(_names, _listed)
TEXT = Kind(str)
PATH = Kind(_path, lambda setting: "" if setting is None else str(setting))
PORTS = Kind(_ports, lambda setting: f"{setting[0]}-{setting[1]}")
NETWORKS = Kind(_networks)
CIPHER_SUITES = Kind(lambda value: tls_settings.check_suites(_names(value)), _listed)
TLS_VERSION = Kind(lambda value: tls_settings.check_version(str(value)))
GATES = Kind(_gates, lambda setting: ",".join(f"{name}={str(on).lower()}" for name, on in sorted(setting.items())))
PAIRS = Kind(_pairs, lambda setting: ",".join(f"{name}={value}" for name, value in sorted(setting.items())))
