"""A second agent under the node's name, as on a machine that was copied: started for some seconds, then killed.

It is a whole agent with the node's credentials, folders of its own and a container runtime without containers (cri/fake), so
it reports the node and its pods as an agent on another machine would.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from agent import main
from agent.config import AgentConfig, EvictionSettings
from agent.volumes import mounts
from cri.fake import FakeRuntime
from tests.support.cluster import BUSYBOX, WEB_IMAGE, Cluster
from tests.support.history import History

ROOT = Path(__file__).resolve().parents[1]


class SecondAgent:
    """Starts the agent in the network namespace of the first one, and removes what it leaves."""

    def __init__(self, made: Cluster, history: History) -> None:
        self._made, self._history = made, history
        self._known: set[str] = set()
        self.reported: set[str] = set()
        """The pods that were there while it ran, as in the history."""
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        self._known = set(self._history.phases)
        self.reported |= self._history.present
        self._folder = Path(tempfile.mkdtemp(prefix="wherry-second-agent-"))
        kubeconfig = self._made.prefix / "etc/wherry/agent.kubeconfig"
        arguments = [str(self._folder), str(kubeconfig), self._made.node, self._made.host.address]
        with (self._made.prefix / "second-agent.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._made.host.enter, sys.executable, "-m", "bench.soak_second_agent", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=ROOT,
            )

    def stop(self) -> None:
        """Kill it, and remove its mounts and files; once it is gone this does nothing."""
        process, folder, self._process, self._folder = self._process, self._folder, None, None
        if process is not None:
            process.kill()
            process.wait()
            self.reported |= self._history.phases.keys() - self._known
        if folder is not None:
            for point in mounts.mount_points(folder):
                with contextlib.suppress(OSError):
                    mounts.unmount(point)
            shutil.rmtree(folder, ignore_errors=True)


async def run(folder: Path, kubeconfig: Path, node: str, address: str) -> None:
    """Run the agent until the process is killed."""
    async with FakeRuntime(folder / "runtime.sock") as runtime:
        for image in (BUSYBOX, WEB_IMAGE):
            runtime.images.add(image)
        config = AgentConfig(
            node_name=node,
            hostname=node,
            kubeconfig=kubeconfig,
            root_dir=folder / "kubelet",
            cert_dir=folder / "pki",
            pod_logs_dir=folder / "pods-logs",
            container_logs_dir=folder / "container-logs",
            runtime_endpoint=runtime.endpoint,
            node_ips=(address,),
            cgroups_per_qos=False,
            enable_server=False,
            healthz_port=0,
            fail_swap_on=False,
            eviction=EvictionSettings(hard={}),
        )
        await main.run(config)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname).1s %(name)s: %(message)s")
    where, access, name, ip = sys.argv[1:]
    asyncio.run(run(Path(where), Path(access), name, ip))
