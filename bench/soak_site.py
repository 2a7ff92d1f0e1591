"""Dependencies of a soak's cluster that can fail: the store's disk, a key management plugin, a file server.

All three are made before the cluster and are real: ext4 on a loop device, a gRPC server on a unix socket that holds the key of
the Secrets and ConfigMaps, a FUSE mount that a pod of the cluster uses as a hostPath volume.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.support.disks import MI, SmallDisk, ext4_disk
from tests.support.hung_mount import HungMount, hung_mount
from tests.support.kms import Kms, kms

DISK_BYTES = 192 * MI
START_SECONDS = 10.0


@dataclass
class Site:
    """The parts, each with the call that makes it fail and the one that mends it."""

    disk: SmallDisk
    plugin: Kms
    files: HungMount

    def freeze(self) -> None:
        """Have every write and fsync of the store's disk wait."""
        subprocess.run(["fsfreeze", "--freeze", str(self.disk.path)], check=True, timeout=60)

    def thaw(self) -> None:
        """Let them go on; one that is not frozen is no error."""
        subprocess.run(["fsfreeze", "--unfreeze", str(self.disk.path)], check=False, capture_output=True, timeout=60)


@contextlib.contextmanager
def site(prefix: Path) -> Iterator[Site]:
    """Prepare the folders of a cluster that is to be brought up below `prefix`."""
    with contextlib.ExitStack() as stack:
        # Not below it: `wherry reset` unmounts what is there.
        parts = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wherry-parts-")))
        disk = stack.enter_context(ext4_disk(parts / "store", DISK_BYTES))
        state = prefix / "var/lib/wherry/control"
        state.mkdir(parents=True)
        subprocess.run(["mount", "--bind", str(disk.path), str(state)], check=True, timeout=60)
        stack.callback(subprocess.run, ["umount", "--lazy", str(state)], check=False, capture_output=True, timeout=60)
        plugin = stack.enter_context(_plugin(parts))
        settings = prefix / "etc/wherry"
        settings.mkdir(parents=True)
        (settings / "encryption.yaml").write_text(yaml.safe_dump(_encryption(plugin.endpoint)))
        shared = parts / "files"
        shared.mkdir()
        made = Site(disk, plugin, stack.enter_context(hung_mount(shared)))
        stack.callback(made.thaw)
        yield made


def _encryption(endpoint: str) -> dict[str, object]:
    provider = {"kms": {"apiVersion": "v2", "name": "soak", "endpoint": endpoint, "timeout": "3s"}}
    rules = [{"resources": ["secrets", "configmaps"], "providers": [provider, {"identity": {}}]}]
    return {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "EncryptionConfiguration", "resources": rules}


@contextlib.contextmanager
def _plugin(folder: Path) -> Iterator[Kms]:
    """Run a key management plugin in a separate thread."""
    made: list[Kms] = []
    ready, loop, stop = threading.Event(), asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        async with kms(folder) as plugin:
            made.append(plugin)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),), name="kms", daemon=True)
    thread.start()
    try:
        if not ready.wait(START_SECONDS):
            raise TimeoutError("the key management plugin did not start")
        yield made[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join()
        loop.close()
