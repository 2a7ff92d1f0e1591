"""The clauses of an Accept header: media types with their parameters, of a bounded part of the header.

Each response reads this header, also the one to a client that nobody knows, and a request's head may be a megabyte. A value
is split into far fewer parts than it could hold, and what is beyond them is as if it were not sent.
"""

from __future__ import annotations

from typing import NamedTuple

LONGEST = 4096
"""Characters of a header's value that are read where it is split into parts; kubectl's Accept has 200."""
MOST_CLAUSES = 64
"""Media types that are read; kubectl sends four."""
MOST_PARAMETERS = 16
"""Parameters of a media type that are read; kubectl sends three."""


class Clause(NamedTuple):
    """A media type, and the parameters that have a value."""

    media: str
    parameters: dict[str, str]


def clauses(accept: str) -> list[Clause]:
    """Return the clauses of an Accept header in its order, without empty ones."""
    found = []
    for text in accept[:LONGEST].split(",", MOST_CLAUSES)[:MOST_CLAUSES]:
        if text.strip():
            media, *rest = text.split(";", MOST_PARAMETERS + 1)
            named = (part.strip().split("=", 1) for part in rest[:MOST_PARAMETERS] if "=" in part)
            found.append(Clause(media.strip(), dict(named)))
    return found


def by_preference(accept: str) -> list[Clause]:
    """Return the clauses of an Accept header, those of the highest quality first."""
    return sorted(clauses(accept), key=_quality, reverse=True)


def _quality(clause: Clause) -> float:
    try:
        return float(clause.parameters.get("q", 1.0))
    except ValueError:
        return 0.0
