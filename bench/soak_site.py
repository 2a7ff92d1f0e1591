"""Dependencies of a soak's cluster that can fail: disks, a library in the daemons, a key management plugin, a file server.

They are made before the cluster. The plugin is a gRPC server on a unix socket that holds the key of the Secrets and ConfigMaps;
the file server is a FUSE mount that a pod of the cluster uses as a hostPath volume.
"""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from bench.soak_disks import Disk, disks
from bench.soak_preloaded import Preloaded, preloaded
from tests.support.hung_mount import HungMount, hung_mount
from tests.support.kms import Kms, kms

START_SECONDS = 10.0


@dataclass
class Site:
    """The dependencies, each with the call that makes it fail and the one that mends it."""

    disks: dict[str, Disk]
    plugin: Kms
    files: HungMount
    preloaded: Preloaded | None
    """None where there is no C compiler."""


@contextlib.contextmanager
def site(prefix: Path) -> Iterator[Site]:
    """Prepare the folders of a cluster that is to be brought up below `prefix`."""
    with contextlib.ExitStack() as stack:
        # Not below it: `wherry reset` unmounts what is there.
        parts = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="wherry-parts-")))
        made = stack.enter_context(disks(parts, prefix))
        plugin = stack.enter_context(_plugin(parts))
        settings = prefix / "etc/wherry"
        (settings / "encryption.yaml").write_text(yaml.safe_dump(_encryption(plugin.endpoint)))
        shared = parts / "files"
        shared.mkdir()
        yield Site(made, plugin, stack.enter_context(hung_mount(shared)), preloaded(parts))


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
