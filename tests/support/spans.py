"""A tracer for unit tests, whose spans stay in memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from kube.tracing.configuration import MILLION
from kube.tracing.spans import Attribute, Attributes, Kind
from kube.tracing.traceparent import SpanContext
from kube.tracing.tracer import Tracer


@dataclass
class Kept:
    """A recorded span."""

    name: str
    context: SpanContext
    parent: SpanContext | None
    attributes: dict[str, Attribute]
    links: list[SpanContext]
    failure: str = ""
    ended: bool = False

    def set_attribute(self, key: str, value: Attribute) -> None:
        self.attributes[key] = value

    def fail(self, reason: str) -> None:
        self.failure = reason

    def link(self, context: SpanContext) -> None:
        self.links.append(context)

    def end(self) -> None:
        assert not self.ended
        self.ended = True


@dataclass
class Memory:
    """A recorder that keeps all spans."""

    kept: list[Kept] = field(default_factory=list)

    def start(
        self,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        attributes: Attributes | None,
        kind: Kind,
        links: Sequence[SpanContext],
        start: int,
    ) -> Kept:
        self.kept.append(Kept(name, context, parent, dict(attributes or {}), list(links)))
        return self.kept[-1]

    async def close(self) -> None: ...


def tracer(rate: int = MILLION) -> tuple[Tracer, list[Kept]]:
    memory = Memory()
    return Tracer(memory, rate), memory.kept
