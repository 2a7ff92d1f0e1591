"""Selectors, names, numbers and times: the short texts of objects and queries."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable

from control.registry import checks
from control.registry.batch.schedule import schedule_problem
from control.storage.listing import decode_token, parse_revision
from kube import cron, duration, names, quantity, selectors
from kube.clock import parse_time
from tests.support.cost_cases.inputs import HEAD, OBJECT, cases, each, fill

LABELS: dict[str, Callable[[int], str]] = {
    "terms": fill("a=b,", "", "a=b"),
    "different terms": each("k%d=v,", "", "a"),
    "a set": each("v%d,", "a in (", "v)"),
    "one value again and again": fill("v,", "a in (", "v)"),
    "a long key": fill("a"),
    "a long prefix": fill("a.", "", "a/b"),
    "dashes": fill("a-", "", "!"),
    "spaces": fill(" ", "a", "=b"),
    "spaces alone": fill(" \t", "a in (", "!"),
    "parentheses": fill("("),
    "equals": fill("="),
    "digits": fill("9", "a>"),
}
FIELDS: dict[str, Callable[[int], str]] = {
    "terms": fill("metadata.name=b,"),
    "backslashes": fill("\\\\", "a=", ",b=c"),
    "backslashes before a comma": fill("\\,", "a"),
    "no equals": fill("a"),
    "exclamation marks": fill("a!"),
    "equals": fill("=", "a"),
    "spaces": fill(" ", "a", "=b"),
    "commas": fill(","),
}
NAME_CHECKS: dict[str, Callable[[str], object]] = {
    "dns1123_label": names.dns1123_label,
    "dns1123_subdomain": names.dns1123_subdomain,
    "dns1123_subdomain_with_underscore": names.dns1123_subdomain_with_underscore,
    "dns1035_label": names.dns1035_label,
    "qualified_name": names.qualified_name,
    "label_value": names.label_value,
    "path_segment": names.path_segment,
    "port_name": names.port_name,
    "env_var_name": names.env_var_name,
    "config_map_key": names.config_map_key,
}
WORST_NAMES: dict[str, Callable[[int], str]] = {
    "letters": fill("a", "", "!"),
    "dashes": fill("-", "a", "!"),
    "letters and dashes": fill("a-", "", "!"),
    "labels": fill("a.", "", "!"),
    "long labels": fill("a" * 60 + ".", "", "!"),
    "underscores": fill("_a", "", "!"),
    "dots": fill(".", "a"),
    "slashes": fill("a/"),
}
NUMBERS: dict[str, tuple[Callable[[str], object], dict[str, Callable[[int], str]]]] = {
    "quantity": (
        quantity.canonical,
        {
            "digits": fill("9"),
            "decimals": fill("9", "0."),
            "an exponent": fill("9", "1e"),
            "letters": fill("K", "1"),
            "zeros": fill("0", "", "1"),
        },
    ),
    "duration": (
        duration.parse,
        {
            "parts": fill("1h"),
            "digits": fill("9", "", "h"),
            "no unit": fill("9"),
            "dots": fill("1."),
            "decimals": fill("9", "."),
        },
    ),
    "cron schedule": (
        schedule_problem,
        {
            "values": fill("1,", "", "1 * * * *"),
            "digits": fill("9", "", " * * * *"),
            "fields": fill("* "),
            "slashes": fill("/1", "1", " * * * *"),
            "dashes": fill("-1", "1", " * * * *"),
            "a duration": fill("1h", "@every "),
            "a duration without units": fill("1", "@every "),
            "decimals": fill("1.", "@every "),
        },
    ),
    "cron job": (
        cron.parse,
        {
            "values": fill("1,", "", "1 * * * *"),
            "a duration": fill("1h", "@every "),
            "digits": fill("1", "@every ", "h"),
        },
    ),
    "time": (
        parse_time,
        {
            "decimals": fill("1", "2026-01-01T00:00:00.", "Z"),
            "digits": fill("1"),
            "zone": fill("1", "2026-01-01T00:00:00+"),
        },
    ),
    "resource version": (parse_revision, {"digits": fill("9"), "zeros": fill("0")}),
    "continue token": (
        decode_token,
        {
            "letters": fill("A"),
            "a key": lambda size: base64.urlsafe_b64encode(
                json.dumps({"v": "meta.k8s.io/v1", "rv": 1, "start": "a/" * (size // 4)}).encode()
            ).decode(),
            "digits": lambda size: base64.urlsafe_b64encode(
                b'{"v":"meta.k8s.io/v1","rv":%b}' % (b"9" * (size // 2))
            ).decode(),
            "brackets": lambda size: base64.urlsafe_b64encode(b"[" * (size // 2)).decode(),
        },
    ),
    "percentage": (
        lambda text: (checks.int_or_percent(text, "a"), checks.at_most_all(text, "a"), checks.scaled_zero(text)),
        {"digits": fill("9", "", "%"), "zeros": fill("0", "", "%")},
    ),
}
CASES = [
    *cases("label selector", LABELS, selectors.parse_labels, largest=HEAD),
    *cases("field selector", FIELDS, selectors.parse_fields, largest=HEAD),
]
for name, check in NAME_CHECKS.items():
    CASES += cases(name, WORST_NAMES, check, largest=OBJECT)
for name, (number, worst) in NUMBERS.items():
    CASES += cases(name, worst, number, largest=OBJECT)
