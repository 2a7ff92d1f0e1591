"""String formats of custom resources' schemas: a table of name -> test, those of kube-openapi's strfmt that CRDs may use.

An unknown format is no constraint. Durations are Go's (`1h30m`) and those of strfmt with words.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
import uuid
from collections.abc import Callable
from datetime import date

from kube import names, urls
from kube.clock import parse_time
from kube.group_patterns import fullmatch

_HOSTNAME = re.compile(
    r"(?=.{1,255}$)([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.)*[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?\.?"
)
_EMAIL = re.compile(r"[^@\s<>\"]+@[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*+")
_MAC = re.compile(
    r"[0-9A-Fa-f]{2}([:-])[0-9A-Fa-f]{2}(\1[0-9A-Fa-f]{2}){4}(?:(\1[0-9A-Fa-f]{2}){2})?|([0-9A-Fa-f]{4}\.){2,3}[0-9A-Fa-f]{4}"
)
_DATE_TIME = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?([Zz]|[+-][0-9]{2}:[0-9]{2})"
)
_DURATION = re.compile(r"[+-]?(?:([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+|[+-]?0")
_WORDS = re.compile(
    r"\s*[0-9]+(\.[0-9]+)?\s*(nanoseconds?|nanos?|microseconds?|micros?|milliseconds?|millis?|seconds?|secs?|minutes?|mins?|hours?|hrs?|days?|weeks?|wks?|ns|us|µs|ms|s|m|h|d|w)",
)
_HEX_COLOR = re.compile(r"#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})")
_BYTE = r"\s*(0|[1-9][0-9]?|1[0-9][0-9]|2[0-4][0-9]|25[0-5])\s*"
_RGB = re.compile(rf"rgb\({_BYTE},{_BYTE},{_BYTE}\)")
_SSN = re.compile(r"[0-9]{3}[- ]?[0-9]{2}[- ]?[0-9]{4}")
_CARD = re.compile(
    r"(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|"
    r"(?:2131|1800|35[0-9]{3})[0-9]{11})"
)


def valid(name: str, text: str) -> bool:
    """Return whether a text matches a format; every text matches an unknown one."""
    test = _TESTS.get(name.replace("-", ""))
    return True if test is None else test(text)


def _tries(make: Callable[[str], object]) -> Callable[[str], bool]:
    def test(text: str) -> bool:
        try:
            make(text)
        except (ValueError, OverflowError):
            return False
        return True

    return test


def _matches(pattern: re.Pattern[str]) -> Callable[[str], bool]:
    return lambda text: pattern.fullmatch(text) is not None


def _uuid(version: int = 0) -> Callable[[str], bool]:
    def test(text: str) -> bool:
        if not re.fullmatch(r"[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{4}-?[0-9a-fA-F]{12}", text):
            return False
        found = uuid.UUID(text)
        return not version or (found.version == version and found.variant == uuid.RFC_4122)

    return test


def _uri(text: str) -> bool:
    """Return whether Go's url.ParseRequestURI accepts the text: an absolute URL, or a path from the root."""
    if not text or urls.NOT_PRINTED.search(text):
        return False
    try:
        parts = urls.split(text)
        _ = parts.port
    except ValueError:
        return False
    return text.startswith("/") or bool(parts.scheme)


def _base64(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _date_time(text: str) -> bool:
    return _DATE_TIME.fullmatch(text) is not None and _tries(lambda t: parse_time(t.upper()))(text)


def _isbn(length: int) -> Callable[[str], bool]:
    def test(text: str) -> bool:
        digits = text.replace("-", "").replace(" ", "")
        if len(digits) == 10 and length in (0, 10) and re.fullmatch(r"[0-9]{9}[0-9X]", digits):
            values = [10 if c == "X" else int(c) for c in digits]
            return sum((10 - i) * v for i, v in enumerate(values)) % 11 == 0
        if len(digits) == 13 and length in (0, 13) and digits.isascii() and digits.isdigit():
            return sum((1, 3)[i % 2] * int(c) for i, c in enumerate(digits)) % 10 == 0
        return False

    return test


def _card(text: str) -> bool:
    digits = re.sub(r"[^0-9]+", "", text)
    if not _CARD.fullmatch(digits):
        return False
    doubled = [int(c) * (2 if i % 2 else 1) for i, c in enumerate(reversed(digits))]
    return sum(v - 9 if v > 9 else v for v in doubled) % 10 == 0


_TESTS: dict[str, Callable[[str], bool]] = {
    "bsonobjectid": _matches(re.compile("[0-9a-fA-F]{24}")),
    "byte": _base64,
    "cidr": lambda text: "/" in text and _tries(lambda t: ipaddress.ip_network(t, strict=False))(text),
    "creditcard": _card,
    "date": lambda text: len(text) == 10 and _tries(date.fromisoformat)(text),
    "datetime": _date_time,
    "duration": lambda text: fullmatch(_DURATION, text) is not None or _WORDS.fullmatch(text) is not None,
    "email": _matches(_EMAIL),
    "hexcolor": _matches(_HEX_COLOR),
    "hostname": _matches(_HOSTNAME),
    "ipv4": _tries(ipaddress.IPv4Address),
    "ipv6": _tries(ipaddress.IPv6Address),
    "isbn": _isbn(0),
    "isbn10": _isbn(10),
    "isbn13": _isbn(13),
    "k8slongname": lambda text: not names.dns1123_subdomain(text),
    "k8sshortname": lambda text: not names.dns1123_label(text),
    "mac": _matches(_MAC),
    "rgbcolor": _matches(_RGB),
    "ssn": _matches(_SSN),
    "uri": _uri,
    "uuid": _uuid(),
    "uuid3": _uuid(3),
    "uuid4": _uuid(4),
    "uuid5": _uuid(5),
}
