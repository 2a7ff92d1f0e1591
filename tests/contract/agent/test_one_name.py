"""Two agents under one node's name: each detects the other; a single one never does, whatever becomes of its responses."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from agent.node.lease import NodeLease
from kube.client import Client, Response, Transport
from kube.errors import StatusError
from tests.support.control import ApiUnderTest
from tests.support.hollow import eventually, running
from tests.support.node import FastClock

OTHER = "another agent with this name renews its lease"


class LosesAnswers:
    """A transport whose every third write takes effect and fails for its sender."""

    def __init__(self, inner: Transport) -> None:
        self._inner, self.stream, self.close, self.lost, self._count = inner, inner.stream, inner.close, 0, 0

    async def request(self, method: str, path: str, **options: Any) -> Response:
        answer = await self._inner.request(method, path, **options)
        if method != "GET":
            self._count += 1
            if self._count % 3 == 0:
                self.lost += 1
                raise StatusError(503, "ServiceUnavailable", "the answer was lost")
        return answer


def lease(client: Client, clock: FastClock) -> NodeLease:
    return NodeLease(client, "node-1", lambda: "", 40, clock=clock)


async def test_agents_that_share_a_node_name_log_it(
    api: ApiUnderTest, clock: FastClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(lease(api.client(), clock).run(), lease(api.client(), clock).run()):
        await eventually(lambda: OTHER in caplog.text)


async def test_an_agent_whose_answers_are_lost_takes_its_own_renewals_for_its_own(
    api: ApiUnderTest, clock: FastClock, caplog: pytest.LogCaptureFixture
) -> None:
    losing = LosesAnswers(api.client().transport)
    with caplog.at_level(logging.WARNING):
        async with running(lease(Client(losing), clock).run()):
            await eventually(lambda: losing.lost > 3)
    assert "renewing the node's lease: the answer was lost" in caplog.text
    assert OTHER not in caplog.text
