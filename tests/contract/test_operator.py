"""An operator written with kopf, unmodified, in a process of its own, against the server's custom resources."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.contract.test_custom_resources_beside import MERGE, until
from tests.support.control import ApiUnderTest, api_server
from tests.support.custom_resources import definition, install, post

OPERATOR = Path(__file__).parents[1] / "support" / "operator.py"
GROUP = "greet.example.com"
SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {"type": "object", "required": ["who"], "properties": {"who": {"type": "string"}}},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    },
}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path) as api:
        version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": SCHEMA}}
        await install(api, definition("Greeting", version, group=GROUP))
        argv = ("-m", "kopf", "run", str(OPERATOR), "--standalone", "--all-namespaces", "--quiet")
        environment = {**os.environ, "KUBECONFIG": str(api.kubeconfig())}
        log = (tmp_path / "operator.log").open("wb")
        process = await asyncio.create_subprocess_exec(sys.executable, *argv, env=environment, stdout=log, stderr=log)
        try:
            yield api
        finally:
            if process.returncode is None:
                process.terminate()
                try:
                    await asyncio.wait_for(process.wait(), 20)
                except TimeoutError:
                    process.kill()
                    await process.wait()
            log.close()
            print((tmp_path / "operator.log").read_text())


@pytest.mark.timeout(300)
async def test_an_operator_follows_its_objects_from_creation_to_deletion(server: ApiUnderTest) -> None:
    path, maps = f"/apis/{GROUP}/v1/namespaces/default/greetings", "/api/v1/namespaces/default/configmaps"
    body = {"apiVersion": f"{GROUP}/v1", "kind": "Greeting", "metadata": {"name": "first"}, "spec": {"who": "world"}}
    await post(server, path, body)

    async def text() -> Any:
        found = await server.request("GET", f"{maps}/first")
        return found.json["data"]["text"] if found.status == 200 else None

    async def status() -> Any:
        return (await server.request("GET", f"{path}/first")).json.get("status")

    async def greeted() -> bool:
        return ((await status()) or {}).get("created") == {"greeted": "world"}

    await until(greeted, 180)
    assert await text() == "Hello world"
    made = (await server.request("GET", f"{maps}/first")).json
    assert made["metadata"]["ownerReferences"][0]["kind"] == "Greeting"

    async def event() -> bool:
        found = (await server.request("GET", "/api/v1/namespaces/default/events")).json["items"]
        return any(e["reason"] == "Greeted" and e["involvedObject"]["name"] == "first" for e in found)

    await until(event)
    await server.request("PATCH", f"{path}/first", b'{"spec":{"who":"you"}}', headers=MERGE)

    async def renamed() -> bool:
        return ((await status()) or {}).get("phase") == "renamed from world"

    await until(renamed)
    assert await text() == "Hello you"
    assert (await server.request("DELETE", f"{path}/first")).status == 200

    async def gone() -> bool:
        both = (f"{path}/first", f"{maps}/first")
        return all([(await server.request("GET", each)).status == 404 for each in both])

    await until(gone)
