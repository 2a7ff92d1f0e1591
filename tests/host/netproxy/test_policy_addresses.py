"""Network policies and addresses that change hands: a sandbox that is recreated, an address that another pod gets."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.host.netproxy.conftest import CLIENT_IP, PODS, Site, running, until
from tests.host.netproxy.test_pod_sources import write_result
from tests.host.netproxy.test_policy import cluster_with
from tests.support.netns import Namespace, namespaces, wire
from tests.support.policies import pod, policy

A, B = PODS["pod-a"], PODS["pod-b"]
FRESH = "10.244.1.77"
FAR = "10.244.2.5"
"""A pod of another node: its packets come by the uplink."""

ATTEMPTS = (
    "import errno, socket, sys, time\n"
    "log, source, target = open(sys.argv[1], 'w', buffering=1), sys.argv[2], sys.argv[3]\n"
    "print('begun', file=log)\n"
    "while True:\n"
    "    try: socket.create_connection((target, 8080), 0.05, (source, 0)).close(); print('opened', file=log)\n"
    "    except OSError as error: print('timeout' if error.errno is None else errno.errorcode[error.errno], file=log)\n"
    "    time.sleep(0.005)\n"
)
ECHO = (
    "import socket, sys\n"
    "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((sys.argv[2], 5353))\n"
    "while True:\n"
    "    d, a = s.recvfrom(99); s.sendto(sys.argv[1].encode(), a)\n"
)
ASK = (
    "import socket, sys, time\n"
    "log, source, target = open(sys.argv[1], 'w', buffering=1), sys.argv[2], sys.argv[3]\n"
    "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.bind((source, 40000)); s.settimeout(0.05)\n"
    "while True:\n"
    "    try: s.sendto(b'?', (target, 5353)); log.write(s.recv(99).decode() + '\\n')\n"
    "    except OSError: log.write('-\\n')\n"
    "    time.sleep(0.02)\n"
)


def echo(namespace: Namespace, text: str, address: str) -> None:
    namespace.start(sys.executable, "-I", "-c", ECHO, text, address)


def ask(namespace: Namespace, log: Path, source: str, target: str) -> None:
    """Ask from one socket, for ever."""
    namespace.start(sys.executable, "-I", "-c", ASK, str(log), source, target)


def holds(site: Site, text: str) -> bool:
    return text in site.node.run("nft", "list", "table", "ip", "wherry-policy", check=False)


def flows(site: Site) -> str:
    return site.node.run("sh", "-c", "conntrack -L 2>/dev/null")


def test_a_pod_that_ends_its_sandbox_keeps_its_policies_at_its_next_address(site: Site) -> None:
    """It tries to connect from before it has the address, which its status never gets in this test."""
    log = site.folder / "attempts"
    sender, results = site.pods["pod-a"], Path(site.config.pod_network.cni_results_dir)

    async def check() -> None:
        api = cluster_with(
            policy("no-egress", podSelector={"matchLabels": {"app": "a"}}, policyTypes=["Egress"]),
            pod("open", labels={"app": "open"}),
        )
        async with running(site.config, api):
            await until(lambda: holds(site, A), "the policy is in force")
            await until(lambda: site.error(sender, B, 8080) == "ETIMEDOUT", "pod-a is isolated")
            sender.start(sys.executable, "-I", "-c", ATTEMPTS, str(log), FRESH, B)
            await until(lambda: log.exists() and "EADDRNOTAVAIL" in log.read_text(), "it tries")
            (results / "wherry-pod-a-eth0").unlink()
            sender.run("ip", "address", "add", f"{FRESH}/24", "dev", "eth0")
            await until(lambda: log.read_text().count("timeout") > 5, "it tries from its next address")
            assert "opened" not in log.read_text()
            write_result(site, "pod-a", sender, f"{FRESH}/24", uid="a")
            await until(
                lambda: holds(site, FRESH) or "opened" in log.read_text(),
                "the role knows that the address is the pod's",
            )
            before = log.read_text().count("timeout")
            await until(lambda: log.read_text().count("timeout") > before + 5, "it goes on")
            assert "opened" not in log.read_text()
            # The same address as one of a pod that no policy selects.
            write_result(site, "pod-a", sender, f"{FRESH}/24", uid="open")
            await until(lambda: "opened" in log.read_text(), "a pod that no policy selects is let through")

    write_result(site, "pod-a", sender, f"{A}/24", uid="a")
    site.node.inside(check)


@contextlib.contextmanager
def next_pod(site: Site) -> Iterator[Namespace]:
    """A pod with the address that pod-b had, whose device is gone."""
    with namespaces(f"{site.node.name}-next") as (namespace,):
        wire(site.node, "pod-next", namespace, "eth0")
        site.node.run("ip", "link", "set", "pod-next", "master", "cni0")
        namespace.run("ip", "address", "add", f"{B}/24", "dev", "eth0")
        namespace.run("ip", "route", "add", "default", "via", "10.244.1.1")
        yield namespace


def test_a_flow_ends_with_the_pod_and_not_in_the_next_one_that_has_the_address(site: Site) -> None:
    """Whoever sent to the first pod sends on meanwhile; the next one lets nobody in."""
    log = site.folder / "answers"
    results = Path(site.config.pod_network.cni_results_dir)

    def insert(*flow: str) -> None:
        site.node.run("conntrack", "-I", "-t", "600", *flow)

    async def check() -> None:
        api = cluster_with(
            policy("deny", podSelector={"matchLabels": {"app": "next"}}, policyTypes=["Ingress", "Egress"])
        )
        async with running(site.config, api):
            await until(lambda: holds(site, "chain ingress"), "policies are in force")
            site.node.run("ip", "route", "replace", "10.244.2.0/24", "via", CLIENT_IP)
            echo(site.pods["pod-b"], "first", B)
            ask(site.client, log, FAR, B)
            await until(lambda: log.exists() and "first" in log.read_text(), "the first pod answers")
            seen = ("--state", "ESTABLISHED", "-u", "SEEN_REPLY")
            insert("-p", "tcp", "-s", B, "-d", FAR, "--sport", "1111", "--dport", "2222", *seen)
            reply = ("-r", B, "-q", FAR, "--reply-port-src", "53", "--reply-port-dst", "3333")
            insert("-p", "udp", "-s", FAR, "-d", "10.96.5.9", "--sport", "3333", "--dport", "53", *reply)
            insert("-p", "udp", "-s", FAR, "-d", A, "--sport", "4444", "--dport", "5555")
            # Kept however long the kernel trusts an answer, which it chooses at random: 15 to 45 s.
            mac = site.pods["pod-b"].run("cat", "/sys/class/net/eth0/address").strip()
            site.node.run("ip", "neigh", "replace", B, "lladdr", mac, "dev", "cni0", "nud", "permanent")
            # In the order of a runtime: the plugins, their result, and then what runs in the pod.
            site.node.run("ip", "link", "delete", "pod-b")
            (results / "wherry-pod-b-eth0").unlink()
            await until(lambda: "sport=1111" not in flows(site), "the role knows that the address is released")
            with next_pod(site) as namespace:
                api.remove(pod("b", B))
                api.put(pod("next", B, labels={"app": "next"}))
                write_result(site, "pod-next", namespace, f"{B}/24", uid="next")
                echo(namespace, "next", B)
                await until(lambda: holds(site, f"{B} : goto"), "the next pod is isolated")
                asked = log.read_text().count("-")
                await until(lambda: log.read_text().count("-") > asked + 20, "the old socket is in use")
                assert "next" not in log.read_text()
                listed = flows(site)
                assert "sport=1111" not in listed and "sport=3333" not in listed and "sport=4444" in listed
                api.put(policy("deny", podSelector={"matchLabels": {"app": "next"}}, ingress=[{}]))
                await until(lambda: "next" in log.read_text(), "it answers once it may")

    for name, address in PODS.items():
        write_result(site, name, site.pods[name], f"{address}/24", uid=name.removeprefix("pod-"))
    site.client.run("ip", "address", "add", f"{FAR}/32", "dev", "lo")
    site.node.inside(check)


@pytest.mark.parametrize("direction", ["ingress", "egress"])
def test_a_flow_ends_with_the_pod_of_another_node(site: Site, direction: str) -> None:
    """The next pod with its address may not talk to the isolated one, and the socket of the first is used on."""
    log, pod_a = site.folder / "answers", site.pods["pod-a"]
    friends = {"podSelector": {"matchLabels": {"app": "friend"}}}

    def answers() -> int:
        return log.read_text().count("yes") if log.exists() else 0

    async def check() -> None:
        rule = {"ingress": [{"from": [friends]}]} if direction == "ingress" else {"egress": [{"to": [friends]}]}
        selected = {"podSelector": {"matchLabels": {"app": "a"}}, "policyTypes": [direction.title()]}
        friend = pod("friend", FAR, labels={"app": "friend"}, node="node-2")
        api = cluster_with(policy("friends", **selected, **rule), friend)
        async with running(site.config, api):
            await until(lambda: holds(site, FAR), "policies are in force")
            site.node.run("ip", "route", "replace", "10.244.2.0/24", "via", CLIENT_IP)
            if direction == "ingress":
                echo(pod_a, "yes", A)
                ask(site.client, log, FAR, A)
            else:
                echo(site.client, "yes", FAR)
                ask(pod_a, log, A, FAR)
            await until(answers, "the friend and pod-a talk")
            api.remove(friend)
            api.put(pod("next", FAR, labels={"app": "next"}, node="node-2"))
            await until(lambda: FAR not in flows(site), "the flow is deleted")
            await until(lambda: log.read_text().endswith("-\n"), "what was under way is answered")
            before, lost = answers(), log.read_text().count("-")
            await until(lambda: log.read_text().count("-") > lost + 20, "the old socket is in use")
            assert answers() == before
            # Other labels decide on new connections alone.
            api.put(pod("next", FAR, labels={"app": "friend"}, node="node-2"))
            await until(lambda: answers() > before, "it may talk as a friend")
            api.put(pod("next", FAR, labels={"app": "next"}, node="node-2"))
            await until(lambda: not holds(site, FAR), "it is no friend any more")
            before = answers()
            await until(lambda: answers() > before + 20, "its flow goes on")

    write_result(site, "pod-a", pod_a, f"{A}/24", uid="a")
    site.client.run("ip", "address", "add", f"{FAR}/32", "dev", "lo")
    site.node.inside(check)
