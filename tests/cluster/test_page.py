"""The page of `wherry ui` with a real cluster: numbers of its daemons, and a terminal in a container."""

from __future__ import annotations

import json
import sys
from typing import Any

from tests.support.cluster import NODE, Cluster
from tests.support.kube import web

INSIDE = """
import asyncio, json, sys
from pathlib import Path
from wherry.cluster import as_user
from wherry.ui import inside
async def main():
    async with as_user([Path(sys.argv[1])]) as (client, _):
        print(json.dumps(await inside.numbers(client, sys.argv[2])))
asyncio.run(main())
"""
TERMINAL = """
import asyncio, json, sys
from pathlib import Path
from wherry.cluster import as_user
from wherry.ui.terminal import CHANNELS
async def main():
    async with as_user([Path(sys.argv[1])]) as (client, _), asyncio.timeout(60):
        async with client.transport.inner.socket(sys.argv[2], CHANNELS, most_bytes=1 << 20) as socket:
            await socket.send_bytes(b"\\x04" + json.dumps({"Width": 93, "Height": 31}).encode())
            await socket.send_bytes(b"\\x00stty size; exit 4\\n")
            async for message in socket:
                print(message.data[0], message.data[1:].decode(errors="replace").strip())
asyncio.run(main())
"""


def script(shared: Cluster, text: str, *arguments: str) -> str:
    return shared.host.run(sys.executable, "-c", text, str(shared.kubeconfig), *arguments).stdout


def test_the_inside_view_has_numbers_of_server_and_agent_and_says_why_of_the_proxy_it_has_none(shared: Cluster) -> None:
    found: dict[str, Any] = json.loads(script(shared, INSIDE, NODE))
    server, agent = found["server"], found["agent"]
    assert server["own"] and agent["own"]
    assert server["values"]["wherry_store_commit_duration_seconds_count"][""] > 0
    assert server["values"]["apiserver_longrunning_requests"]["WATCH"] > 0
    assert server["values"]["workqueue_adds_total"]
    assert agent["values"]["kubelet_runtime_operations_total"]
    assert agent["values"]["kubelet_running_pods"][""] >= 0
    assert "refused" in found["proxy"]["why"], "the proxy listens on the node's loopback address"


def test_a_terminal_runs_a_shell_in_a_container(shared: Cluster, ns: str) -> None:
    web(shared, ns, 1)
    (pod,) = shared.get("pods", "-n", ns)["items"]
    container = pod["spec"]["containers"][0]["name"]
    path = (
        f"/api/v1/namespaces/{ns}/pods/{pod['metadata']['name']}/exec?container={container}"
        "&stdin=true&stdout=true&tty=true&command=sh"
    )
    shown = script(shared, TERMINAL, path)
    assert "31 93" in shown
    assert "NonZeroExitCode" in shown and '"4"' in shown
