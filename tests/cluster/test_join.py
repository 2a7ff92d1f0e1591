"""Machines that joined: their components, leaving, and the state after a rejected join."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kube import pki
from tests.support import leftovers
from tests.support.cluster import BUSYBOX, WEB_IMAGE, eventually
from tests.support.kube import condition, wait_pods
from tests.support.machines import Machine, Machines

ROOT = Path(__file__).resolve().parents[2]


def on_node(machine: Machine, image: str, *command: str) -> str:
    """Return a pod's spec for `kubectl run --overrides`."""
    container = {"name": "c", "image": image, **({"command": list(command)} if command else {})}
    return json.dumps({"spec": {"nodeName": machine.node, "containers": [container]}})


def certificate_of(machine: Machine, file: str) -> tuple[str, str]:
    """Return the subject and issuer of a certificate below the machine's prefix."""
    found = pki.decode_certificate((machine.prefix / "var/lib" / file).read_bytes())
    return found.subject.rfc4514_string(), found.issuer.rfc4514_string()


def test_a_joined_machine_has_identities_of_its_own_and_no_others(three: Machines) -> None:
    second = three[1]
    agent, by = certificate_of(second, "kubelet/pki/kubelet-client-current.pem")
    assert {agent, by} & {
        "CN=system:node:node2,O=system:nodes",
        "O=system:nodes,CN=system:node:node2",
    } and by == "CN=kubernetes"
    assert certificate_of(second, "wherry/proxy/kube-proxy-client-current.pem") == (
        "CN=system:kube-proxy",
        "CN=kubernetes",
    )
    assert certificate_of(second, "kubelet/pki/kubelet-server-current.pem")[1] == "CN=kubernetes"
    secret = three.token.partition(".")[2].encode()
    for path in (p for p in second.prefix.rglob("*") if p.is_file() and p.suffix in (".kubeconfig", ".yaml", ".json")):
        assert secret not in path.read_bytes(), f"the token is left in {path}"
    assert not (second.prefix / "etc/wherry/admin.kubeconfig").exists()
    assert sorted(p.name for p in (second.prefix / "var/lib/wherry/pki").iterdir()) == ["ca.crt"]
    requests = three.get("csr")["items"]
    signers = {
        csr["spec"]["signerName"].partition("/")[2]
        for csr in requests
        if csr["spec"]["username"] == "system:node:node2" or csr["spec"]["username"].startswith("system:bootstrap:")
    }
    assert {"kube-apiserver-client-kubelet", "kube-apiserver-client", "kubelet-serving"} <= signers
    assert all(condition(csr, "Approved") and csr["status"].get("certificate") for csr in requests)


def test_what_runs_on_a_joined_machine_is_reached_through_the_api_server(three: Machines, ns3: str) -> None:
    script = "echo hello from $HOSTNAME; sleep 3600"
    three.kubectl(
        "run", "p", "-n", ns3, f"--image={BUSYBOX}", f"--overrides={on_node(three[1], BUSYBOX, 'sh', '-c', script)}"
    )
    three.kubectl("wait", "-n", ns3, "--for=condition=Ready", "pod/p", "--timeout=120s", timeout=180)
    eventually(lambda: three.kubectl("logs", "-n", ns3, "p").stdout == "hello from p\n", "the log")
    assert three.kubectl("exec", "-n", ns3, "p", "--", "hostname").stdout == "p\n"


def test_a_joined_machine_shows_its_state_stops_and_starts_again(three: Machines, ns3: str) -> None:
    second = three[1]
    shown = second.wherry("status").stdout
    assert "node node2: Ready" in shown and "control " not in shown
    assert f"API server https://{three.first.host.address}:6443: ready" in shown
    three.kubectl("run", "p", "-n", ns3, f"--image={WEB_IMAGE}", f"--overrides={on_node(second, WEB_IMAGE)}")
    three.kubectl("wait", "-n", ns3, "--for=condition=Ready", "pod/p", "--timeout=120s", timeout=180)
    before = three.get("pod", "p", "-n", ns3)["status"]["containerStatuses"][0]["containerID"]
    assert "stopped" in second.wherry("down").stdout
    assert second.wherry("status", check=False).returncode == 1
    assert "node node2" in second.wherry("up", "--max-pods", "99").stdout

    def pods() -> str:
        found: str = three.get("node", "node2")["status"]["capacity"]["pods"]
        return found

    eventually(lambda: pods() == "99", "the option of the second start is in force")
    second.wherry("up", "--max-pods", "110")
    eventually(lambda: pods() == "110", "another option is in force at once")
    assert three.get("pod", "p", "-n", ns3)["status"]["containerStatuses"][0]["containerID"] == before
    done = second.wherry("up", "--node-name", "node9", check=False)
    assert done.stderr.startswith("wherry: this machine is node node2: to give it another name")


@pytest.mark.parametrize(
    "command", [("token", "create"), ("token", "list"), ("kubeconfig",), ("snapshot", "save"), ("snapshot", "list")]
)
def test_commands_that_need_the_control_plane_fail_on_a_worker_with_the_reason(
    three: Machines, command: tuple[str, ...]
) -> None:
    done = three[1].wherry(*command, check=False)
    message = f"wherry: this machine is a worker of the cluster at https://{three.first.host.address}:6443"
    assert done.returncode == 1 and done.stderr.startswith(message), done.stderr


def test_a_worker_is_not_upgraded_before_the_control_plane(three: Machines) -> None:
    shown = three[1].wherry("upgrade", "--check").stdout
    assert "error" not in shown and "ok       nodes" in shown and "snapshot" not in shown
    done = three[1].wherry("upgrade", "--check", "--to", "v1.37.0", check=False)
    text = " ".join(done.stdout.split())  # lines are broken at 80 columns
    assert done.returncode == 1 and "upgrade the control plane first: a node must not be newer" in text
    assert "3 with v1.36" in three.first.wherry("upgrade", "--check", check=False).stdout


def test_a_machine_that_is_a_node_does_not_join_again(three: Machines) -> None:
    for machine, name in ((three.first, "node1"), (three[1], "node2")):
        done = refused(machine, three)
        assert done.stderr.startswith(f"wherry: this machine already is node {name} of the cluster at https://")
        assert "`wherry reset` makes it free to join" in done.stderr
        assert three.node_ready(name)


def refused(machine: Machine, three: Machines, **changes: str) -> subprocess.CompletedProcess[str]:
    given = {
        "server": f"https://{three.first.host.address}:6443",
        "token": three.token,
        "pin": three.ca_hash,
        "name": machine.node,
        **changes,
    }
    options = ["--token", given["token"], "--discovery-token-ca-cert-hash", given["pin"], *machine.identity()]
    options[options.index("--node-name") + 1] = given["name"]
    done = machine.wherry("join", given["server"], *options, check=False)
    assert done.returncode == (2 if changes.get("token") == "ABC" else 1), done.stdout  # 2: the command line is wrong
    return done


def interrupt_join(machine: Machine, three: Machines) -> None:
    """Press Ctrl-C while the daemons are being started; again where it came too late."""
    for _ in range(5):
        status, message = _interrupted(machine, three)
        # It may have got as far as to be a node.
        if status == 0:
            machine.wherry("reset", "--yes")
        three.kubectl("delete", "node", machine.node, "--ignore-not-found")
        if status != 0:
            break
    assert status == 130 and "removing the installation again" in message, message


def _interrupted(machine: Machine, three: Machines) -> tuple[int, str]:
    options = ["--token", three.token, "--discovery-token-ca-cert-hash", three.ca_hash, *machine.identity()]
    argv = ("join", f"https://{three.first.host.address}:6443", "--prefix", str(machine.prefix), *options)
    # Tests that run in the background may have been set to ignore Ctrl-C, and so would this.
    begin = ("env", "--default-signal=INT", f"PYTHONPATH={ROOT}", sys.executable)
    running = machine.host.popen(*begin, "-m", "wherry.main", *argv)
    try:
        plan = machine.layout.run / "daemons.json"
        eventually(plan.exists, "the daemons are being started", every=0.01)
        running.send_signal(signal.SIGINT)
        message, _ = running.communicate(timeout=120)
    finally:
        running.kill()
    return running.returncode, message


def test_a_node_is_drained_deleted_reset_refused_and_joins_again_under_its_name(three: Machines, ns3: str) -> None:
    first, second = three.first, three[1]
    # Long enough to be signed, and over when it is wanted below.
    short = first.wherry("token", "create", "--ttl", "15s").stdout.strip()
    three.kubectl("create", "deployment", "web", f"--image={WEB_IMAGE}", "--replicas=3", "-n", ns3)
    wait_pods(first, ns3, "app=web", 3)
    assert "cordoned" in three.kubectl("cordon", "node2").stdout
    assert three.get("node", "node2")["spec"]["unschedulable"] is True
    assert "uncordoned" in three.kubectl("uncordon", "node2").stdout
    argv = ("drain", "node2", "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=120s")
    assert "node/node2 drained" in three.kubectl(*argv, timeout=180).stdout
    pods = wait_pods(first, ns3, "app=web", 3)
    assert "node2" not in {pod["spec"]["nodeName"] for pod in pods}
    three.kubectl("delete", "node", "node2")
    ours = leftovers.pids(second)
    second.wherry("reset", "--yes")
    leftovers.assert_nothing_left(second, ours)
    assert "there is no cluster" in second.wherry("status", check=False).stderr

    eventually(lambda: short not in first.wherry("token", "list").stdout, "an expired token is deleted")
    for changes, message in (
        ({"token": short}, f"the cluster does not know the token {short[:6]}, or it has expired"),
        ({"token": three.token[:-1] + ("0" if three.token[-1] != "0" else "1")}, "the token's second half is wrong"),
        ({"token": "ABC"}, "--token: a token is 6 letters or digits, a dot and 16"),
        ({"pin": "sha256:" + "ab" * 32}, f"the cluster's CA has the hash {three.ca_hash}, not the one given"),
        ({"server": f"https://{first.host.address}:6444"}, "check the address, and that the server runs"),
        ({"name": "node3"}, f"there is a node node3 ({three[2].host.address}) already, and it is alive"),
    ):
        done = refused(second, three, **changes)
        errors = [line for line in done.stderr.splitlines() if line.startswith("wherry: ")]
        assert len(errors) == 1 and message in errors[0], done.stderr
        assert leftovers.files(second) == []
    interrupt_join(second, three)
    leftovers.assert_nothing_left(second)
    assert "node2" not in [node["metadata"]["name"] for node in three.get("nodes")["items"]]

    second.join(first, three.token, three.ca_hash)
    three.wait_ready("node2")
    second.load_usual()
    three.kubectl("run", "again", "-n", ns3, f"--image={WEB_IMAGE}", f"--overrides={on_node(second, WEB_IMAGE)}")
    three.kubectl("wait", "-n", ns3, "--for=condition=Ready", "pod/again", "--timeout=120s", timeout=180)


def test_tokens_are_made_listed_and_deleted(three: Machines) -> None:
    first = three.first
    made = first.wherry("token", "create", "--description", "for a test").stdout.strip()
    assert re.fullmatch(r"[a-z0-9]{6}\.[a-z0-9]{16}", made)
    line = first.wherry("token", "create", "--print-join-command").stdout
    assert re.fullmatch(
        r"wherry join https://\S+:6443 --token \S+ --discovery-token-ca-cert-hash sha256:[0-9a-f]{64}\n", line
    )
    shown = first.wherry("token", "list", "-o", "wide").stdout
    assert re.search(rf"{re.escape(made)} +23 h 59 min +\S+ +authentication,signing +for a test", shown), shown
    assert first.wherry("token", "delete", made).stdout == f'bootstrap token "{made[:6]}" deleted\n'
    assert made not in first.wherry("token", "list").stdout
    refused_ = first.wherry("token", "create", "--control-plane", check=False)
    assert "`wherry store migrate" in refused_.stderr and refused_.returncode == 1
