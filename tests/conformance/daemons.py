"""Upstream's daemons of v1.20 in the place of Wherry's, on a machine that `wherry up` made.

The certificates, kubeconfigs and the API server's address stay, so each side finds the other as it did before.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.conformance import upstream
from tests.support.cluster import Cluster, eventually

_KUBELET = """\
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {{anonymous: {{enabled: false}}, webhook: {{enabled: true}}, x509: {{clientCAFile: {pki}/ca.crt}}}}
authorization: {{mode: Webhook}}
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
failSwapOn: false
cgroupDriver: cgroupfs
cgroupRoot: {cgroup}
enforceNodeAllocatable: [pods]
resolvConf: {prefix}/resolv.conf
tlsCertFile: {prefix}/var/lib/kubelet/pki/kubelet.crt
tlsPrivateKeyFile: {prefix}/var/lib/kubelet/pki/kubelet.key
oomScoreAdj: 0
"""


class Daemons:
    """Processes in a machine, ended in the end."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._running: dict[str, subprocess.Popen[str]] = {}

    def take_over(self, *roles: str) -> None:
        """End Wherry's daemons of these roles, and what would start them again."""
        for role in ("supervisor", *roles):
            os.kill(self.cluster.pid(role), signal.SIGKILL)

    def start(self, name: str, *argv: str) -> None:
        with (self.cluster.prefix / f"var/log/wherry/{name}.log").open("w") as log:
            self._running[name] = self.cluster.host.popen(*argv, stdout=log.fileno())

    def role(self, role: str) -> None:
        """Start one of Wherry's own daemons."""
        argv = (sys.executable, "-m", "wherry.roles", role, "--prefix", str(self.cluster.prefix))
        self.start(f"{role}-2", "env", f"PYTHONPATH={upstream.ROOT}", *argv)

    def upstream(self, name: str, *flags: str) -> None:
        self.start(name, str(upstream.BINARIES / name), *flags)

    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self._running.items()}

    def end(self) -> None:
        for process in self._running.values():
            process.terminate()
        for process in self._running.values():
            process.wait()
        if "kubelet" in self._running:  # it mounts its folder on itself
            self.cluster.host.run("umount", "--recursive", f"{self.cluster.prefix}/var/lib/kubelet")


@contextlib.contextmanager
def control_plane(cluster: Cluster) -> Iterator[None]:
    """Give the machine upstream's API server, controllers and scheduler, and Wherry's agent and proxy anew."""
    made = Daemons(cluster)
    made.take_over("control", "agent", "netproxy")
    try:
        _start_control_plane(made)
        made.role("agent")
        made.role("netproxy")
        node_ready(cluster, "wherry")
        yield
    finally:
        made.end()


@contextlib.contextmanager
def kubelet(cluster: Cluster) -> Iterator[None]:
    """Give the machine upstream's kubelet, and leave Wherry's control plane and proxy."""
    made = Daemons(cluster)
    made.take_over("control", "agent")
    try:
        made.role("server")
        ready(cluster)
        _start_kubelet(made)
        node_ready(cluster, upstream.VERSION)
        yield
    finally:
        made.end()


@contextlib.contextmanager
def everything(cluster: Cluster) -> Iterator[dict[str, int]]:
    """Give the machine upstream's daemons alone; yields their process IDs. Of Wherry's stays the CNI configuration."""
    made = Daemons(cluster)
    made.take_over("control", "agent", "netproxy")
    settings = cluster.prefix / "etc/wherry/kube-proxy.yaml"
    path = {"PYTHONPATH": str(upstream.ROOT)}
    cluster.host.run(sys.executable, "-m", "netproxy", f"--config={settings}", "--cleanup", env=path)
    try:
        _start_control_plane(made)
        _start_kubelet(made)
        made.upstream(
            "kube-proxy",
            f"--kubeconfig={cluster.prefix}/etc/wherry/netproxy.kubeconfig",
            f"--hostname-override={cluster.node}",
            "--cluster-cidr=10.244.0.0/16",
            "--conntrack-max-per-core=0",  # the limits are the machine's own
            "--conntrack-tcp-timeout-established=0",
            "--conntrack-tcp-timeout-close-wait=0",
        )
        node_ready(cluster, upstream.VERSION)
        yield made.pids()
    finally:
        made.end()


def _start_control_plane(made: Daemons) -> None:
    cluster = made.cluster
    pki, etcd = cluster.prefix / "var/lib/wherry/pki", "http://127.0.0.1:2379"
    made.start(
        "etcd",
        "etcd",
        f"--data-dir={cluster.prefix}/var/lib/etcd",
        f"--listen-client-urls={etcd}",
        f"--advertise-client-urls={etcd}",
        "--listen-peer-urls=http://127.0.0.1:2380",
    )
    flags = api_server_flags(pki, etcd, cluster.host.address, 6443)
    made.upstream("kube-apiserver", *flags, "--kubelet-preferred-address-types=InternalIP")
    ready(cluster)
    kubeconfig = f"--kubeconfig={cluster.kubeconfig}"
    made.upstream(
        "kube-controller-manager",
        kubeconfig,
        f"--service-account-private-key-file={pki}/sa.key",
        f"--root-ca-file={pki}/ca.crt",
        f"--cluster-signing-cert-file={pki}/ca.crt",
        f"--cluster-signing-key-file={pki}/ca.key",
        "--allocate-node-cidrs=true",
        "--cluster-cidr=10.244.0.0/16",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
    )
    made.upstream("kube-scheduler", kubeconfig, "--leader-elect=false")


def api_server_flags(pki: Path, etcd: str, address: str, port: int) -> list[str]:
    """Return kube-apiserver's flags for a folder of certificates as `wherry up` makes it."""
    return [
        f"--etcd-servers={etcd}",
        f"--advertise-address={address}",
        f"--secure-port={port}",
        f"--tls-cert-file={pki}/apiserver.crt",
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--client-ca-file={pki}/ca.crt",
        f"--kubelet-client-certificate={pki}/apiserver-kubelet-client.crt",
        f"--kubelet-client-key={pki}/apiserver-kubelet-client.key",
        f"--kubelet-certificate-authority={pki}/ca.crt",
        f"--service-account-key-file={pki}/sa.pub",
        f"--service-account-signing-key-file={pki}/sa.key",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--service-cluster-ip-range=10.96.0.0/12",
        "--allow-privileged=true",
    ]


def _start_kubelet(made: Daemons) -> None:
    cluster, prefix = made.cluster, made.cluster.prefix
    cgroup = f"/wherry-{str(prefix).strip('/').replace('/', '-')}"
    for controller in Path("/sys/fs/cgroup").iterdir():
        if controller.is_dir():
            (controller / cgroup.strip("/")).mkdir(exist_ok=True)
    settings = prefix / "kubelet-1.20.yaml"
    settings.write_text(_KUBELET.format(pki=prefix / "var/lib/wherry/pki", prefix=prefix, cgroup=cgroup))
    made.upstream(
        "kubelet",
        f"--config={settings}",
        f"--kubeconfig={prefix}/etc/wherry/agent.kubeconfig",
        "--container-runtime=remote",
        f"--container-runtime-endpoint=unix://{prefix}/run/wherry/containerd.sock",
        "--pod-infra-container-image=wherry.local/pause:1",
        f"--hostname-override={cluster.node}",
        f"--node-ip={cluster.host.address}",
        f"--root-dir={prefix}/var/lib/kubelet",
    )


def ready(cluster: Cluster) -> None:
    eventually(
        lambda: cluster.kubectl("get", "--raw", "/readyz", check=False).stdout == "ok", "the server is ready", 120
    )


def node_ready(cluster: Cluster, version: str) -> None:
    """Wait until the node is Ready under an agent of that version."""

    def seen() -> bool:
        status = cluster.get("node", cluster.node)["status"]
        conditions = {c["type"]: c["status"] for c in status["conditions"]}
        return version in status["nodeInfo"]["kubeletVersion"] and conditions.get("Ready") == "True"

    eventually(seen, f"a node of {version} is Ready", 120)
