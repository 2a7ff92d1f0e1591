"""Decisions of a control plane that has no journal, or does not show it."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kube.client import Client
from kube.errors import StatusError
from wherry.ui import decisions

DENIED = 'forbidden: User "jane" cannot get path "/wherry/v1/journal"'


class Refusing:
    def __init__(self, error: StatusError) -> None:
        self.error = error

    async def call(self, *_: Any, **__: Any) -> bytes:
        raise self.error


@pytest.mark.parametrize(
    ("code", "message", "wanted"),
    [
        (404, "the server could not find the requested resource", decisions.NO_JOURNAL),
        (400, "name one object", decisions.NO_JOURNAL),
        (403, DENIED, decisions.NO_JOURNAL),
        (403, "no", "the journal could not be read: no"),
        (500, "broken", "the journal could not be read: broken"),
    ],
)
async def test_a_control_plane_without_a_list_of_the_journal_differs_from_one_that_fails(
    code: int, message: str, wanted: str
) -> None:
    client = cast(Client, Refusing(StatusError(code, "x", message)))
    assert await decisions.entries(client, "", {"since": "1", "until": "2"}) == {"why": wanted}
