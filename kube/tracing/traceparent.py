"""The header `traceparent` of W3C Trace Context: the trace and span that a request belongs to, and if they are recorded.

`tracestate` is not forwarded; the specification allows that.
"""

from __future__ import annotations

import re

import msgspec

HEADER = "traceparent"
_SAMPLED = 1
_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_LONGEST = 512


class SpanContext(msgspec.Struct, frozen=True):
    """Identity of a span, and the sampling decision of its trace."""

    trace_id: int
    span_id: int
    sampled: bool

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id:032x}-{self.span_id:016x}-{'01' if self.sampled else '00'}"


def parse(text: str) -> SpanContext | None:
    """Return a header's span; None for an invalid header, which is treated as missing."""
    found = _FORM.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        return None
    version, trace, span, flags, more = found.groups()
    trace_id, span_id = int(trace, 16), int(span, 16)
    if version == "ff" or (version == "00" and more) or not trace_id or not span_id:
        return None
    return SpanContext(trace_id, span_id, bool(int(flags, 16) & _SAMPLED))
