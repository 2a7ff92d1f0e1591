"""Requests without a time limit and without a seat: upstream's BasicLongRunningRequestCheck."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from control.auth.user import Credentials
from control.config import ControlConfig
from control.fairness.fairness import Fairness
from control.http.exchange import Answer, Request, Response
from control.server.metrics import RequestMetrics
from control.server.pipeline import Pipeline
from tests.unit.control.server.test_query_selectors import Auth, nothing

PODS = "/api/v1/namespaces/n/pods"


@pytest.mark.parametrize(
    ("method", "path", "query", "long_running"),
    [
        ("GET", f"{PODS}/p/log", "follow=true", True),
        ("GET", f"{PODS}/p/log", "", True),
        ("GET", f"{PODS}/p/log", "follow=false", True),
        ("GET", f"{PODS}/p/exec", "", True),
        ("POST", f"{PODS}/p/attach", "", True),
        ("GET", f"{PODS}/p/portforward", "", True),
        ("GET", f"{PODS}/p/proxy", "", True),
        ("GET", f"{PODS}/p/proxy/log", "", True),
        ("GET", "/api/v1/proxy/namespaces/n/pods/p", "", True),
        ("GET", f"{PODS}/p/status", "", False),
        ("GET", f"{PODS}/log", "", False),
        ("GET", PODS, "", False),
        ("POST", PODS, "", False),
        ("GET", "/log", "", False),
    ],
)
async def test_long_running_requests_have_no_timeout_and_no_seat(
    method: str, path: str, query: str, long_running: bool
) -> None:
    auth: Any = Auth()
    serving = list[int]()

    async def slow(request: Request) -> Answer:
        serving.append(sum(pipeline.in_flight().values()))
        await asyncio.sleep(0.02)
        return Response(200)

    config = ControlConfig(*[Path("unused")] * 5)
    pipeline = Pipeline(config, auth, slow, slow, Fairness(600, 15), RequestMetrics(), lambda info: 1)
    request = Request(method, path, f"{query}&timeout=1ms".lstrip("&").encode(), {}, nothing)
    answer = await pipeline.answer(request, Credentials(None, "token"))
    assert isinstance(answer, Response)
    assert (answer.status, serving) == ((200, [0]) if long_running else (504, [1]))
