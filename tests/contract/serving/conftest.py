"""Both event loops, and servers with each protocol.

The roles run on uvloop, tools and tests on asyncio's own, whose TLS behaves differently under load.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import uvloop

from agent.server.protocol import AgentProtocol
from control.http.protocol import ApiProtocol
from kube.serving.protocol import BoundedProtocol
from tests.contract.serving.sites import Site, mutual_tls


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(params=["api tls", "kubelet tls", "health"])
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Site:
    protocols = {"api": ApiProtocol, "kubelet": AgentProtocol, "health": BoundedProtocol}
    protocol = protocols[request.param.split()[0]]
    if "tls" not in request.param:
        return Site(protocol, None, None, None)
    server, certified = mutual_tls(tmp_path)
    return Site(protocol, server, ssl.create_default_context(cafile=str(tmp_path / "ca.crt")), certified)
