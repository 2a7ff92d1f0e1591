"""An error that repeats a large body is not written on the event loop."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from control.http.exchange import Answer, Request, error_response
from control.server import pipeline
from kube.errors import bad_request
from tests.unit.control.server.test_query_selectors import answer, listed


@pytest.mark.parametrize(("size", "here"), [(1000, True), (100_000, False)])
async def test_a_large_error_is_written_by_the_thread(monkeypatch: pytest.MonkeyPatch, size: int, here: bool) -> None:
    written = list[bool]()

    def counted(*args: Any, **named: Any) -> Any:
        written.append(threading.current_thread() is threading.main_thread())
        return error_response(*args, **named)

    async def handler(request: Request) -> Answer:
        raise bad_request("a" * size)

    monkeypatch.setattr(pipeline, "error_response", counted)
    assert await answer(listed(""), "token", handler) == 400
    assert written == [here]
