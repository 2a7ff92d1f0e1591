"""Numbers of a metrics page (Prometheus' text format): the few families that the page shows, summed by some of their labels."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

MOST_KEYS = 200
"""Values of a family; more are left out."""
Values = dict[str, dict[str, float]]
"""By family and labels, whose values are joined by " · "."""
_LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*+)"')


def totals(text: str, wanted: Mapping[str, Sequence[str]]) -> Values:
    """Return the sums of the wanted families, each by the labels that it is wanted by."""
    found: Values = {}
    for line in text.split("\n"):
        name, brace, rest = line.partition("{")
        labels = ""
        if brace:
            labels, _, rest = rest.rpartition("} ")
        else:
            name, _, rest = line.partition(" ")
        by = wanted.get(name)
        if by is None:
            continue
        try:
            value = float(rest.split(" ", 1)[0])
        except ValueError:
            continue
        if not math.isfinite(value):
            continue
        given = dict(_LABEL.findall(labels)) if by else {}
        key = " · ".join(given.get(each, "") for each in by)
        sums = found.setdefault(name, {})
        if key in sums or len(sums) < MOST_KEYS:
            sums[key] = sums.get(key, 0.0) + value
    return found
