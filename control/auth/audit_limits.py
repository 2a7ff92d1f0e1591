"""Limits of the texts of an audit event: authorizers, webhooks and extension servers choose how long theirs are.

Each request writes its event, so that a text that many requests repeat fills the log and delays them.
"""

from __future__ import annotations

from typing import Any

from kube.errors import MOST_CAUSES, MOST_SHOWN
from kube.json_object import Object

LONGEST_MESSAGE = 64 * 1024
"""Characters of an event's message, of its annotations together, and of the causes in its details."""


def cut(text: str, longest: int) -> str:
    """Return a text, marked as truncated where it is longer."""
    return text if len(text) <= longest else text[:longest] + "...TRUNCATED"


def shown_annotations(found: dict[str, str]) -> dict[str, str]:
    """Return annotations as an event shows them: the first ones whole, the rest as far as there is room."""
    room = LONGEST_MESSAGE
    if sum(map(len, found)) + sum(map(len, found.values())) <= room:
        return found
    shown: dict[str, str] = {}
    for key, value in found.items():
        room -= len(key)
        if room < 0:
            break
        shown[key] = cut(value, room)
        room -= min(len(value), room)
    return shown


def shown_details(found: Object) -> Object:
    """Return a Status's details without the causes that there is no room for: a webhook's may be of any length."""
    shown = {key: cut(value, MOST_SHOWN) if isinstance(value, str) else value for key, value in found.items()}
    if isinstance(causes := found.get("causes"), list):
        room, kept = LONGEST_MESSAGE, list[Any]()
        for cause in causes[:MOST_CAUSES]:
            room -= sum(len(str(text)) for text in cause.values()) if isinstance(cause, dict) else len(str(cause))
            if room < 0:
                break
            kept.append(cause)
        shown["causes"] = kept
    return shown
