"""Result of a check, which becomes a condition in an object's status."""

from __future__ import annotations

from dataclasses import dataclass

MOST_MESSAGE = 1024
"""Characters of a message; the API allows 32 768, for each of 64 listeners and 32 parents."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Status, reason and message of a condition; `ok` is its status True."""

    ok: bool
    reason: str
    message: str = ""


def failed(reason: str, message: str) -> Verdict:
    """Return a failed check; a long message is cut."""
    return Verdict(False, reason, message if len(message) <= MOST_MESSAGE else message[: MOST_MESSAGE - 1] + "…")


ACCEPTED = Verdict(True, "Accepted")
RESOLVED = Verdict(True, "ResolvedRefs")
NO_CONFLICTS = Verdict(True, "NoConflicts")
