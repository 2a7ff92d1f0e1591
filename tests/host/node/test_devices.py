"""A device of a plugin's in a real container: its node, its mount, its environment."""

from __future__ import annotations

from pathlib import Path

from kube.api import core_v1
from tests.support.device_plugin import device_plugin
from tests.support.images import BUSYBOX_IMAGE
from tests.support.node import NodeUnderTest, eventually

RANDOM = "example.com/random"


async def test_a_container_reaches_its_device(node: NodeUnderTest, tmp_path: Path) -> None:
    library = tmp_path / "library"
    library.mkdir()
    (library / "version").write_text("7\n")
    async with device_plugin(node.config.root_dir / "device-plugins", RANDOM, {"r0": "Healthy"}) as plugin:
        plugin.answer = {
            "devices": [{"container_path": "/dev/dice", "host_path": "/dev/urandom", "permissions": "r"}],
            "mounts": [{"container_path": "/opt/dice", "host_path": str(library), "read_only": True}],
        }

        async def there() -> bool:
            found = await node.client.get(core_v1.Node, node.config.node_name)
            return found.status.allocatable.get(RANDOM) == "1"

        await eventually(there, "the device is not on the node")
        command = ["sh", "-c", "trap 'exit 0' TERM; sleep 1000 & wait"]
        resources = {"limits": {RANDOM: "1"}}
        main = {"name": "main", "image": BUSYBOX_IMAGE, "command": command, "resources": resources}
        await node.create("player", {"containers": [main]})
        pod = await node.ready("player")
        look = "head -c 4 /dev/dice | wc -c; cat /opt/dice/version; echo $DEVICES; touch /opt/dice/x 2>&1 | grep -c Read-only"
        assert (await node.execute(pod, "sh", "-c", look)).split() == ["4", "7", "r0", "1"]
