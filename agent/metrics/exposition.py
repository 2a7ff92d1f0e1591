"""Prometheus' text format, version 0.0.4, written line by line."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from kube.exposition import label_text, number

Sample = tuple[Mapping[str, str], float, float]  # labels, value, time in seconds or 0.0


class Text:
    """Writes the exposition format, version 0.0.4."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def family(self, name: str, kind: str, help: str, samples: Iterable[Sample]) -> None:
        """Add a metric; kind is counter or gauge."""
        self._lines += [f"# HELP {name} {help}", f"# TYPE {name} {kind}"]
        for labels, value, time in samples:
            stamp = f" {int(time * 1000)}" if time else ""
            self._lines.append(f"{name}{label_text(labels)} {number(value)}{stamp}")

    def present(self, name: str, kind: str, help: str, samples: Sequence[Sample]) -> None:
        """Add a metric that is left out where it has no samples."""
        if samples:
            self.family(name, kind, help, samples)

    def histogram(
        self, name: str, help: str, buckets: Iterable[Sample], sums: Iterable[Sample], counts: Iterable[Sample]
    ) -> None:
        """Add a histogram; the buckets carry `le` and are cumulative."""
        self.family(name, "histogram", help, [])
        for suffix, samples in (("_bucket", buckets), ("_sum", sums), ("_count", counts)):
            self._lines += [f"{name}{suffix}{label_text(labels)} {number(value)}" for labels, value, _ in samples]

    def __str__(self) -> str:
        return "\n".join(self._lines) + "\n"


class Families(Protocol):
    """One or more metrics that write themselves."""

    def write(self, text: Text) -> None:
        """Add the families to a text."""
        ...
