"""Calls of several webhooks at a time: one that does not answer keeps only its own callers waiting."""

import asyncio
import contextlib
import gc
from pathlib import Path

import pytest

from control.admission.webhooks import caller as settings
from control.admission.webhooks.caller import CALLS, CALLS_OF_ONE, Caller, CallFailed
from kube.errors import StatusError
from tests.support.lookup import Objects
from tests.support.webhook import webhook

REVIEW = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1"}}


async def test_a_webhook_that_does_not_answer_takes_no_connections_from_others(tmp_path: Path) -> None:
    for name in ("slow", "quick"):
        (tmp_path / name).mkdir()
    caller = Caller(Objects())
    async with (
        webhook(tmp_path / "slow") as slow,
        webhook(tmp_path / "quick") as quick,
        contextlib.AsyncExitStack() as stack,
    ):
        stack.push_async_callback(caller.close)
        slow.sleep = 3600.0
        quick.answers["/v"] = lambda request: {"allowed": True}
        async with asyncio.TaskGroup() as group:
            waiting = [
                group.create_task(caller.call(slow.client("/v"), REVIEW, 600.0, owner), name=f"call-{owner}-{i}")
                for owner in ("ann", "bob")
                for i in range(CALLS_OF_ONE + 10)
            ]
            async with asyncio.timeout(60):
                while len(slow.received) < CALLS:
                    await asyncio.sleep(0.02)
            assert b'"allowed": true' in await caller.call(quick.client("/v"), REVIEW, 10.0)
            assert len(slow.received) == CALLS, "the others wait for their turn"
            for task in waiting:
                task.cancel()
        waiting.clear()
        del task
        gc.collect()
        assert not len(caller._places), "of webhooks that nobody calls nothing is kept"


async def test_a_users_calls_do_not_time_out_while_they_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The timeout starts when a call is sent; one that cannot be sent is refused instead of failing as the webhook's."""
    monkeypatch.setattr(settings, "CALLS_OF_ONE", 1)
    monkeypatch.setattr(settings, "MOST_WAITING", 1)
    async with webhook(tmp_path) as slow, contextlib.AsyncExitStack() as stack:
        caller = Caller(Objects())
        stack.push_async_callback(caller.close)
        slow.sleep = 3600.0
        first = asyncio.create_task(caller.call(slow.client("/v"), REVIEW, 0.2, "ann"))
        second = asyncio.create_task(caller.call(slow.client("/v"), REVIEW, 0.2, "ann"))
        for _ in range(3):
            await asyncio.sleep(0)
        with pytest.raises(StatusError, match="too many requests wait for the webhook") as refused:
            await caller.call(slow.client("/v"), REVIEW, 600.0, "ann")
        assert refused.value.code == 429
        for task in (first, second):
            with pytest.raises(CallFailed, match="context deadline exceeded"):
                await task
        assert len(slow.received) == 2, "both were sent"
