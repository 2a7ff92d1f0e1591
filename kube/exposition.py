"""Prometheus' text format, version 0.0.4, of metric families, as upstream's daemons write it.

The client library's own writer adds a series `_created` to each counter and histogram, which upstream has nowhere, and writes
bounds of buckets as floats of Python (`le="1.0"`), for which a query of `le="1"` finds nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from kube.serialize import readable

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


def number(value: float) -> str:
    """Return a number as Go's strconv writes the shortest form of it: 1, 0.005, 1e-08, 1e+06, +Inf."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    if -1e6 < value < 1e6 and value == int(value):
        return str(int(value))
    text = repr(float(value))
    sign, digits, exponent = Decimal(text).normalize().as_tuple()
    power = len(digits) + int(exponent) - 1
    if -5 < power < 6:
        return text
    fraction = "".join(map(str, digits[1:]))
    return f"{'-' * sign}{digits[0]}{'.' if fraction else ''}{fraction}e{power:+03}"


def text_of(families: Iterable[Any]) -> bytes:
    """Return families of the client library in the text format, without those that have no samples."""
    lines: list[str] = []
    for family in families:
        if not family.samples:
            continue
        name = family.name
        if family.type == "counter" and not any(sample.name == name for sample in family.samples):
            name += "_total"
        kind = {"unknown": "untyped", "info": "gauge", "stateset": "gauge"}.get(family.type, family.type)
        help_text = family.documentation.replace("\\", r"\\").replace("\n", r"\n")
        lines += (f"# HELP {name} {help_text}", f"# TYPE {name} {kind}")
        for sample in family.samples:
            if sample.name.endswith("_created") and sample.name != name:
                continue
            lines.append(f"{sample.name}{label_text(sample.labels)} {number(sample.value)}")
    return "".join(f"{line}\n" for line in lines).encode()


def label_text(labels: Mapping[str, str]) -> str:
    """Return labels in braces, in the order of their names, `le` last."""
    if not labels:
        return ""
    ordered = sorted(labels.items(), key=lambda label: (label[0] == "le", label[0]))
    inside = ",".join(f'{name}="{_bound(text) if name == "le" else _escaped(text)}"' for name, text in ordered)
    return f"{{{inside}}}"


def _bound(text: str) -> str:
    return number(float(text))


def _escaped(text: str) -> str:
    return readable(text).translate(_ESCAPES)
