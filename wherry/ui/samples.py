"""Numbers of a metrics page (Prometheus' text format): the few families that the page shows, summed by some of their labels.

A node, or a pod that has a port of its address, decides what the text is: it is gone through in parts, between which other
requests are served, and each part takes time in proportion to its length.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence

from wherry.why.pacing import TimeSlice

MOST_KEYS = 200
"""Values of a family; more are left out."""
LONGEST_LINE, LONGEST_VALUE = 4096, 100
"""Bytes of a line, of which longer ones are left out, and characters of a label's value, after which it is cut."""
PART_BYTES = 64 << 10
Values = dict[str, dict[str, float]]
"""By family and labels, whose values are joined by " · "."""
_LABEL = re.compile(r'(?<![a-zA-Z0-9_])([a-zA-Z_][a-zA-Z0-9_]*+)="((?:[^"\\]|\\.)*+)"')


async def totals(page: bytes, wanted: Mapping[str, Sequence[str]]) -> Values:
    """Return the sums of the wanted families, each by the labels that it is wanted by."""
    found: Values = {}
    names = "|".join(map(re.escape, wanted))
    lines = re.compile(rf"^(?:{names})[ {{][^\n]{{0,{LONGEST_LINE}}}+$".encode(), re.MULTILINE)
    time_slice, begin = TimeSlice(), 0
    while begin < len(page):
        await time_slice.step()
        end = page.find(b"\n", min(begin + PART_BYTES, len(page)))
        end = len(page) if end < 0 else end
        for match in lines.finditer(page, begin, end):
            await time_slice.step()
            _add(found, match[0].decode(errors="replace"), wanted)
        begin = end + 1
    return found


def _add(found: Values, line: str, wanted: Mapping[str, Sequence[str]]) -> None:
    """Add the value of a line to the sum that it belongs to."""
    name, brace, rest = line.partition("{")
    labels = ""
    if brace:
        labels, _, rest = rest.rpartition("} ")
    else:
        name, _, rest = line.partition(" ")
    by = wanted.get(name)
    try:
        value = float(rest.split(" ", 1)[0])
    except ValueError:
        return
    if by is None:
        return
    given = dict(_LABEL.findall(labels)) if by else {}
    key = " · ".join(given.get(each, "")[:LONGEST_VALUE] for each in by)
    total = found.get(name, {}).get(key, 0.0) + value
    if not math.isfinite(total):
        return
    sums = found.setdefault(name, {})
    if key in sums or len(sums) < MOST_KEYS:
        sums[key] = total
