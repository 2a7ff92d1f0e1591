"""A claim's device in a real container, with a runtime that does not know CDI itself (containerd 1.6) or one that does."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.support.claim_driver import CLASS, ClaimDriver, allocated_claim
from tests.support.images import BUSYBOX_IMAGE
from tests.support.node import NodeUnderTest

SPECIFICATIONS = Path("/var/run/cdi")


def _write(name: str, specification: dict[str, Any]) -> Path:
    SPECIFICATIONS.mkdir(parents=True, exist_ok=True)
    file = SPECIFICATIONS / name
    file.write_text(json.dumps(specification))
    return file


async def test_a_claims_device_is_in_the_container(node: NodeUnderTest, tmp_path: Path) -> None:
    claim = f"dice-{os.getpid()}"
    edits = {
        "env": ["CARD=card-0"],
        "deviceNodes": [{"path": "/dev/dice", "hostPath": "/dev/urandom"}],
        "mounts": [{"hostPath": str(tmp_path), "containerPath": "/opt/card", "options": ["ro", "bind"]}],
    }
    specification = {"cdiVersion": "0.5.0", "kind": CLASS, "devices": [{"name": claim, "containerEdits": edits}]}
    file = _write(f"{claim}.json", specification)
    try:
        driver = ClaimDriver(node.config.root_dir)
        async with driver.serving():
            command = ["sh", "-c", "trap 'exit 0' TERM; sleep 1000 & wait"]
            main = {
                "name": "main",
                "image": BUSYBOX_IMAGE,
                "command": command,
                "resources": {"claims": [{"name": "card"}]},
            }
            entry = [{"name": "card", "resourceClaimName": claim}]
            pod = await node.create("player", {"containers": [main], "resourceClaims": entry})
            await allocated_claim(node.client, claim, pod)
            pod = await node.ready("player")
            look = "echo $CARD; head -c 4 /dev/dice | wc -c; ls -d /opt/card/kubelet"
            assert (await node.execute(pod, "sh", "-c", look)).split() == ["card-0", "4", "/opt/card/kubelet"]
            await node.delete("player")
            await node.gone("player")
        assert driver.calls == [("prepare", [claim]), ("unprepare", [claim])]
    finally:
        file.unlink()
