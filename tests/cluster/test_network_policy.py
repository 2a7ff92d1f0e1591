"""NetworkPolicies applied with kubectl: allowed and blocked connections, and isolation of a pod from its first packet."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from netproxy.config import PodNetworkConfig
from netproxy.podnet import cni, cni_results
from tests.support.cluster import WEB_IMAGE, Cluster, eventually
from tests.support.kube import web
from tests.support.pods import apply, container, execute, logs, pod, wait_running, wait_terminated


def policy(name: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": name},
        "spec": {"podSelector": {}, **spec},
    }


def test_a_policy_closes_a_service_to_all_but_whom_it_names_and_to_the_node(shared: Cluster, ns: str) -> None:
    address = web(shared, ns, 1)
    apply(shared, ns, pod("friend", labels={"role": "friend"}), pod("stranger"))
    wait_running(shared, ns, "friend", "stranger")

    def reach(name: str) -> bool:
        return execute(shared, ns, name, "timeout 1 wget -q -O - http://web || true") != ""

    for name in ("friend", "stranger"):
        eventually(lambda n=name: reach(n), f"the {name} is let in")  # type: ignore[misc]
    friends = {"from": [{"podSelector": {"matchLabels": {"role": "friend"}}}], "ports": [{"port": 80}]}
    apply(shared, ns, policy("friends", podSelector={"matchLabels": {"app": "web"}}, ingress=[friends]))
    eventually(lambda: not reach("stranger"), "the stranger is shut out")
    eventually(lambda: reach("friend"), "the friend is not")
    assert shared.http(address) != ""  # from the node
    shared.kubectl("label", "pod", "stranger", "role=friend", "-n", ns)
    eventually(lambda: reach("stranger"), "a label makes a friend")
    shared.kubectl("delete", "networkpolicy", "friends", "-n", ns)
    shared.kubectl("label", "pod", "stranger", "role-", "-n", ns)
    eventually(lambda: reach("stranger"), "open again without the policy")


def test_a_pod_reaches_nobody_from_its_first_moment_where_nothing_may_leave(shared: Cluster, ns: str) -> None:
    address = web(shared, ns, 1)
    apply(shared, ns, policy("quiet", podSelector={"matchLabels": {"role": "quiet"}}, policyTypes=["Egress"]))

    # Attempts at once and for the whole window in which its address becomes known; DNS is the node's, so always there.
    def attempts(seconds: int) -> str:
        return (
            f"for i in 1 2 3; do timeout {seconds} wget -q -O - http://{address} > /dev/null && echo reached; done; "
            f"until nslookup web.{ns}.svc.cluster.local > /dev/null; do sleep 0.2; done; echo resolved"
        )

    names = [f"quiet-{number}" for number in range(3)]
    quiet = [pod(name, container(attempts(1)), labels={"role": "quiet"}, restartPolicy="Never") for name in names]
    apply(shared, ns, *quiet, pod("loud", container(attempts(30)), restartPolicy="Never"))
    for name in (*names, "loud"):
        wait_terminated(shared, ns, name)
    reported = {name: [line for line in logs(shared, ns, name).splitlines() if line.startswith("re")] for name in names}
    assert reported == {name: ["resolved"] for name in names}
    assert logs(shared, ns, "loud").splitlines() == ["reached"] * 3 + ["resolved"]


def test_the_runtime_names_the_pod_whose_addresses_cni_plugins_gave(shared: Cluster, ns: str) -> None:
    """By this a pod that is deleted by force before its status has an address stays under its policies."""
    apply(shared, ns, pod("named"))
    wait_running(shared, ns, "named")
    found = shared.get("pod", "named", "-n", ns)
    results = cni_results.CNIResults(Path(PodNetworkConfig().cni_results_dir), cni.NETWORK, "cni0").read_all().values()
    # The folder is the machine's, so clusters of other test processes write there too, for the same addresses.
    ports = [port for port in results if isinstance(port, cni_results.BridgePort)]
    given = [port.addresses for port in ports if port.pod_uid == found["metadata"]["uid"]]
    assert given == [tuple(each["ip"] for each in found["status"]["podIPs"])]


def test_probes_reach_a_pod_that_nobody_else_may(shared: Cluster, ns: str) -> None:
    apply(shared, ns, policy("deny"))
    probed = {"httpGet": {"port": 80}, "periodSeconds": 1, "timeoutSeconds": 10}
    served = {"name": "c", "image": WEB_IMAGE, "readinessProbe": probed, "livenessProbe": probed}
    apply(shared, ns, pod("web", served), pod("client"))
    wait_running(shared, ns, "web", "client")
    address = shared.get("pod", "web", "-n", ns)["status"]["podIP"]
    assert execute(shared, ns, "client", f"timeout 1 wget -q -O - http://{address} || true") == ""
    shown = shared.kubectl("describe", "networkpolicy", "deny", "-n", ns).stdout
    assert "Allowing ingress traffic:\n    <none> (Selected pods are isolated for ingress connectivity)" in shown


def test_a_pod_that_rules_its_own_network_sends_from_its_own_address_alone(shared: Cluster, ns: str) -> None:
    web(shared, ns, 1)
    mighty = container()
    mighty["securityContext"] = {"capabilities": {"add": ["NET_ADMIN", "NET_RAW"]}}
    apply(shared, ns, pod("mighty", mighty))
    wait_running(shared, ns, "mighty")
    target = shared.get("pods", "-n", ns, "-l", "app=web")["items"][0]["status"]["podIP"]
    own = shared.get("pod", "mighty", "-n", ns)["status"]["podIP"]
    free = (f"{own.rpartition('.')[0]}.{number}" for number in range(250, 255))
    borrowed = next(address for address in free if address not in (own, target))

    def ask(source: str) -> bool:
        execute(shared, ns, "mighty", f"ip route replace {target}/32 dev eth0 src {source}")
        return execute(shared, ns, "mighty", f"timeout 3 wget -q -O - http://{target} || true") != ""

    eventually(lambda: ask(own), "it is heard with its own address")
    execute(shared, ns, "mighty", f"ip address add {borrowed}/24 dev eth0")
    assert not ask(borrowed)
    assert ask(own)
    execute(shared, ns, "mighty", "ip link set eth0 address 02:00:00:00:00:77")
    assert not ask(own)


def test_not_even_a_pods_first_packet_bears_a_borrowed_address(shared: Cluster, ns: str) -> None:
    web(shared, ns, 1)
    target = shared.get("pods", "-n", ns, "-l", "app=web")["items"][0]["status"]["podIP"]
    script = (
        "last=${OWN##*.}; borrowed=${OWN%.*}.$((last > 127 ? last - 100 : last + 100)); "
        "ip address add $borrowed/24 dev eth0; "
        f"ip route add {target}/32 dev eth0 src $borrowed; "
        f"for i in 1 2 3 4 5; do timeout 1 wget -q -O - http://{target} > /dev/null && echo reached; done; echo done"
    )
    own = {"name": "OWN", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}
    rights = {"capabilities": {"add": ["NET_ADMIN"]}}
    names = [f"quick-{number}" for number in range(4)]
    quick = container(script, env=[own], securityContext=rights)
    apply(shared, ns, *(pod(name, quick, restartPolicy="Never") for name in names))
    for name in names:
        wait_terminated(shared, ns, name)
    reported = {
        name: [line for line in logs(shared, ns, name).splitlines() if line in ("reached", "done")] for name in names
    }
    assert reported == {name: ["done"] for name in names}
