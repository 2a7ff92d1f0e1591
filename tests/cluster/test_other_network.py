"""A cluster whose pods get their network from another CNI plugin, which a DaemonSet installs, and names from another DNS."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.cluster import BUSYBOX, NODE, Cluster, cluster_on, eventually, prefix
from tests.support.host import Host, hosts
from tests.support.images import Image
from tests.support.kube import condition, events, is_ready, wait_phase, wait_pods, web
from tests.support.machines import Machine, credentials

PLUGIN = "wherry.test/plugin:1"
NO_NETWORK = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:"
QUESTION = ["nslookup", "kubernetes.default.svc.cluster.local"]
ANYWHERE = {"tolerations": [{"operator": "Exists"}]}


@pytest.fixture(scope="module")
def pair() -> Iterator[list[Host]]:
    with hosts(f"wherry-n{os.getpid()}", (0, 0)) as machines:
        yield machines


@pytest.fixture(scope="module")
def own(pair: list[Host]) -> Iterator[Cluster]:
    with prefix(pair[0].name) as folder, cluster_on(pair[0], folder, "--pod-network", "none") as made:
        # Its name is in no package: the runtime finds it where the DaemonSet puts it, the other plugins in the package's.
        program = Path("/usr/lib/cni/ptp").read_bytes()
        made.load(Image(PLUGIN, files={"site-ptp": program}))
        made.kubectl("create", "namespace", "x")
        yield made


def node(own: Cluster, name: str = NODE) -> dict[str, Any]:
    found: dict[str, Any] = own.get("node", name)
    return found


def pod_range(own: Cluster) -> str:
    return str(node(own)["spec"]["podCIDR"])


def network(own: Cluster) -> str:
    """The network list of the site's plugin."""
    addresses = {"type": "host-local", "ranges": [[{"subnet": pod_range(own)}]], "routes": [{"dst": "0.0.0.0/0"}]}
    addresses["dataDir"] = str(own.prefix / "var/lib/cni/networks")
    plugins = [
        {"type": "site-ptp", "ipam": addresses},
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ]
    return json.dumps({"cniVersion": "0.4.0", "name": "site", "plugins": plugins})


def install_plugin(own: Cluster) -> None:
    """Install the plugin as the manifests of flannel and Calico do."""
    script = (
        f"cp /site-ptp /host/bin/site-ptp && chmod 755 /host/bin/site-ptp && echo '{network(own)}' > /host/net/.new && "
        "mv /host/net/.new /host/net/10-site.conflist && exec sleep 100000"
    )
    folders = {"bin": own.prefix / "opt/cni/bin", "net": own.prefix / "etc/cni/net.d"}
    container = {
        "name": "install",
        "image": PLUGIN,
        "command": ["sh", "-c", script],
        "volumeMounts": [{"name": name, "mountPath": f"/host/{name}"} for name in folders],
    }
    spec = {
        "hostNetwork": True,
        "terminationGracePeriodSeconds": 0,
        "tolerations": [{"operator": "Exists", "effect": "NoSchedule"}],
        "containers": [container],
        "volumes": [
            {"name": name, "hostPath": {"path": str(path), "type": "DirectoryOrCreate"}}
            for name, path in folders.items()
        ],
    }
    labels = {"app": "site-cni"}
    manifest = {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "site-cni", "namespace": "kube-system"},
        "spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": spec}},
    }
    own.kubectl("apply", "-f", "-", input=json.dumps(manifest))


def run(own: Cluster, name: str, **spec: Any) -> None:
    container = {"name": "main", "image": BUSYBOX, "command": ["sleep", "100000"]}
    body = {"terminationGracePeriodSeconds": 0, "containers": [container], **spec}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "x"}, "spec": body}
    own.kubectl("apply", "-f", "-", input=json.dumps(pod))


def answered(own: Cluster, name: str) -> bool:
    done = own.kubectl("exec", "-n", "x", name, "--", *QUESTION, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return True


def tables(own: Cluster) -> list[str]:
    return [line for line in own.host.run("nft", "list", "tables").stdout.splitlines() if "wherry-" in line]


def links(own: Cluster) -> str:
    return own.host.run("ip", "-br", "link").stdout


def resolver(own: Cluster, name: str) -> str:
    return own.kubectl("exec", "-n", "x", name, "--", "cat", "/etc/resolv.conf").stdout


def test_a_node_without_a_network_runs_pods_of_the_host_network(own: Cluster) -> None:
    ready = condition(node(own), "Ready")
    assert ready["status"] == "False" and ready["message"].startswith(NO_NETWORK), ready
    assert pod_range(own), "plugins such as flannel read it"
    assert "node.kubernetes.io/network-unavailable" not in json.dumps(node(own)["spec"])
    done = own.wherry("status", check=False)
    assert done.returncode == 1 and NO_NETWORK in done.stdout
    assert "pod network and network policies: those of another CNI plugin" in done.stdout

    assert list((own.prefix / "etc/cni/net.d").iterdir()) == []
    assert "cni0" not in links(own) and "wherry" not in links(own)
    assert "proto 87" not in own.host.run("ip", "route", "show", "table", "all").stdout
    assert tables(own) == ["table inet wherry-localnet"], "the agent's"

    run(own, "host", hostNetwork=True, **ANYWHERE)
    run(own, "waits", **ANYWHERE)
    wait_phase(own, "x", "host", "Running")
    eventually(
        lambda: [e for e in events(own, "x", "waits") if e["reason"] == "NetworkNotReady"], "the event of a kubelet"
    )
    assert own.get("pod", "waits", "-n", "x")["status"]["phase"] == "Pending"


def test_a_plugin_that_a_daemon_set_installs_gives_pods_their_network(own: Cluster) -> None:
    before = own.pid("agent"), own.pid("containerd")
    install_plugin(own)
    eventually(lambda: is_ready(node(own)), "the node is Ready")
    assert (own.pid("agent"), own.pid("containerd")) == before, "without a restart"
    wait_phase(own, "x", "waits", "Running")
    first = pod_range(own).rpartition(".")[0]
    assert own.get("pod", "waits", "-n", "x")["status"]["podIP"].startswith(f"{first}.")
    assert own.wherry("status").returncode == 0
    address = web(own, "x", 2)
    assert {own.http(address).split()[1] for _ in range(3)} == {"v1"}, "from the node"
    asked = own.kubectl("exec", "-n", "x", "waits", "--", "wget", "-qO-", f"http://{address}/").stdout
    assert asked.split()[1] == "v1", "from a pod"
    asked = own.kubectl("exec", "-n", "x", "waits", "--", *QUESTION).stdout
    assert "10.96.0.1" in asked
    assert "error" not in own.wherry("check").stdout


def test_a_required_network_is_waited_for_although_another_one_is_there(own: Cluster) -> None:
    message = own.up("--pod-network", "elsewhere")
    assert "from the CNI network elsewhere" in message
    ready = condition(node(own), "Ready")
    missing = "the node requires the pod network elsewhere, and the container runtime has loaded site"
    assert ready["status"] == "False" and ready["message"].startswith(NO_NETWORK), ready
    assert ready["message"].endswith(missing), ready
    other = f"{own.prefix / 'etc/cni/net.d/10-site.conflist'} is the network site, and the pod network is elsewhere"
    done = own.wherry("status", check=False)
    assert done.returncode == 1 and other in done.stdout and missing in done.stdout
    assert other in " ".join(own.wherry("check", check=False).stdout.split()), "whose lines are wrapped"
    run(own, "other", **ANYWHERE)
    eventually(lambda: [e for e in events(own, "x", "other") if e["reason"] == "NetworkNotReady"], "the pod waits")
    assert own.get("pod", "waits", "-n", "x")["status"]["phase"] == "Running", "pods that run keep running"

    # The network's own name makes the node Ready; pods of before have that network.
    own.up("--pod-network", "none")
    own.up("--pod-network", "site")
    assert is_ready(node(own))
    wait_phase(own, "x", "other", "Running")
    assert "those of the CNI network site" in own.wherry("status").stdout
    assert "is the network site" not in " ".join(own.wherry("check").stdout.split())
    own.up("--pod-network", "none")


def test_network_policies_are_the_plugins(own: Cluster) -> None:
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "closed", "namespace": "x"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
    }
    own.kubectl("apply", "-f", "-", input=json.dumps(policy))
    (pod, _) = wait_pods(own, "x", "app=web", 2)
    own.kubectl("exec", "-n", "x", "waits", "--", "wget", "-qO-", f"http://{pod['status']['podIP']}/")
    assert "wherry-policy" not in own.host.run("nft", "list", "tables").stdout
    own.kubectl("delete", "networkpolicy", "closed", "-n", "x")


def test_a_cluster_without_cluster_dns_gives_pods_the_resolvers_of_their_node(own: Cluster) -> None:
    message = own.up("--cluster-dns", "none")
    assert "pods ask the resolvers of their nodes" in message
    assert own.kubectl("get", "service", "kube-dns", "-n", "kube-system", check=False).returncode != 0
    assert "10.96.0.10" not in own.host.run("ip", "address", "show", "lo").stdout
    run(own, "unnamed")
    wait_phase(own, "x", "unnamed", "Running")
    assert "10.96.0.10" not in resolver(own, "unnamed") and "cluster.local" not in resolver(own, "unnamed")
    eventually(
        lambda: [e for e in events(own, "x", "unnamed") if e["reason"] == "MissingClusterDNS"],
        "the event of a kubelet",
    )
    assert "cluster DNS: not Wherry's" in own.wherry("status").stdout


def test_a_dns_of_the_operators_own_takes_the_address(own: Cluster) -> None:
    own.up("--cluster-dns", "10.96.0.10", "--dns", "none")
    run(own, "named")
    wait_phase(own, "x", "named", "Running")
    assert "nameserver 10.96.0.10" in resolver(own, "named")
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "kube-dns", "namespace": "x"},
        "spec": {
            "clusterIP": "10.96.0.10",
            "selector": {"app": "web"},
            "ports": [{"port": 53, "targetPort": 80, "protocol": "TCP"}],
        },
    }
    own.kubectl("apply", "-f", "-", input=json.dumps(service))
    eventually(lambda: "v1" in own.http("10.96.0.10:53"), "the proxy serves that Service")
    own.kubectl("delete", "service", "kube-dns", "-n", "x")
    own.up("--dns", "proxy")
    eventually(lambda: answered(own, "named"), "nodes answer again")


def test_a_machine_changes_its_network_with_new_pods(own: Cluster) -> None:
    configuration = own.prefix / "etc/cni/net.d/10-site.conflist"
    own.kubectl("delete", "daemonset", "site-cni", "-n", "kube-system")
    configuration.rename(own.prefix / "site.conflist")
    done = own.wherry("up", *own.identity(), "--pod-network", "wherry", check=False)
    assert done.returncode == 1 and "pods cannot be removed" in done.stderr, "their plugin is not there any more"
    (own.prefix / "site.conflist").rename(configuration)
    own.up()  # as it was
    assert is_ready(node(own))
    eventually(lambda: "v1" in own.http(own.get("service", "web", "-n", "x")["spec"]["clusterIP"]), "Services answer")

    own.up("--pod-network", "wherry")
    eventually(lambda: "cni0" in links(own), "the first pod starts")
    names = sorted(path.name for path in configuration.parent.iterdir())
    assert names == ["10-site.conflist.disabled", "10-wherry.conflist"]
    reserved = own.prefix / "var/lib/cni/networks/wherry"
    eventually(
        lambda: all((reserved / pod["status"]["podIP"]).exists() for pod in wait_pods(own, "x", "app=web", 2)),
        "pods have addresses of Wherry's network",
    )
    address = own.get("service", "web", "-n", "x")["spec"]["clusterIP"]
    eventually(lambda: "v1" in own.http(address), "Services answer")

    (configuration.parent / "10-site.conflist.disabled").unlink()
    message = own.up("--pod-network", "none")
    assert "Pods get their network" in message
    assert "cni0" not in links(own) and "wherry0" not in links(own)
    assert list((own.prefix / "etc/cni/net.d").iterdir()) == []
    eventually(lambda: not is_ready(node(own)), "the node has no network")
    install_plugin(own)
    wait_pods(own, "x", "app=web", 2)
    eventually(lambda: "v1" in own.http(address), "Services answer")


def test_a_machine_that_joins_has_the_networks_of_the_cluster(own: Cluster, pair: list[Host]) -> None:
    own.up("--dns", "none")
    token, ca_hash = credentials(own.wherry("token", "create", "--print-join-command").stdout)
    with prefix(pair[1].name) as folder:
        joined = Machine(pair[1], folder, "node2")
        try:
            joined.join(Machine(pair[0], own.prefix), token, ca_hash)
            settings = json.loads((folder / "etc/wherry/wherry.json").read_text())
            assert (settings["pod_network"], settings["dns"]) == ("none", "none")
            ready = condition(node(own, "node2"), "Ready")
            assert ready["status"] == "False" and ready["message"].startswith(NO_NETWORK), ready
            assert list((folder / "etc/cni/net.d").iterdir()) == []
            assert "10.96.0.10" not in pair[1].run("ip", "address", "show", "lo").stdout
            joined.up()
            done = joined.wherry("up", "--cluster-dns", "none", check=False)
            assert done.returncode == 1 and "--cluster-dns is the cluster's, not a worker's" in done.stderr
            joined.up("--dns", "proxy")
            assert "10.96.0.10" in pair[1].run("ip", "address", "show", "lo").stdout
        finally:
            joined.remove()


def test_reset_leaves_what_the_other_plugin_has(own: Cluster) -> None:
    own.wherry("reset", "--yes")
    assert sorted(path.name for path in (own.prefix / "opt/cni/bin").iterdir()) == ["site-ptp"], "links are Wherry's"
    assert [path.name for path in (own.prefix / "etc/cni/net.d").iterdir()] == ["10-site.conflist"]
    assert tables(own) == []
