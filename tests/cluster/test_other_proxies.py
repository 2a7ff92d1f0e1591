"""A cluster whose Services another proxy serves: Wherry brings the pod network and cluster DNS, in one process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cluster import BUSYBOX, Cluster, cluster, eventually
from tests.support.kube import wait_pods, web

QUESTION = ["nslookup", "kubernetes.default.svc.cluster.local"]


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    with cluster(f"wherry-x{os.getpid()}") as made:
        yield made


def test_another_proxy_takes_wherrys_place_and_gives_it_back(own: Cluster) -> None:
    own.kubectl("create", "namespace", "x")
    address = web(own, "x", 1)
    asking_pod(own, "asking")

    message = own.up("--proxy", "upstream")
    configuration = own.prefix / "etc/wherry/kube-proxy.yaml"
    assert f"kube-proxy --config={configuration}" in message
    assert str(own.prefix / "etc/wherry/netproxy.kubeconfig") in message
    shown = own.wherry("status").stdout
    assert "netproxy" not in shown and "dns " in shown
    assert "KUBE-SVC" not in own.host.run("iptables-save").stdout
    assert own.http(address) == "", "nothing serves Services"
    eventually(lambda: answered(own), "names are answered without any proxy")

    # A proxy of the operator's own, with kube-proxy's command line, which knows nothing of DNS or pods.
    other = own.host.popen(
        *("env", f"PYTHONPATH={Path(__file__).resolve().parents[2]}", sys.executable, "-m", "netproxy"),
        *(f"--config={configuration}", "--no-dns", "--no-pod-network"),
        stdout=None,
    )
    try:
        eventually(lambda: own.http(address), "the other proxy serves Services")
        eventually(lambda: "kube-system/kube-dns:dns" in own.host.run("iptables-save").stdout, "cluster DNS among them")
        assert answered(own)
        asking_pod(own, "new")
        assert answered(own, "new")
    finally:
        other.terminate()
        other.wait()

    own.up("--proxy", "wherry", "--dns", "alone")
    shown = own.wherry("status").stdout
    assert "netproxy" in shown and "dns " in shown
    eventually(lambda: own.http(address), "Services are served again")
    assert answered(own)
    own.up("--dns", "proxy")
    assert "dns " not in own.wherry("status").stdout
    eventually(lambda: answered(own), "names are answered by the proxy's process again")


def answered(own: Cluster, pod: str = "asking") -> bool:
    done = own.kubectl("exec", "-n", "x", pod, "--", *QUESTION, check=False)
    return done.returncode == 0 and "10.96.0.1" in done.stdout


def asking_pod(own: Cluster, name: str) -> None:
    own.kubectl("run", name, "-n", "x", f"--image={BUSYBOX}", "--restart=Never", "--", "sleep", "3600")
    wait_pods(own, "x", f"run={name}", 1)
