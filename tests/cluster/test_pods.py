"""Start, restart and termination of a pod's containers, as its spec says."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.support.cluster import BUSYBOX, Cluster, eventually
from tests.support.following import Following
from tests.support.kube import condition, events, wait_phase
from tests.support.pods import (
    FOR_EVER,
    apply,
    container,
    execute,
    logs,
    pod,
    status_of,
    wait_running,
    wait_terminated,
)

SHARED: dict[str, Any] = {"volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}
EMPTY: dict[str, Any] = {"volumes": [{"name": "shared", "emptyDir": {}}]}


def reported(cluster: Cluster, ns: str, name: str) -> set[tuple[str, str]]:
    return {(e["reason"], e["message"]) for e in events(cluster, ns, name)}


def test_init_containers_run_one_after_the_other_before_the_rest(shared: Cluster, ns: str) -> None:
    note = "echo {0} begins >> /shared/log; sleep 0.3; echo {0} ends >> /shared/log"
    first, second = (container(note.format(name), name, **SHARED) for name in ("first", "second"))
    sidecar = container(f"echo sidecar begins >> /shared/log; {FOR_EVER}", "sidecar", restartPolicy="Always", **SHARED)
    main = container(f"echo main begins >> /shared/log; {FOR_EVER}", **SHARED)
    apply(shared, ns, pod("ordered", main, initContainers=[first, sidecar, second], **EMPTY))
    wait_running(shared, ns, "ordered")
    lines = execute(shared, ns, "ordered", "cat /shared/log").splitlines()
    assert [line for line in lines if "sidecar" not in line] == [
        "first begins",
        "first ends",
        "second begins",
        "second ends",
        "main begins",
    ]
    assert lines.index("first ends") < lines.index("sidecar begins") < lines.index("main begins")
    status = shared.get("pod", "ordered", "-n", ns)["status"]
    states = {s["name"]: next(iter(s["state"])) for s in status["initContainerStatuses"]}
    assert states == {"first": "terminated", "sidecar": "running", "second": "terminated"}
    assert {s["ready"] for s in status["initContainerStatuses"]} == {True}
    assert [c["type"] for c in status["conditions"] if c["status"] == "True"] == [
        "PodReadyToStartContainers",
        "Initialized",
        "Ready",
        "ContainersReady",
        "PodScheduled",
    ]
    assert re.search(r"^ordered +2/2 +Running", shared.kubectl("get", "pods", "-n", ns).stdout, re.M)


def test_an_init_container_that_fails_holds_the_pod_or_ends_it(shared: Cluster, ns: str) -> None:
    bad = container("exit 5", "bad")
    apply(
        shared,
        ns,
        pod("never", initContainers=[bad], restartPolicy="Never"),
        pod("always", initContainers=[bad]),
    )
    failed = wait_phase(shared, ns, "never", "Failed")
    assert failed["status"]["initContainerStatuses"][0]["state"]["terminated"]["exitCode"] == 5
    assert failed["status"]["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}
    initialized = condition(failed, "Initialized")
    assert (initialized["status"], initialized["reason"]) == ("False", "ContainersNotInitialized")
    assert initialized["message"] == "containers with incomplete status: [bad]"

    def shown() -> bool:
        table = shared.kubectl("get", "pods", "-n", ns).stdout
        assert re.search(r"^never +0/1 +Init:Error +0 ", table, re.M), table
        return bool(re.search(r"^always +0/1 +Init:CrashLoopBackOff +\d", table, re.M))

    eventually(shown, "Init:CrashLoopBackOff")
    assert shared.get("pod", "always", "-n", ns)["status"]["phase"] == "Pending"


def test_restart_policies_decide_what_follows_an_exit(shared: Cluster, ns: str) -> None:
    once = "[ -e /shared/been ] && exit 0; touch /shared/been; exit 1"
    apply(
        shared,
        ns,
        pod("never-good", container("exit 0"), restartPolicy="Never"),
        pod("never-bad", container("exit 3"), restartPolicy="Never"),
        pod("never-mixed", container("exit 0", "good"), container("exit 3", "bad"), restartPolicy="Never"),
        pod("failure-good", container("exit 0"), restartPolicy="OnFailure"),
        pod("failure-once", container(once, **SHARED), restartPolicy="OnFailure", **EMPTY),
        pod("failure-bad", container("exit 3"), restartPolicy="OnFailure"),
        pod("always-good", container("exit 0")),
    )
    for name, phase in (
        ("never-good", "Succeeded"),
        ("never-bad", "Failed"),
        ("never-mixed", "Failed"),
        ("failure-good", "Succeeded"),
        ("failure-once", "Succeeded"),
    ):
        found = wait_phase(shared, ns, name, phase)
        restarts = found["status"]["containerStatuses"][0]["restartCount"]
        assert restarts == (1 if name == "failure-once" else 0), name
        reason = "PodCompleted" if phase == "Succeeded" else "PodFailed"
        assert condition(found, "Ready")["reason"] == reason
    assert status_of(shared, ns, "never-bad")["state"]["terminated"]["reason"] == "Error"
    assert status_of(shared, ns, "never-good")["state"]["terminated"]["reason"] == "Completed"

    def backing_off(name: str, restarts: int = 1) -> bool:
        found = shared.get("pod", name, "-n", ns)
        status, uid = found["status"]["containerStatuses"][0], found["metadata"]["uid"]
        waiting = status["state"].get("waiting", {})
        assert waiting.get("reason") == "CrashLoopBackOff", status
        # Ten seconds after the first restart, twice as long after each that follows.
        assert status["restartCount"] >= restarts
        delay = {1: "10s", 2: "20s", 3: "40s", 4: "1m20s", 5: "2m40s"}[status["restartCount"]]
        assert waiting["message"] == f"back-off {delay} restarting failed container=c pod={name}_{ns}({uid})"
        assert found["status"]["phase"] == "Running"
        message = f"Back-off restarting failed container c in pod {name}_{ns}({uid})"
        assert ("BackOff", message) in reported(shared, ns, name)
        return True

    for name in ("failure-bad", "always-good"):
        eventually(lambda n=name: backing_off(n), f"{name} backs off")  # type: ignore[misc]
    assert status_of(shared, ns, "always-good")["lastState"]["terminated"]["exitCode"] == 0
    eventually(lambda: backing_off("failure-bad", 2), "the next wait is twice as long", 60)

    def shown() -> bool:
        table = shared.kubectl("get", "pods", "-n", ns).stdout
        assert re.search(r"^failure-bad +0/1 +CrashLoopBackOff +\d \(\d+m?\d*s ago\) ", table, re.M), table
        assert re.search(r"^never-good +0/1 +Completed +0 ", table, re.M), table
        assert re.search(r"^never-bad +0/1 +Error +0 ", table, re.M), table
        return True

    eventually(shown, "the table")


def test_hooks_run_after_the_start_and_before_the_stop(shared: Cluster, ns: str) -> None:
    def hook(script: str) -> dict[str, Any]:
        return {"exec": {"command": ["sh", "-c", script]}}

    folder = shared.prefix / f"hooks-{ns}"
    volumes: dict[str, Any] = {
        "volumes": [{"name": "shared", "hostPath": {"path": str(folder), "type": "DirectoryOrCreate"}}]
    }
    both = {
        "postStart": hook("echo started > /shared/start"),
        "preStop": hook("sleep 0.5; echo stopping > /shared/stop"),
    }
    main = "trap 'cat /shared/stop > /shared/seen; exit 0' TERM; while :; do sleep 0.1; done"
    bad = {"postStart": hook("echo no luck; exit 9")}
    apply(
        shared,
        ns,
        pod("hooked", container(main, lifecycle=both, **SHARED), **{**volumes, "terminationGracePeriodSeconds": 10}),
        pod("unlucky", container(lifecycle=bad), restartPolicy="Never"),
    )
    wait_running(shared, ns, "hooked")
    assert (folder / "start").read_text() == "started\n"
    shared.kubectl("delete", "pod", "hooked", "-n", ns)
    assert (folder / "seen").read_text() == "stopping\n", "the hook had ended when SIGTERM came"

    def failed() -> bool:
        found = reported(shared, ns, "unlucky")
        assert any(reason == "FailedPostStartHook" for reason, _ in found), found
        assert ("Killing", "FailedPostStartHook") in found, found
        return True

    eventually(failed, "the failed hook's events")


def test_a_pod_gets_its_grace_and_then_the_end(shared: Cluster, ns: str) -> None:
    apply(
        shared,
        ns,
        pod("stubborn", container("trap 'echo ignored' TERM; while :; do sleep 0.1; done")),
        pod(
            "polite",
            container("trap 'echo bye; exit 3' TERM; while :; do sleep 0.1; done"),
            terminationGracePeriodSeconds=30,
        ),
    )
    wait_running(shared, ns, "stubborn", "polite")

    def ends(text: str) -> dict[str, int] | None:
        found: dict[str, int] = {}
        decoder, rest = json.JSONDecoder(), text.lstrip()
        while rest:
            try:
                obj, end = decoder.raw_decode(rest)
            except json.JSONDecodeError:
                break
            rest = rest[end:].lstrip()
            for each in obj.get("items", [obj]):
                for status in each["status"].get("containerStatuses", ()):
                    if "terminated" in status["state"]:
                        found[each["metadata"]["name"]] = status["state"]["terminated"]["exitCode"]
        return found if len(found) == 2 else None

    with Following(shared, "get", "pods", "-n", ns, "-w", "-o", "json") as watch:
        watch.until(lambda text: '"stubborn"' in text and '"polite"' in text, "the watch shows both")
        shared.kubectl("delete", "pod", "stubborn", "polite", "-n", ns)
        assert watch.until(ends, "both have ended") == {"stubborn": 137, "polite": 3}
    for name in ("stubborn", "polite"):
        eventually(lambda n=name: ("Killing", "Stopping container c") in reported(shared, ns, n), "the event")  # type: ignore[misc]


def test_the_last_words_of_a_container_are_kept(shared: Cluster, ns: str) -> None:
    apply(
        shared,
        ns,
        pod("file", container("echo -n from the file > /dev/termination-log; exit 1"), restartPolicy="Never"),
        pod("own", container("echo -n mine > /tmp/last", terminationMessagePath="/tmp/last"), restartPolicy="Never"),
        pod(
            "words",
            container("echo out; echo err >&2; exit 2", terminationMessagePolicy="FallbackToLogsOnError"),
            restartPolicy="Never",
        ),
        pod(
            "silent",
            container("echo fine", terminationMessagePolicy="FallbackToLogsOnError"),
            restartPolicy="Never",
        ),
    )
    assert wait_terminated(shared, ns, "file")["message"] == "from the file"
    assert wait_terminated(shared, ns, "own")["message"] == "mine"
    assert sorted(wait_terminated(shared, ns, "words")["message"].split()) == ["err", "out"]
    assert "message" not in wait_terminated(shared, ns, "silent")


def test_limits_of_memory_and_time_end_a_pod(shared: Cluster, ns: str) -> None:
    limits = {"limits": {"memory": "32Mi"}}
    hungry = {**container(resources=limits), "command": ["tail", "-c", "190000000", "/dev/zero"]}
    apply(
        shared,
        ns,
        pod("hungry", hungry, restartPolicy="Never"),
        pod("slow", restartPolicy="Never", activeDeadlineSeconds=1),
    )
    end = wait_terminated(shared, ns, "hungry")
    assert (end["reason"], end["exitCode"]) == ("OOMKilled", 137)
    assert wait_phase(shared, ns, "hungry", "Failed")
    slow = wait_phase(shared, ns, "slow", "Failed")
    assert slow["status"]["reason"] == "DeadlineExceeded"
    assert slow["status"]["message"] == "Pod was active on the node longer than the specified deadline"
    eventually(
        lambda: (
            ("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
            in reported(shared, ns, "slow")
        ),
        "the event",
    )


def test_an_ephemeral_container_joins_a_running_pod(shared: Cluster, ns: str) -> None:
    apply(shared, ns, pod("patient"))
    wait_running(shared, ns, "patient")
    before = status_of(shared, ns, "patient")["containerID"]
    shared.kubectl(
        "debug", "patient", "-n", ns, f"--image={BUSYBOX}", "--target=c", "-c", "doctor", "--", "sh", "-c", "ps -o args"
    )

    def ended() -> dict[str, Any] | None:
        state = status_of(shared, ns, "patient", "doctor", "ephemeralContainerStatuses").get("state", {})
        found: dict[str, Any] | None = state.get("terminated")
        return found

    assert eventually(ended, "the ephemeral container's end")["exitCode"] == 0
    assert "sleep 0.2" in logs(shared, ns, "patient", "-c", "doctor"), "it sees the target's processes"
    assert status_of(shared, ns, "patient")["containerID"] == before
