"""All forms of requests, and a fixed number of each, the same each time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.support.authorised import part_forms, reading_forms, whole_form, writing_forms
from tests.support.authorised.calls import Call
from tests.support.authorised.world import World

FORMS: dict[str, Callable[[Random, World], Call]] = {
    "get": reading_forms.getting,
    "list": reading_forms.listing,
    "watch": reading_forms.watching,
    "odd": reading_forms.odd,
    "measure": reading_forms.measuring,
    "journal": reading_forms.recounting,
    "components": reading_forms.components,
    "create": writing_forms.creating,
    "replace": writing_forms.replacing,
    "patch": writing_forms.patching,
    "apply": writing_forms.applying,
    "delete": writing_forms.deleting,
    "clear": writing_forms.clearing,
    "act": part_forms.acting,
    "part": part_forms.changing_parts,
    "misuse": part_forms.misusing,
    "connect": part_forms.connecting,
    "extend": part_forms.extending,
    "review": part_forms.requesting,
    "node": part_forms.by_node,
}


EACH = "each"
"""The form of the requests that are counted, not drawn: all of them, whatever number is wanted."""


def corpus(world: World, form: str, examples: int) -> list[Call]:
    """Return requests of one form, each once."""
    if form == EACH:
        return whole_form.each(world)
    drawn = (FORMS[form](Random(number), world) for number in range(examples))
    return list({str(call): call for call in drawn}.values())
