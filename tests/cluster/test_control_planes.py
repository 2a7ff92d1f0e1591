"""A control plane of three: any one of them is lost or hangs, and clients, agents and controllers go on."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator

import pytest

from tests.support import leftovers
from tests.support.cluster import eventually
from tests.support.etcd import Etcd, needs_etcd
from tests.support.history import History
from tests.support.kube import condition, container_ids, ready_pods, web
from tests.support.load import Load
from tests.support.machines import Machine, Machines, control_planes

pytestmark = needs_etcd
ANSWER = r"web-\S+ v1"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Machines, Etcd]]:
    with control_planes(f"wherry-h{os.getpid()}", tmp_path_factory.mktemp("etcd")) as found:
        machines, _ = found
        machines.wait_ready()
        for machine in machines:
            for daemon in ("agent", "netproxy"):
                path = machine.prefix / f"etc/wherry/{daemon}.servers"
                eventually(lambda p=path: p.exists() and len(p.read_text().split()) == 3, f"{path} names all three")  # type: ignore[misc]
        yield found


def holder(by: Machine, lease: str) -> str:
    found = by.kubectl("get", "lease", lease, "-n", "kube-system", "-o", "jsonpath={.spec.holderIdentity}", check=False)
    return found.stdout if found.returncode == 0 else ""


def leader(machines: Machines, by: Machine) -> Machine:
    """Return the machine that runs the controllers."""

    def found() -> Machine | None:
        name = holder(by, "kube-controller-manager")
        leading = [machine for machine in machines if name and f"{name}: became leader" in machine.log("control")]
        return leading[0] if leading else None

    return eventually(found, "somebody leads")


def replaced(by: Machine, before: dict[str, str]) -> None:
    """Wait until others hold the leases."""
    for lease, name in before.items():
        eventually(lambda n=lease, old=name: holder(by, n) not in ("", old), f"another one holds {lease}", 40)  # type: ignore[misc]


def leases(by: Machine, of: Machine) -> dict[str, str]:
    """Return what a machine's server leads -> its name there."""
    held = {name: holder(by, name) for name in ("kube-controller-manager", "kube-scheduler")}
    return {lease: name for lease, name in held.items() if f"{name}: became leader" in of.log("control")}


def scale(by: Machine, replicas: int) -> None:
    eventually(
        lambda: by.kubectl("scale", "deployment", "web", f"--replicas={replicas}", check=False).returncode == 0,
        "the Deployment is scaled",
    )


def settle(by: Machine, replicas: int) -> None:
    """Wait until the pods are as many as they should be, and their ReplicaSet knows."""

    def settled() -> bool:
        pods = by.get("pods", "-l", "app=web")["items"]
        assert len(ready_pods(by, "default", "app=web")) == len(pods) == replicas, [p["metadata"]["name"] for p in pods]
        status = by.get("deployment", "web")["status"]
        return bool(status["replicas"] == status["readyReplicas"] == status["updatedReplicas"] == replicas)

    eventually(settled, f"{replicas} pods", 60)


def deployed(by: Machine) -> None:
    """Have four pods of the Deployment, which the first test made where it ran."""
    if by.kubectl("get", "deployment", "web", check=False).returncode != 0:
        web(by, "default", 4)
    settle(by, 4)


def ready_since(by: Machine) -> dict[str, str]:
    """Return node -> since when it is Ready."""
    found = {node["metadata"]["name"]: condition(node, "Ready") for node in by.get("nodes")["items"]}
    assert {name: ready["status"] for name, ready in found.items()} == dict.fromkeys(found, "True")
    return {name: ready["lastTransitionTime"] for name, ready in found.items()}


def test_a_leader_that_hangs_is_left_and_replaced_and_does_no_harm_when_it_wakes(made: tuple[Machines, Etcd]) -> None:
    machines, _ = made
    web(machines.first, "default", 3)
    hung = leader(machines, machines.first)
    other = next(machine for machine in machines if machine is not hung)
    before, since = leases(other, hung), ready_since(other)
    with History(machines, "app=web").running() as history:
        eventually(lambda: history.progress() > 10, "the writers write")
        frozen = hung.freeze("control")
        try:
            scale(other, 6)
            count = history.progress()
            eventually(lambda: history.progress() > count + 10, "writes go on, those of the hung server's clients too")
            replaced(other, before)
            settle(other, 6)

            def moved() -> bool:
                return all("switching to the API server" in hung.log(daemon) for daemon in ("agent", "netproxy"))

            eventually(moved, "agent and proxy beside the hung server went on to another")
            scale(other, 4)
        finally:
            # From here on, two believe for a moment that they lead.
            hung.thaw(frozen)
        settle(other, 4)
        eventually(lambda: "lost the lease" in hung.log("control"), "the one that hung knows that it leads no more")
        settle(other, 4)
        assert len(history.pods) == 6, "three at first and three more: nobody made a pod that was there already"
    assert ready_since(other) == since, "no node was given up for a moment"


def test_a_member_takes_scheduled_snapshots_and_the_check_before_an_upgrade_asks_all(
    made: tuple[Machines, Etcd],
) -> None:
    machines, _ = made
    first, second, third = machines
    first.wherry("up", "--snapshot-schedule", "* * * * *")
    assert "snapshots:" in first.wherry("status").stdout and "snapshots:" not in second.wherry("status").stdout

    def scheduled() -> list[str]:
        rows = json.loads(first.wherry("snapshot", "list", "-o", "json").stdout)
        return [row["name"] for row in rows if row["keys"] > 100]

    eventually(scheduled, "a scheduled snapshot of etcd", 120)
    assert scheduled()[0].startswith(f"scheduled-{first.node}-")

    def members() -> tuple[str, str]:
        done = first.wherry("upgrade", "--check", "-o", "json", check=False)
        (row,) = [row for row in json.loads(done.stdout) if row["check"] == "members"]
        return row["result"], row["found"]

    assert members()[0] == "ok" and members()[1].startswith("3 with v1.36")
    frozen = third.freeze("control")
    try:
        assert members() == ("warning", f"{third.host.address}:6443: no response within 10 s")
    finally:
        third.thaw(frozen)
    first.wherry("up", "--snapshot-schedule", "off")


STANDSTILL = 60.0
"""Longer than the 50 s after which a node that does not renew its lease is given up (seconds)."""


@pytest.mark.long
def test_a_machine_whose_daemons_stand_still_for_a_minute_goes_on_as_if_nothing_had_been(
    made: tuple[Machines, Etcd],
) -> None:
    machines, _ = made
    deployed(machines.first)
    address = machines.get("service", "web")["spec"]["clusterIP"]
    hung = leader(machines, machines.first)
    other = next(machine for machine in machines if machine is not hung)
    held, containers = leases(other, hung), mine(other)
    assert held and len(containers) == 4
    eventually(lambda: re.fullmatch(ANSWER, hung.http(address)), "the Service answers there")
    with History(machines, "app=web").running() as history, Load(hung, address) as load:
        eventually(lambda: history.progress() > 10, "the writers write")
        frozen, began = hung.freeze("control", "agent", "netproxy", "containerd"), time.monotonic()
        try:
            # Some of the new pods are given to the machine that stands still, and wait there.
            scale(other, 6)
            count = history.progress()
            eventually(lambda: history.progress() > count + 10, "writes go on")
            replaced(other, held)

            def given_up() -> bool:
                return condition(other.get("node", hung.node), "Ready")["status"] == "Unknown"

            eventually(given_up, "the node is not Ready", STANDSTILL + 20)
            assert len(load.answers) > 10, "the Service answers on the machine itself, whose proxy stands still"
            time.sleep(max(0.0, began + STANDSTILL - time.monotonic()))
        finally:
            hung.thaw(frozen)
        machines.wait_ready(hung.node)
        settle(other, 6)
        assert len(history.pods) == 6, "nobody made a pod that was there already"
    assert [answer for answer in load.answers if not re.fullmatch(ANSWER, answer)] == []
    assert mine(other).items() >= containers.items(), "what ran runs on, and was not started again"
    eventually(lambda: not other.get("node", hung.node)["spec"].get("taints"), "the node has no taint")
    eventually(lambda: serves(hung), "its API server serves again")
    seen: set[str] = set()

    def reached() -> bool:
        seen.add(hung.http(address))
        return len(seen - {""}) == 6

    eventually(reached, "its proxy knows the new pods")
    scale(other, 4)
    settle(other, 4)


def mine(by: Machine) -> dict[str, tuple[str, int]]:
    """Return the container IDs and restart counts of the Deployment's pods."""
    return {key: value for key, value in container_ids(by).items() if key.startswith("default/web-")}


def serves(machine: Machine) -> bool:
    return machine.kubectl("get", "--raw", "/readyz", check=False).stdout == "ok"


def test_a_partitioned_member_serves_no_stale_reads_and_its_clients_use_others(made: tuple[Machines, Etcd]) -> None:
    machines, _ = made
    lead = leader(machines, machines.first)
    alone, by = [machine for machine in machines if machine is not lead]
    with History(machines, "app=none").running() as history:
        eventually(lambda: history.progress() > 10, "the writers write")
        for other in (lead, by):
            machines.cut(alone, other)
        try:
            by.kubectl("create", "configmap", "fresh")
            eventually(lambda: not serves(alone), "the server that is alone says that it is not ready")
            requested = alone.kubectl("get", "configmap", "fresh", check=False)
            assert requested.returncode != 0, "it cannot know of it"
            assert "NotFound" not in requested.stderr, requested.stderr
            count = history.progress()
            eventually(lambda: history.progress() > count + 10, "writes go on, those of its clients too", 60)
        finally:
            for other in (lead, by):
                machines.heal(alone, other)
        eventually(lambda: serves(alone), "it serves again", 60)
        assert alone.kubectl("get", "configmap", "fresh", "-o", "name").stdout.strip() == "configmap/fresh"
    machines.wait_ready()


def test_a_machine_of_the_control_plane_without_power_is_replaced_and_comes_back(made: tuple[Machines, Etcd]) -> None:
    machines, etcd = made
    deployed(machines.first)
    lost = leader(machines, machines.first)
    at = machines.all.index(lost)
    others = [machine for machine in machines if machine is not lost]
    by = others[0]
    before, since = leases(by, lost), ready_since(by)
    with History(machines, "app=web").running() as history:
        eventually(lambda: history.progress() > 10, "the writers write")
        lost.power_off()
        etcd.members[at].kill()
        count = history.progress()
        eventually(lambda: history.progress() > count + 10, "writes go on", 60)
        # Of the pods on the lost machine nobody knows yet that they are gone, so these come beside them.
        scale(by, 7)
        replaced(by, before)
        eventually(lambda: by.get("deployment", "web")["status"].get("replicas") == 7, "7 pods are made", 60)
        for machine in others:
            assert ready_since_one(by, machine.node) == since[machine.node], "who lost the server is not lost"
        lost.power_on()
        etcd.members[at].start()
        machines.wait_ready(lost.node, seconds=90)
        settle(by, 7)
        eventually(
            lambda: lost.kubectl("get", "--raw", "/readyz", check=False).stdout == "ok", "its server is back", 60
        )
        assert len(lost.get("pods", "-l", "app=web")["items"]) == 7


def test_a_member_leaves_for_good_and_another_takes_its_place(made: tuple[Machines, Etcd]) -> None:
    machines, _ = made
    first, third = machines[0], machines[2]
    first.kubectl("create", "configmap", "kept", "--from-literal=a=b")
    ours = leftovers.pids(third)
    third.wherry("reset", "--yes")
    leftovers.assert_nothing_left(third, ours)
    eventually(lambda: third.host.address not in servers(first), "the member is out of the Service's endpoints")
    first.kubectl("delete", "node", third.node)

    printed = first.wherry("token", "create", "--control-plane").stdout.split()
    line = printed[printed.index("join") :]
    wrong = [*line[:-1], "ab" * 32]
    refused = third.wherry(*wrong, *third.identity(), check=False)
    assert refused.returncode == 1 and "--certificate-key does not open" in refused.stderr, refused.stderr
    assert leftovers.files(third) == []

    third.wherry(*line, *third.identity())
    machines.wait_ready(third.node)
    eventually(lambda: third.host.address in servers(first), "the new member is in the Service's endpoints")
    assert third.kubectl("get", "configmap", "kept", "-o", "jsonpath={.data.a}").stdout == "b"
    assert third.get("node", third.node)["metadata"]["labels"]["node-role.kubernetes.io/control-plane"] == ""


def servers(by: Machine) -> list[str]:
    """Return the addresses that the Service `kubernetes` leads to."""
    slice_ = by.get("endpointslice", "kubernetes")
    return [address for endpoint in slice_["endpoints"] for address in endpoint["addresses"]]


def ready_since_one(by: Machine, node: str) -> str:
    found = condition(by.get("node", node), "Ready")
    assert found["status"] == "True"
    since: str = found["lastTransitionTime"]
    return since
