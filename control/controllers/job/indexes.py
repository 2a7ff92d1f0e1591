"""Sets of completion indexes, as text: "0-2,5"."""

from __future__ import annotations

from collections.abc import Iterable


def parse(text: str | None, completions: int) -> set[int]:
    """Read a set of indexes; those beyond the completions, and what cannot be read, are left out."""
    found: set[int] = set()
    for part in (text or "").split(","):
        first, _, last = part.partition("-")
        try:
            low, high = int(first), int(last or first)
        except ValueError:
            continue
        found.update(range(low, min(high, completions - 1) + 1))
    return found


def render(indexes: Iterable[int]) -> str:
    """Write a set of indexes; two in a row are "1,2", three and more a range."""
    runs: list[list[int]] = []
    for index in sorted(set(indexes)):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)
