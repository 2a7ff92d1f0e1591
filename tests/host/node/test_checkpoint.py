"""POST /checkpoint on a runtime that can: a running container's state in an archive, by CRIU."""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from agent.config import AccessSettings
from tests.support.containerd import Containerd
from tests.support.control import ApiUnderTest
from tests.support.images import BUSYBOX_IMAGE
from tests.support.node import agent_node
from tests.support.ports import reserve
from tests.support.runtimes import needs


def _criu_works() -> bool:
    if shutil.which("criu") is None:
        return False
    return subprocess.run(["criu", "check"], capture_output=True, check=False).returncode == 0


@needs("checkpoints", (2, 0))
@pytest.mark.skipif(not _criu_works(), reason="CRIU is missing or too old for this kernel (`criu check`)")
async def test_a_running_containers_state_is_written_and_it_runs_on(
    tmp_path: Path, containerd: Containerd, server: ApiUnderTest
) -> None:
    (port,) = reserve()
    changes: dict[str, Any] = {
        "enable_server": True,
        "port": port,
        "access": AccessSettings(authorization_mode="AlwaysAllow", anonymous=True),
    }
    async with agent_node(tmp_path, containerd, server, **changes) as node:
        command = ["sh", "-c", "echo kept > /kept; trap 'exit 0' TERM; sleep 1000 & wait"]
        await node.create("frozen", {"containers": [{"name": "main", "image": BUSYBOX_IMAGE, "command": command}]})
        pod = await node.ready("frozen")
        url = f"https://127.0.0.1:{port}/checkpoint/default/frozen/main?timeout=30"
        async with aiohttp.ClientSession() as http, http.post(url, ssl=False) as answer:
            text = await answer.text()
            assert answer.status == 200, text
        (location,) = json.loads(text)["items"]
        assert Path(location).parent == node.config.root_dir / "checkpoints"
        with tarfile.open(location) as archive:
            names = set(archive.getnames())
        assert {"checkpoint", "config.dump", "spec.dump", "rootfs-diff.tar"} <= names
        after = (await node.get("frozen")).status.container_statuses[0]
        assert after.restart_count == 0 and after.container_id == pod.status.container_statuses[0].container_id
        assert await node.execute(pod, "cat", "/kept") == "kept\n"
