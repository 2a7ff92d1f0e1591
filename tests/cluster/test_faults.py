"""Daemons that die, stop and start again under a Deployment that serves: no client and no container may notice."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator

import pytest

from tests.support.cluster import BUSYBOX, NODE, WEB_IMAGE, Cluster, eventually
from tests.support.kube import condition, container_ids, ready_pods, wait_phase, web
from tests.support.load import Load
from tests.support.raw import Raw

DAEMONS = ("control", "agent", "netproxy", "containerd")
NS = "faults"
ANSWER = r"web-\S+ v1"


@pytest.fixture(scope="module")
def address(shared: Cluster) -> Iterator[str]:
    """Two pods behind a Service; its ClusterIP."""
    shared.kubectl("create", "namespace", NS)
    eventually(
        lambda: shared.kubectl("get", "serviceaccount", "default", "-n", NS, check=False).returncode == 0,
        "the default service account",
    )
    yield web(shared, NS, 2)
    shared.kubectl("delete", "namespace", NS, "--wait=false", check=False)


def mine(cluster: Cluster) -> dict[str, tuple[str, int]]:
    """Container IDs and restart counts of the pods that serve."""
    found = container_ids(cluster)
    return {key: value for key, value in found.items() if key.startswith(f"{NS}/web-")}


def works(cluster: Cluster, name: str) -> None:
    """Show that every part does its work: a new Deployment is scheduled, started and reached through a new Service."""

    def served() -> bool:
        return cluster.kubectl("get", "--raw", "/readyz", check=False).stdout == "ok"

    eventually(served, "the API server is ready")
    fresh = web(cluster, NS, 1, name)
    eventually(lambda: re.fullmatch(rf"{name}-\S+ v1", cluster.http(fresh)), "the new Service answers")
    cluster.kubectl("delete", "deployment,service", name, "-n", NS, "--wait=false")


def node_is_ready(cluster: Cluster) -> bool:
    return condition(cluster.get("node", NODE), "Ready").get("status") == "True"


def kill_with(cluster: Cluster, number: int, *daemons: str) -> None:
    before = {daemon: cluster.pid(daemon) for daemon in daemons}
    for pid in before.values():
        os.kill(pid, number)
    for daemon, pid in before.items():
        eventually(lambda name=daemon, old=pid: started(cluster, name) not in (0, old), daemon)  # type: ignore[misc]


def started(cluster: Cluster, daemon: str) -> int:
    """Return a daemon's process ID, 0 while there is none."""
    with contextlib.suppress(FileNotFoundError, ValueError):
        return cluster.pid(daemon)
    return 0


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "terminated"])
@pytest.mark.parametrize("daemon", DAEMONS)
def test_nobody_notices_the_end_of_a_daemon(shared: Cluster, address: str, daemon: str, number: signal.Signals) -> None:
    before = mine(shared)
    assert len(before) == 2, before
    with Load(shared, address) as load:
        kill_with(shared, number, daemon)
        works(shared, f"after-{daemon}-{number.name.lower()}")
    assert [answer for answer in load.answers if not re.fullmatch(ANSWER, answer)] == []
    assert len(load.answers) > 20
    assert mine(shared) == before
    assert len(ready_pods(shared, NS, "app=web")) == 2
    assert node_is_ready(shared)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "terminated"])
def test_nobody_notices_the_end_of_all_daemons_at_once(shared: Cluster, address: str, number: signal.Signals) -> None:
    before = mine(shared)
    transitions = {p["metadata"]["name"]: condition(p, "Ready") for p in ready_pods(shared, NS, "app=web")}
    with Load(shared, address) as load:
        kill_with(shared, number, *DAEMONS)
        works(shared, f"after-all-{number.name.lower()}")
    assert [answer for answer in load.answers if not re.fullmatch(ANSWER, answer)] == []
    assert mine(shared) == before
    after = {p["metadata"]["name"]: condition(p, "Ready") for p in ready_pods(shared, NS, "app=web")}
    assert after == transitions, "the pods were Ready the whole time, so the condition says the same moment"


@pytest.mark.long
@pytest.mark.parametrize("daemon", DAEMONS)
def test_no_container_restarts_for_a_daemon_that_stands_still_for_a_minute(
    shared: Cluster, address: str, daemon: str
) -> None:
    before, pid = mine(shared), shared.pid(daemon)
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(60)
        # A node whose agent is silent is not ready, and its pods are no endpoints of Services then, as with upstream.
        assert daemon == "agent" or re.fullmatch(ANSWER, shared.http(address))
    finally:
        os.kill(pid, signal.SIGCONT)
    works(shared, f"after-{daemon}-stood-still")
    assert shared.pid(daemon) == pid, "nobody ended it"
    assert mine(shared) == before
    eventually(lambda: len(ready_pods(shared, NS, "app=web")) == 2, "the pods are ready")
    eventually(lambda: node_is_ready(shared), "the node is ready")
    eventually(lambda: re.fullmatch(ANSWER, shared.http(address)), "the Service answers")


def test_what_happens_while_the_agent_is_away_is_done_after(shared: Cluster, address: str) -> None:
    del address
    for name in ("doomed", "dies"):
        shared.kubectl("run", name, f"--image={WEB_IMAGE}", "-n", NS)
    for name in ("doomed", "dies"):
        wait_phase(shared, NS, name, "Running")
    victim = shared.get("pod", "dies", "-n", NS)["status"]["containerStatuses"][0]["containerID"]
    agent = shared.pid("agent")
    os.kill(agent, signal.SIGSTOP)
    try:
        shared.kubectl("delete", "pod", "doomed", "-n", NS, "--wait=false", "--grace-period=1")
        shared.kubectl("run", "fresh", f"--image={WEB_IMAGE}", "-n", NS)
        shared.ctr("tasks", "kill", "-s", "SIGKILL", victim.removeprefix("containerd://"))
        assert shared.get("pod", "doomed", "-n", NS)["metadata"]["deletionGracePeriodSeconds"] == 1
        os.kill(agent, signal.SIGKILL)
    finally:
        # Killed, it may be gone before the file with its process ID is removed, or names the next one.
        with contextlib.suppress(ProcessLookupError, FileNotFoundError, ValueError):
            if shared.pid("agent") == agent:
                os.kill(agent, signal.SIGCONT)
    eventually(lambda: shared.kubectl("get", "pod", "doomed", "-n", NS, check=False).returncode, "doomed is gone")
    wait_phase(shared, NS, "fresh", "Running")

    def started_again() -> bool:
        status = shared.get("pod", "dies", "-n", NS)["status"]["containerStatuses"][0]
        assert status["restartCount"] == 1, status
        assert status["lastState"]["terminated"]["exitCode"] == 137
        assert status["lastState"]["terminated"]["containerID"] == victim
        return "running" in status["state"]

    eventually(started_again, "the container that died was started again, once")


def test_a_node_runs_by_itself_while_the_server_is_away(shared: Cluster, address: str) -> None:
    shared.kubectl("run", "alone", f"--image={BUSYBOX}", "-n", NS, "--", "sh", "-c", "sleep 3; exit 4")
    wait_phase(shared, NS, "alone", "Running")
    before = mine(shared)
    control = shared.pid("control")
    os.kill(control, signal.SIGSTOP)
    try:

        def ran_again() -> bool:
            listed = shared.ctr("containers", "list", "-q", 'labels."io.kubernetes.pod.name"==alone').split()
            return len(listed) >= 3

        with Load(shared, address) as load:
            eventually(ran_again, "the sandbox and two runs of the container")
        assert [answer for answer in load.answers if not re.fullmatch(ANSWER, answer)] == []
    finally:
        os.kill(control, signal.SIGCONT)

    def is_reported() -> bool:
        status = shared.get("pod", "alone", "-n", NS)["status"]["containerStatuses"][0]
        assert status["restartCount"] >= 1, status
        return True

    eventually(is_reported, "the server hears of the restart")
    assert mine(shared) == before
    shared.kubectl("delete", "pod", "alone", "-n", NS, "--wait=false", "--grace-period=0", "--force")


def test_a_watch_goes_on_where_it_was_after_the_server_died(shared: Cluster, ns: str) -> None:
    raw, path = Raw(shared), f"/api/v1/namespaces/{ns}/configmaps"
    begin = raw.get(path).json["metadata"]["resourceVersion"]
    shared.kubectl("create", "configmap", "before", "-n", ns)
    shared.kubectl("label", "configmap", "before", "a=b", "-n", ns)
    shared.kill("control")

    def created() -> bool:
        return shared.kubectl("create", "configmap", "after", "-n", ns, check=False).returncode == 0

    eventually(created, "the server takes writes again")
    shared.kubectl("delete", "configmap", "before", "-n", ns)
    query = f"{path}?watch=1&resourceVersion={begin}&timeoutSeconds=2&fieldSelector=metadata.name!=kube-root-ca.crt"
    lines = [line for line in raw.get(query).text.splitlines() if line]
    seen = re.findall(r'"type":"(\w+)".*?"name":"(\w+)"', "\n".join(lines))
    assert seen == [("ADDED", "before"), ("MODIFIED", "before"), ("ADDED", "after"), ("DELETED", "before")]
    versions = [int(re.search(r'"resourceVersion":"(\d+)"', line)[1]) for line in lines]  # type: ignore[index]
    assert versions == sorted(set(versions))
    assert versions[0] > int(begin)


def test_a_status_that_was_written_over_is_put_right(shared: Cluster, address: str) -> None:
    """The node controller does this to a node that it does not hear of; afterwards the node must serve again."""
    name = ready_pods(shared, NS, "app=web")[0]["metadata"]["name"]
    unready = '{"status":{"conditions":[{"type":"Ready","status":"%s","reason":"NodeStatusUnknown"}]}}'
    shared.kubectl("patch", "pod", name, "-n", NS, "--subresource=status", "-p", unready % "False")
    eventually(lambda: len(ready_pods(shared, NS, "app=web")) == 2, "the pod is Ready again")
    shared.kubectl("patch", "node", NODE, "--subresource=status", "-p", unready % "Unknown")
    eventually(lambda: node_is_ready(shared), "the node is Ready again")
    eventually(
        lambda: not [t for t in shared.get("node", NODE)["spec"].get("taints", []) if "node.kubernetes" in t["key"]],
        "its taints are gone",
    )
    eventually(lambda: len({shared.http(address) for _ in range(10)}) == 2, "both pods answer")


def test_every_connection_to_the_server_is_probed(shared: Cluster) -> None:
    """A server's machine that is switched off sends no farewell: only keep-alive probes end the watches on it."""

    def probed() -> bool:
        shown = shared.host.run("ss", "-tnpoH", "state", "established", "dport = :6443").stdout.splitlines()
        for daemon in ("agent", "netproxy"):
            mine = [line for line in shown if f"pid={shared.pid(daemon)}," in line]
            assert mine, daemon
            # Where something was just sent, the timer that is shown is the one for its acknowledgement.
            assert [line for line in mine if "timer:(" not in line] == []
        return True

    eventually(probed, "each connection has a timer")


def test_somebody_elses_rules_are_left_alone(shared: Cluster, address: str) -> None:
    del address
    rule = (
        "-t",
        "nat",
        "-{}",
        "PREROUTING",
        "-p",
        "tcp",
        "--dport",
        "1",
        "-m",
        "comment",
        "--comment",
        "foreign",
        "-j",
        "RETURN",
    )

    def iptables(action: str, check: bool = True) -> int:
        return shared.host.run("iptables", "-w", *(w.format(action) for w in rule), check=check).returncode

    iptables("A")
    try:
        shared.kill("netproxy")
        web(shared, NS, 1, "beside")
        shared.kubectl("delete", "deployment,service", "beside", "-n", NS, "--wait=false")
        assert iptables("C", check=False) == 0
    finally:
        iptables("D")


def test_acknowledged_writes_survive_the_servers_death(shared: Cluster, ns: str) -> None:
    raw = Raw(shared)
    body = '{\\"metadata\\":{\\"name\\":\\"w$i\\"},\\"data\\":{\\"n\\":\\"$i\\"}}'
    curl = " ".join(f"'{word}'" for word in raw.argv("-o", "/dev/null", "--max-time", "5", "-w", "%{http_code}"))
    url = f"{raw.server}/api/v1/namespaces/{ns}/configmaps"
    script = (
        f'for i in $(seq 200); do code=; while [ "$code" != 201 ] && [ "$code" != 409 ]; do '
        f"code=$({curl} -H 'Content-Type: application/json' --data-binary \"{body}\" '{url}' 2>/dev/null); "
        'echo "w$i $code"; [ "$code" = 201 ] || sleep 0.05; done; done'
    )
    writer = shared.host.popen("sh", "-c", script)
    assert writer.stdout is not None
    results: list[tuple[str, str]] = []
    for line in writer.stdout:
        name, code = line.split()
        results.append((name, code))
        if (name, code) in (("w20", "201"), ("w90", "201"), ("w160", "201")):
            shared.kill("control")
    writer.wait()
    # 409 is the answer to a second try of a write that the server did and could not acknowledge any more.
    assert {code for _, code in results} <= {"201", "000", "409", "429", "503"}, results
    assert "000" in {code for _, code in results}, "the server was away in between"
    acknowledged = [name for name, code in results if code in ("201", "409")]
    assert acknowledged == [f"w{i}" for i in range(1, 201)]
    eventually(lambda: shared.kubectl("get", "--raw", "/readyz", check=False).stdout == "ok", "the server is ready")
    kept = {item["metadata"]["name"]: item for item in shared.get("configmaps", "-n", ns)["items"]}
    assert {name: kept[name]["data"] for name in acknowledged} == {f"w{i}": {"n": str(i)} for i in range(1, 201)}
    versions = [int(kept[name]["metadata"]["resourceVersion"]) for name in acknowledged]
    assert versions == sorted(set(versions)), "revisions rise and are never used twice"


@pytest.mark.parametrize(
    ("table", "chain"), [("nat", ""), ("nat", "KUBE-SVC"), ("nat", "KUBE-SERVICES"), ("filter", "")]
)
def test_flushed_rules_are_repaired(shared: Cluster, address: str, table: str, chain: str) -> None:
    def rules() -> set[str]:
        """Rules of this Service or of none; other tests' Services come and go, and host ports are the CNI plugin's."""
        lines = shared.host.run("iptables", "-w", "-t", table, "-S").stdout.splitlines()
        ours = (line for line in lines if "CNI-HOSTPORT" not in line)
        return {line for line in ours if f"{NS}/web" in line or "--comment" not in line}

    before = rules()
    assert before
    if chain == "KUBE-SVC":
        chain = re.search(rf"-d {address}/32 .*-j (KUBE-SVC-\w+)", "\n".join(before))[1]  # type: ignore[index]
    shared.host.run("iptables", "-w", "-t", table, "-F", *filter(None, [chain]))

    def repaired() -> bool:
        assert before <= rules(), before - rules()
        return True

    eventually(repaired, "every rule is back")
    assert re.fullmatch(ANSWER, shared.http(address))
