"""Upgrade and downgrade of a cluster of two machines between an older version and this one, as docs/upgrade.md says.

Pods, Services and objects of the older version stay as they are, and each pair of versions that the skew policy allows works.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import shop, stored_objects
from tests.support.cluster import Cluster, eventually
from tests.support.history import History
from tests.support.kube import web
from tests.support.load import Load
from tests.support.machines import Machines, bare_machines, credentials
from tests.support.older_version import COMMIT, ROOT, commits, downgrade, head, install_on, needs_history, upgrade
from tests.support.pods import execute

ENCRYPTION = """
apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - aesgcm: {keys: [{name: key1, secret: AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=}]}
"""
pytestmark = [pytest.mark.long, pytest.mark.timeout(3600), needs_history()]


@pytest.fixture
def made(older: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    """Two machines with the older version."""
    with bare_machines(f"wherry-u{os.getpid()}", (0, 0)) as found:
        install_on(found, older, tmp_path_factory.mktemp("installed"))
        configuration = found.first.prefix / "etc/wherry"
        configuration.mkdir(parents=True)
        (configuration / "encryption.yaml").write_text(ENCRYPTION)
        (configuration / "encryption.yaml").chmod(0o600)
        found[1].join(found.first, *credentials(found.first.up()))
        for machine in found:
            machine.load_usual()
        found.wait_ready()
        yield found


def processes(machines: Machines) -> dict[str, str]:
    """Return "node container ID" -> process ID and start of the container's first process, as the kernel has them."""
    found = {}
    for machine in machines:
        for line in machine.ctr("tasks", "list").splitlines()[1:]:
            container, pid, state = line.split()
            if state == "RUNNING":
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a Job's may end between the two
                    started = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
                    found[f"{machine.node} {container}"] = f"{pid} {started}"
    return found


def permanent(machines: Machines) -> dict[str, str]:
    """Return the processes of containers of the shop that no Job owns."""
    pods = machines.get("pods", "-n", shop.NS)["items"]
    kept = [
        f"{pod['spec']['nodeName']} {status['containerID'].removeprefix('containerd://')}"
        for pod in pods
        if "job-name" not in pod["metadata"].get("labels", {})
        for status in pod["status"]["containerStatuses"]
    ]
    every = processes(machines)
    return {key: every[key] for key in kept}


def check(machines: Machines, stage: str) -> None:
    """Create, use, change and delete objects on every node."""
    first = machines.first
    jobs = {job["metadata"]["name"] for job in machines.get("jobs", "-n", shop.NS)["items"]}
    address = web(first, shop.NS, 4, name=stage)
    pods = machines.get("pods", "-n", shop.NS, "-l", f"app={stage}")["items"]
    assert {pod["spec"]["nodeName"] for pod in pods} == {machine.node for machine in machines}
    names = {pod["metadata"]["name"] for pod in pods}
    for machine in machines:
        seen: set[str] = set()

        def all_answer(by: Cluster = machine, seen: set[str] = seen) -> bool:
            seen.add(by.http(address).split(" ")[0])
            return seen - {""} == names

        eventually(all_answer, f"{machine.node} reaches all pods of a new Service")
        name = next(pod["metadata"]["name"] for pod in pods if pod["spec"]["nodeName"] == machine.node)
        assert name in execute(first, shop.NS, name, "hostname")
        assert first.kubectl("logs", name, "-n", shop.NS).stdout.strip()
    machines.kubectl("delete", "deployment,service", stage, "-n", shop.NS)
    eventually(lambda: not machines.get("pods", "-n", shop.NS, "-l", f"app={stage}")["items"], "its pods are gone")
    for machine in machines:
        eventually(lambda by=machine: not by.http(address, timeout=1), f"{machine.node} has no rules for it")  # type: ignore[misc]

    assert shop.reaches(first, "friend") and not shop.reaches(first, "stranger")
    assert [execute(first, shop.NS, f"db-{n}", "cat /data/written") for n in range(2)] == ["db-0\n", "db-1\n"]
    for name in ("web", "ports", "public"):
        for machine in machines:
            assert re.fullmatch(r"(web|pinned)-\S+ v1", machine.http(shop.address(first, name))), name
    read = machines.kubectl("get", "secret", "password", "-n", shop.NS, "-o", "jsonpath={.data.word}").stdout
    assert machines.get("secret", "password", "-n", shop.NS)["data"]["word"] == read != ""
    patch = json.dumps({"metadata": {"annotations": {"stage": stage}}})
    machines.kubectl("patch", f"orders.{shop.GROUP}", "order-0", "-n", shop.NS, "--type=merge", "-p", patch)
    wrong = json.dumps({"spec": {"number": 100}})
    done = machines.kubectl(
        "patch", f"orders.{shop.GROUP}", "order-0", "-n", shop.NS, "--type=merge", "-p", wrong, check=False
    )
    assert done.returncode == 1 and "failed rule: self < 100" in done.stderr, done.stderr

    def next_job() -> bool:
        return bool({job["metadata"]["name"] for job in machines.get("jobs", "-n", shop.NS)["items"]} - jobs)

    eventually(next_job, "the CronJob's next Job", 90)


def test_pods_services_and_objects_outlive_an_upgrade_and_the_downgrade(made: Machines, older: Path) -> None:
    first, second = made
    now = head(ROOT)
    shop.create(first, pinned=second.node)
    containers, objects = permanent(made), stored_objects.read(first)
    assert len(containers) >= 4 + 1 + 2 + 2 + 2
    assert commits(made) == [COMMIT] * 3
    database = b"".join(path.read_bytes() for path in (first.prefix / "var/lib/wherry").rglob("*.db*"))
    assert b"order-0" in database and shop.SECRET.encode() not in database

    def same(stage: str) -> None:
        made.wait_ready()
        check(made, stage)
        assert permanent(made).items() >= containers.items(), f"{stage}: containers were started again"
        changed = stored_objects.differences(objects, stored_objects.read(first))
        assert changed == [], "\n".join([stage, *changed])

    with (
        History([first], "app=web", seconds=3000).running() as history,
        Load(first, shop.address(first, "web"), pause=0.1) as inside,
        Load(first, shop.address(first, "guarded"), pause=0.1) as pinned,
        Load(second, shop.address(first, "public"), pause=0.1) as public,
    ):
        eventually(lambda: history.progress() > 10, "the writers write")
        first.wherry("snapshot", "save")
        for stage, replace, expected in (
            ("mixed", lambda: upgrade(first), [now, now, COMMIT]),
            ("new", lambda: upgrade(second), [now, now, now]),
            ("back", lambda: downgrade(second, older), [now, now, COMMIT]),
            ("old", lambda: downgrade(first, older), [COMMIT] * 3),
        ):
            replace()
            assert commits(made) == expected
            same(stage)
            count, answered = history.progress(), [len(load.answers) for load in (inside, pinned, public)]
            eventually(lambda c=count: history.progress() > c + 10, "writes go on")  # type: ignore[misc]
            eventually(
                lambda a=answered: all(
                    len(load.answers) > n for load, n in zip((inside, pinned, public), a, strict=True)
                ),  # type: ignore[misc]
                "clients go on",
            )
    for load in (inside, pinned, public):
        assert [answer for answer in load.answers if not re.fullmatch(r"(web|pinned)-\S+ v1", answer)] == []
