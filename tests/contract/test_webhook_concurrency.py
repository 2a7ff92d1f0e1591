"""Calls of several webhooks at a time: one that does not answer keeps only its own callers waiting."""

import asyncio
import contextlib
import gc
from pathlib import Path

import pytest

from control.admission.webhooks.caller import Caller, CallFailed
from tests.support.lookup import Objects
from tests.support.webhook import webhook

REVIEW = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1"}}
CALLS = 100


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
                group.create_task(caller.call(slow.client("/v"), REVIEW, 600.0), name=f"call-{i}")
                for i in range(CALLS + 20)
            ]
            async with asyncio.timeout(60):
                while len(slow.received) < CALLS:
                    await asyncio.sleep(0.02)
            assert b'"allowed": true' in await caller.call(quick.client("/v"), REVIEW, 10.0)
            with pytest.raises(CallFailed, match="context deadline exceeded"):
                await caller.call(slow.client("/v"), REVIEW, 1.0)
            assert len(slow.received) == CALLS, "the others wait for their turn"
            for task in waiting:
                task.cancel()
        waiting.clear()
        del task
        gc.collect()
        assert not len(caller._slots), "of webhooks that nobody calls nothing is kept"
