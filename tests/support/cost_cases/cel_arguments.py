"""Arguments of CEL's functions that cost the most for their size: for each type, by name, another value for each measurement.

A builder returns a value of about so many characters, items or entries. Where a cache would keep the result for a value, each
call of the builder returns another one.
"""

from __future__ import annotations

import base64
import itertools
import zoneinfo
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from control.auth.user import AuthzAttributes, Decision, UserInfo
from control.cel.kubernetes import cidr, ip, quantity, semver, url
from control.cel.types import Type
from control.cel.values import NONE, Duration, Format, Optional, Quantity, Timestamp, TypeValue, Uint
from control.policy_expressions.authorizer import Answer, AuthorizerValue, Check

Build = Callable[[int], Any]
_numbers = itertools.count(100_000)
_zones = itertools.cycle(sorted(zoneinfo.available_timezones()))


def _constant(value: Any) -> Build:
    return lambda n: value


def _many(build: Build) -> Build:
    return lambda n: [build(8) for _ in range(n // 8)]


def _large(build: Build) -> Build:
    return lambda n: [build(n) for _ in range(8)]


def _entries(build: Build) -> Build:
    return lambda n: {f"k{i}": build(8) for i in range(n // 8)}


def _optional(build: Build) -> Build:
    return lambda n: Optional(build(n))


def _repeated(part: str, before: str = "", after: str = "") -> Build:
    return lambda n: before + part * (n // len(part)) + after


TEXTS: dict[str, Build] = {
    "empty": lambda n: "",
    "short": lambda n: "a",
    "letters": _repeated("a"),
    "letters, then another": _repeated("a", after="b"),
    "half as many, after another": lambda n: "ab" + "a" * (n // 2),
    "half as many, before another": lambda n: "a" * (n // 2) + "b",
    "digits": _repeated("9"),
    "zeros": _repeated("0"),
    "digits after a point": _repeated("9", "0."),
    "dots": _repeated("a."),
    "dots between numbers": _repeated("1."),
    "colons": _repeated("1:"),
    "spaces": _repeated(" "),
    "quotes": _repeated('"'),
    "control characters": _repeated("\x01"),
    "slashes": _repeated("/"),
    "escapes of a URL": _repeated("%41", "/"),
    "queries of a URL": _repeated("a=1&", "/?"),
    "host of a URL": lambda n: f"http://{next(_numbers)}" + "a" * n,
    "not ASCII": _repeated("\u0142"),
    "outside of the first plane": _repeated("\U0001f600"),
    "version": _repeated("a.", "1.0.0-", "b"),
    "network": _repeated("0", "10.0.0.0/"),
    "time": _repeated("9", "2020-01-01T00:00:00.", "Z"),
    "durations": _repeated("1h"),
    "base64": lambda n: base64.b64encode(b"a" * (n * 3 // 4)).decode(),
    "verbs": _repeated("%s"),
    "no name of a time zone": lambda n: f"Europe/Paris{next(_numbers)}",
    "name of a time zone": lambda n: next(_zones),
}
PATTERNS: dict[str, Build] = {
    "any letter": lambda n: "a",
    "nothing": lambda n: "",
    "any character": lambda n: ".",
    "looks ahead for the end": lambda n: "a*b|a",
    "states without number": lambda n: "(?:[ab]*a[ab]{200}c)|[ab]",
    "many instructions": lambda n: f"\\pL{{80}}{next(_numbers)}",
    "the largest": lambda n: f"(?:\\pL{{60}}|{next(_numbers)})",
    "a long one": lambda n: "(a|b)" * min(n // 8, 800) + str(next(_numbers)),
    "too long": lambda n: "a" * n,
    "incorrect": lambda n: "(" * min(n, 8000),
    "repetitions": lambda n: "(?:(?:a*)*)*" + str(next(_numbers)),
}
_VALUES: dict[str, dict[str, Build]] = {
    "string": TEXTS,
    "int": {
        "0": lambda n: 0,
        "1": lambda n: 1,
        "half": lambda n: n // 2,
        "-1": lambda n: -1,
        "the least": lambda n: -(1 << 63),
        "the most": lambda n: (1 << 63) - 1,
    },
    "uint": {"0": lambda n: Uint(0), "the most": lambda n: Uint((1 << 64) - 1)},
    "double": {str(x): _constant(x) for x in (0.0, -1.5, 1e308, 5e-324, float("nan"), float("inf"))},
    "bool": {"true": lambda n: True},
    "bytes": {
        "letters": lambda n: b"a" * n,
        "no text": lambda n: b"\xff" * n,
        "not ASCII": lambda n: "\u0142".encode() * (n // 2),
    },
    "timestamp": {"1970": lambda n: Timestamp(0), "now": lambda n: Timestamp(1_700_000_000_123_456_789)},
    "duration": {"none": lambda n: Duration(0), "long": lambda n: Duration(-(1 << 62))},
    "type": {"int": lambda n: TypeValue("int")},
    "quantity": {
        "digits": lambda n: quantity("9" * min(n, 900)),
        "fraction": lambda n: quantity("0." + "9" * min(n, 900)),
        "large": lambda n: Quantity(Decimal("9e999")),
        "small": lambda n: Quantity(Decimal("1e-999")),
    },
    "url": {
        "path": lambda n: url("/" + "a" * n),
        "escaped path": lambda n: url("/" + "%41" * (n // 3)),
        "path not in ASCII": lambda n: url("/" + "\u0142" * n),
        "query": lambda n: url("/?" + "a=1&" * (n // 4)),
        "host": lambda n: url("http://" + "a" * n + ":80/"),
        "host in brackets": lambda n: url("http://[::1]/" + "a" * n),
    },
    "ip": {"4": lambda n: ip("10.0.0.1"), "6": lambda n: ip("ffff::1")},
    "cidr": {"4": lambda n: cidr("10.0.0.0/8"), "6": lambda n: cidr("ffff::/16")},
    "semver": {
        "parts": lambda n: semver("1.0.0-" + "a." * min(n // 2, 2000) + "b"),
        "numbers": lambda n: semver("1.0.0-" + "1." * min(n // 2, 2000) + "2"),
        "digits": lambda n: semver("9" * min(n, 4000) + ".0.0"),
    },
}
_NAMED = (
    "dns1123Label dns1123Subdomain dns1035Label qualifiedName dns1123LabelPrefix dns1123SubdomainPrefix"
    " dns1035LabelPrefix labelValue uri uuid byte date datetime"
).split()
_VALUES["format"] = {name: _constant(Format(name)) for name in _NAMED}


class _Refuses:
    """An authorizer without rules."""

    def authorize(self, attributes: AuthzAttributes) -> tuple[Decision, str]:
        return Decision.DENY, ""


_USER = UserInfo("ann")
_CHECK: dict[str, Build] = {"check": lambda n: Check(_Refuses(), AuthzAttributes(user=_USER, verb=""))}
_VALUES |= {f"kubernetes.authorization.{kind}Check": _CHECK for kind in ("Path", "Group", "Resource")}
_VALUES["kubernetes.authorization.Decision"] = {"denied": lambda n: Answer(Decision.DENY, "")}
_VALUES["object"] = {"authorizer": lambda n: AuthorizerValue(_Refuses(), _USER, AuthzAttributes(user=_USER, verb=""))}


def _lists(item: dict[str, Build]) -> dict[str, Build]:
    """Return lists of a type's values: none, many small ones, and a few large ones, each another object."""
    found: dict[str, Build] = {"none": lambda n: []}
    for name, build in item.items():
        found[f"many: {name}"] = _many(build)
        found[f"large: {name}"] = _large(build)
    return found


def _maps(value: dict[str, Build]) -> dict[str, Build]:
    found: dict[str, Build] = {"none": lambda n: {}}
    for name, build in value.items():
        found[f"many: {name}"] = _entries(build)
    found["large key"] = lambda n: {"a" * n: 1}
    return found


_FEW = {name: TEXTS[name] for name in ("letters", "not ASCII", "outside of the first plane")}
_ITEMS: dict[str, Build] = {
    **_FEW,
    "numbers": lambda n: n,
    "lists": lambda n: ["a" * n],
    "maps": lambda n: {"a" * n: "b" * n},
}
_ANY: dict[str, Build] = {
    **_FEW,
    "the most": lambda n: (1 << 63) - 1,
    "nan": lambda n: float("nan"),
    "null": lambda n: None,
    **{f"list of {name}": build for name, build in _lists(_ITEMS).items()},
    **{f"map of {name}": build for name, build in _maps(_ITEMS).items()},
    "bytes": lambda n: b"a" * n,
    "version": _VALUES["semver"]["parts"],
    "URL": _VALUES["url"]["path"],
    "quantity": _VALUES["quantity"]["digits"],
    "optional": _optional(TEXTS["letters"]),
}
_VALUES["dyn"] = _VALUES["param"] = _VALUES["null"] = _ANY


def arguments(type_: Type) -> dict[str, Build]:
    """Return the values of a parameter's type; raises KeyError for a type that has none here."""
    if type_.kind == "list":
        item = type_.params[0].kind
        return _lists(_FEW if item == "string" else _ITEMS if item in ("dyn", "param") else arguments(type_.params[0]))
    if type_.kind == "map":
        return _maps(_ITEMS)
    if type_.kind == "optional":
        return {"none": _constant(NONE)} | {
            name: _optional(build) for name, build in arguments(type_.params[0]).items()
        }
    return _VALUES[type_.kind]
