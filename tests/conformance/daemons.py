"""Upstream's daemons in the place of some or all of Wherry's, on a machine that `wherry up` made.

The certificates, kubeconfigs and the API server's address stay, so each side finds the other as it did before. Each daemon
is a process of its own, Wherry's API server, controllers and scheduler too (`python -m control NAME`); etcd has the objects.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Collection, Iterator

from tests.conformance import daemon_flags
from tests.conformance.upstream import ROOT, chosen
from tests.support.cluster import Cluster, eventually
from tests.support.machines import Machines

API_SERVER, CONTROLLERS, SCHEDULER = "kube-apiserver", "kube-controller-manager", "kube-scheduler"
KUBELET, PROXY = "kubelet", "kube-proxy"
CONTROL_PLANE = frozenset({API_SERVER, CONTROLLERS, SCHEDULER})
END_SECONDS = 30
ALL = CONTROL_PLANE | {KUBELET, PROXY}


class Daemons:
    """Processes in a machine, ended in the end; `upstreams` are the roles in which upstream's run, the others are Wherry's."""

    def __init__(
        self, cluster: Cluster, upstreams: Collection[str], proxy_mode: str = "iptables", first: Cluster | None = None
    ) -> None:
        self.cluster, self.upstreams, self.proxy_mode = cluster, frozenset(upstreams), proxy_mode
        self._first = first or cluster
        """The machine with the API server."""
        self._running: dict[str, subprocess.Popen[str]] = {}

    def take_over(self) -> None:
        """End Wherry's daemons but containerd, and what would start them again."""
        for role in ("supervisor", "control", "agent", "netproxy", "dns"):
            if (self.cluster.prefix / f"run/wherry/{role}.pid").exists():
                os.kill(self.cluster.pid(role), signal.SIGKILL)

    def control_plane(self) -> None:
        """Start etcd, API server, controllers and scheduler; returns when the server is ready."""
        cluster = self.cluster
        self._start("etcd", "etcd", *daemon_flags.etcd(cluster))
        self.api_server()
        self._control(CONTROLLERS, *daemon_flags.controllers(cluster))
        self._control(SCHEDULER, *daemon_flags.scheduler(cluster))

    def api_server(self, port: int = 6443) -> None:
        """Start an API server and wait until it is ready."""
        cluster = self.cluster
        pki = cluster.prefix / "var/lib/wherry/pki"
        flags = daemon_flags.api_server(pki, daemon_flags.ETCD, cluster.host.address, port)
        self._control(API_SERVER, *flags, key=f"{API_SERVER}-{port}")
        look = (f"--server=https://{cluster.host.address}:{port}", "get", "--raw", "/readyz")
        eventually(lambda: cluster.kubectl(*look, check=False).stdout == "ok", "the server is ready", 120)

    def end_api_server(self, port: int) -> None:
        """End an API server in order."""
        self._end_one(f"{API_SERVER}-{port}")

    def agent(self) -> None:
        """Start the kubelet or Wherry's agent and wait until it has made the node Ready."""
        if KUBELET in self.upstreams:
            self._start(KUBELET, str(chosen().binaries / KUBELET), *daemon_flags.kubelet(self.cluster, chosen()))
        else:
            self._role("agent")
        version = chosen().version if KUBELET in self.upstreams else "wherry"
        eventually(lambda: self._ready(version), f"a node of {version} is Ready", 120)

    def proxy(self, *, dns: bool = True) -> None:
        """Start the service proxy, and beside upstream's Wherry's cluster DNS.

        After `wherry up --proxy upstream` the DNS role routes between machines' pods too.
        """
        if PROXY not in self.upstreams:
            return self._role("proxy")
        settings = self.cluster.prefix / "etc/wherry/kube-proxy.yaml"
        cleanup = (sys.executable, "-m", "netproxy", f"--config={settings}", "--cleanup")
        self.cluster.host.run(*cleanup, env={"PYTHONPATH": str(ROOT)})
        if dns:
            self._role("dns")
        return self._start(PROXY, str(chosen().binaries / PROXY), *daemon_flags.proxy(self.cluster, self.proxy_mode))

    def change_agent(self, upstreams: Collection[str]) -> None:
        """End the kubelet or Wherry's agent in order and start the one that `upstreams` says."""
        self._end_one(KUBELET if KUBELET in self.upstreams else "agent")
        self.upstreams = frozenset(upstreams)
        self.agent()

    def _ready(self, version: str) -> bool:
        found = self._first.kubectl("get", "node", self.cluster.node, "--output=json", check=False).stdout
        status = json.loads(found)["status"] if found else {"nodeInfo": {"kubeletVersion": ""}, "conditions": []}
        conditions = {c["type"]: c["status"] for c in status["conditions"]}
        return version in status["nodeInfo"]["kubeletVersion"] and conditions.get("Ready") == "True"

    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self._running.items()}

    def end(self) -> None:
        for name in reversed(self._running.copy()):  # etcd last: upstream's API server waits for it
            self._end_one(name)
        if KUBELET in self.upstreams:  # it mounts its folder on itself
            self.cluster.host.run("umount", "--recursive", f"{self.cluster.prefix}/var/lib/kubelet", check=False)

    def _end_one(self, name: str) -> None:
        process = self._running.pop(name)
        process.terminate()
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _control(self, name: str, *flags: str, key: str = "") -> None:
        if name in self.upstreams:
            return self._start(key or name, str(chosen().binaries / name), *flags)
        return self._wherrys(key or name, "control", name, *flags)

    def _role(self, role: str) -> None:
        self._wherrys(role, "wherry.roles", role, "--prefix", str(self.cluster.prefix))

    def _wherrys(self, name: str, module: str, *arguments: str) -> None:
        self._start(name, "env", f"PYTHONPATH={ROOT}", sys.executable, "-m", module, *arguments)

    def _start(self, name: str, *argv: str) -> None:
        with (self.cluster.prefix / f"var/log/wherry/{name}-2.log").open("a") as log:
            self._running[name] = self.cluster.host.popen(*argv, stdout=log.fileno())


@contextlib.contextmanager
def exchanged(
    cluster: Cluster, upstreams: Collection[str], proxy_mode: str = "iptables", *, dns: bool = True
) -> Iterator[Daemons]:
    """Give the machine a control plane, an agent and a proxy anew, upstream's in the named roles; all as processes alone."""
    made = Daemons(cluster, upstreams, proxy_mode)
    made.take_over()
    try:
        made.control_plane()
        made.proxy(dns=dns)
        made.agent()
        yield made
    finally:
        made.end()


@contextlib.contextmanager
def exchanged_on_all(machines: Machines, upstreams: Collection[str], proxy_mode: str = "iptables") -> Iterator[None]:
    """Do the same on each machine of a cluster whose first one has the control plane.

    Upstream's proxy needs machines made with `--proxy upstream`: then Wherry's DNS role routes between their pods.
    """
    with contextlib.ExitStack() as ends:
        ends.enter_context(exchanged(machines.first, upstreams, proxy_mode))
        for machine in machines.all[1:]:
            made = Daemons(machine, upstreams, proxy_mode, machines.first)
            made.take_over()
            ends.callback(made.end)
            made.proxy()
            made.agent()
        yield
