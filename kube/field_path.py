"""A limit on the paths that messages name: a client chooses how long a map's key is, and everything below repeats it."""

from __future__ import annotations

LONGEST = 1024
"""Characters of a path. Names and keys of labels have 63, of annotations 317, of ConfigMaps 253."""
MOST_PROBLEMS = 100
"""Unknown and repeated fields that are reported: as many as upstream's strict decoder saves."""


def bounded(path: str) -> str:
    """Return a path, cut off where it is longer than LONGEST."""
    return path if len(path) <= LONGEST else path[:LONGEST] + "..."
