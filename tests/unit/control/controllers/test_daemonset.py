"""DaemonSets: nodes that get a pod, and rolling updates over the nodes."""

from __future__ import annotations

import msgspec
import pytest

from control.controllers.daemonset.failing import Failures
from control.controllers.daemonset.placement import Placement, pod_spec
from control.controllers.daemonset.plan import node_of, plan
from control.controllers.history import HASH_LABEL
from kube.api import apps_v1, core_v1, meta_v1

from .makers import NOW, pod, template


def node(name: str, *taints: core_v1.Taint, **labels: str) -> core_v1.Node:
    return core_v1.Node(
        metadata=meta_v1.ObjectMeta(name=name, labels=labels), spec=core_v1.NodeSpec(taints=list(taints))
    )


def daemon(surge: int | str = 0, unavailable: int | str = 1, kind: str = "RollingUpdate") -> apps_v1.DaemonSet:
    rolling = apps_v1.RollingUpdateDaemonSet(max_surge=surge, max_unavailable=unavailable)
    return apps_v1.DaemonSet(
        metadata=meta_v1.ObjectMeta(name="d", namespace="default", uid="uid-d"),
        spec=apps_v1.DaemonSetSpec(
            template=template(),
            update_strategy=apps_v1.DaemonSetUpdateStrategy(type=kind, rolling_update=rolling),
        ),
    )


def on(where: str, revision: str = "new", **more) -> core_v1.Pod:
    found = pod(f"{where}-{revision}", node=where, **more)
    found.metadata.labels = {HASH_LABEL: revision}
    return found


def nodes(*names: str) -> dict[str, core_v1.Node]:
    return {name: node(name) for name in names}


def verdicts(desired: apps_v1.DaemonSet, known) -> dict[str, tuple[bool, bool]]:
    placement = Placement(desired.spec.template.spec)
    return {name: placement.belongs(where) for name, where in known.items()}


def look(desired: apps_v1.DaemonSet, pods, known):
    return plan(desired, pods, verdicts(desired, known), "new", settled=True, now=NOW)


def names(pods) -> list[str]:
    return sorted(p.metadata.name for p in pods)


def test_every_node_without_a_pod_gets_one_and_the_status_counts_them() -> None:
    todo = look(daemon(), [on("a")], nodes("a", "b", "c"))
    assert todo.create == ["b", "c"] and todo.delete == []
    status = todo.status
    assert (status.desired_number_scheduled, status.current_number_scheduled, status.number_ready) == (3, 1, 1)
    assert (status.number_available, status.number_unavailable, status.updated_number_scheduled) == (1, 2, 1)


def test_a_daemon_pod_names_its_node_and_tolerates_what_ails_it() -> None:
    spec = pod_spec(template().spec, "a")
    assert {(t.key, t.effect) for t in spec.tolerations} == {
        ("node.kubernetes.io/not-ready", "NoExecute"),
        ("node.kubernetes.io/unreachable", "NoExecute"),
        ("node.kubernetes.io/disk-pressure", "NoSchedule"),
        ("node.kubernetes.io/memory-pressure", "NoSchedule"),
        ("node.kubernetes.io/pid-pressure", "NoSchedule"),
        ("node.kubernetes.io/unschedulable", "NoSchedule"),
    }
    assert node_of(core_v1.Pod(spec=spec)) == "a"
    hosted = pod_spec(msgspec.structs.replace(template().spec, host_network=True), "a")
    assert "node.kubernetes.io/network-unavailable" in {t.key for t in hosted.tolerations}


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (node("a", role="x"), (True, True)),
        (node("a"), (False, False)),
        (node("a", core_v1.Taint(key="t", effect="NoSchedule"), role="x"), (False, True)),
        (node("a", core_v1.Taint(key="t", effect="NoExecute"), role="x"), (False, False)),
        (node("a", core_v1.Taint(key="node.kubernetes.io/unreachable", effect="NoExecute"), role="x"), (True, True)),
        (node("a", core_v1.Taint(key="t", effect="PreferNoSchedule"), role="x"), (True, True)),
    ],
)
def test_selector_and_taints_decide_who_gets_and_who_keeps_a_pod(where, expected) -> None:
    assert Placement(msgspec.structs.replace(template().spec, node_selector={"role": "x"})).belongs(where) == expected


def test_pods_on_nodes_that_should_have_none_and_doubles_are_deleted() -> None:
    desired = daemon()
    desired.spec.template.spec.node_selector = {"role": "x"}
    known = {"a": node("a", role="x"), "b": node("b")}
    double = on("a", age=10)
    double.metadata.name = "double"
    todo = look(desired, [on("a"), double, on("b")], known)
    assert names(todo.delete) == ["b-new", "double"] and todo.status.number_misscheduled == 1


def test_a_failed_pod_is_killed_first_and_replaced_when_it_is_gone() -> None:
    todo = look(daemon(), [on("a", phase="Failed")], nodes("a"))
    assert names(todo.delete) == ["a-new"] and todo.create == [] and todo.failed[0][1] == "a"
    assert look(daemon(), [], nodes("a")).create == ["a"]


def test_pods_that_fail_on_a_node_again_and_again_are_replaced_later_and_later() -> None:
    known, now = Failures(), 0.0
    waits = []
    for _ in range(13):
        now += known.wait("a", now)
        known.note("a", now)
        waits.append(known.wait("a", now))
    assert waits[:5] == [1, 2, 4, 8, 16] and waits[-3:] == [900, 900, 900]
    assert known.wait("b", now) == 0
    both = [on("a", phase="Failed"), on("b", phase="Failed")]
    todo = plan(
        daemon(),
        both,
        verdicts(daemon(), nodes("a", "b")),
        "new",
        settled=True,
        now=NOW,
        wait=lambda name: known.wait(name, now),
    )
    assert names(todo.delete) == ["b-new"] and todo.create == [] and todo.again == 900
    known.note("a", now + 1801)
    assert known.wait("a", now + 1801) == 1
    assert known.at(2).wait("a", now + 1801) == 0


def test_a_pod_that_ended_well_is_replaced_at_once() -> None:
    todo = plan(
        daemon(),
        [on("a", phase="Succeeded")],
        verdicts(daemon(), nodes("a")),
        "new",
        settled=True,
        now=NOW,
        wait=lambda name: 60.0,
    )
    assert names(todo.delete) == ["a-new"] and todo.failed[0][0].status.phase == "Succeeded"


def test_a_terminating_pod_keeps_its_place() -> None:
    assert look(daemon(), [on("a", deleting=True)], nodes("a")).create == []
    assert look(daemon(surge=1, unavailable=0), [on("a", deleting=True)], nodes("a")).create == ["a"]


def test_an_update_takes_as_many_nodes_at_a_time_as_may_be_unavailable() -> None:
    everywhere = [on(name, "old") for name in "abcd"]
    assert len(look(daemon(unavailable=1), everywhere, nodes(*"abcd")).delete) == 1
    assert len(look(daemon(unavailable="50%"), everywhere, nodes(*"abcd")).delete) == 2
    assert look(daemon(kind="OnDelete"), everywhere, nodes(*"abcd")).delete == []


def test_an_old_pod_that_is_broken_goes_at_once_and_healthy_ones_wait() -> None:
    pods = [on("a", "old", ready=False), on("b", "old"), on("c", "old")]
    assert names(look(daemon(unavailable=1), pods, nodes(*"abc")).delete) == ["a-old"]


def test_with_surge_the_new_pod_comes_before_the_old_one_goes() -> None:
    desired = daemon(surge=1, unavailable=0)
    first = look(desired, [on("a", "old"), on("b", "old")], nodes("a", "b"))
    assert first.create == ["a"] and first.delete == []
    starting = look(desired, [on("a", "old"), on("a", "new", ready=False), on("b", "old")], nodes("a", "b"))
    assert starting.create == [] and starting.delete == []
    up = look(desired, [on("a", "old"), on("a", "new"), on("b", "old")], nodes("a", "b"))
    assert names(up.delete) == ["a-old"]
    after = look(desired, [on("a", "new"), on("b", "old")], nodes("a", "b"))
    assert after.create == ["b"]
