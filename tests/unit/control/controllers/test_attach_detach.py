"""Attachment and detachment of volumes, as a table; and the writes, against a real store."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from control.controllers.attach_detach import plan
from kube.api import core_v1, meta_v1, storage_v1
from kube.csi import attachment_name

VOLUME = "kubernetes.io/csi/d^h"


def node(*, in_use: bool = False, ready: bool = True, taint: str = "") -> core_v1.Node:
    return core_v1.Node(
        spec=core_v1.NodeSpec(taints=[core_v1.Taint(key=taint, effect="NoExecute")] if taint else []),
        status=core_v1.NodeStatus(
            volumes_in_use=[VOLUME] if in_use else [],
            conditions=[core_v1.NodeCondition(type="Ready", status="True" if ready else "Unknown")],
        ),
    )


def attachment(leaving: bool = False) -> storage_v1.VolumeAttachment:
    stamp = "2026-01-01T00:00:00Z" if leaving else None
    return storage_v1.VolumeAttachment(metadata=meta_v1.ObjectMeta(name="x", deletion_timestamp=stamp))


def decide(
    wanted: list[str],
    attached: list[str],
    nodes: dict[str, core_v1.Node],
    *,
    shared: bool = False,
    waited: float = 0.0,
    leaving: bool = False,
) -> plan.Decision:
    return plan.decide(
        VOLUME,
        wanted,
        {name: attachment(leaving) for name in attached},
        nodes,
        shared=shared,
        waited=dict.fromkeys(attached, waited),
    )


def test_a_volume_is_attached_where_it_is_wanted_and_to_known_nodes_only() -> None:
    assert decide(["a"], [], {"a": node()}) == plan.Decision(attach=("a",))
    assert decide(["a"], ["a"], {"a": node()}) == plan.Decision()
    assert decide(["a"], [], {}) == plan.Decision()


def test_a_volume_for_one_node_waits_until_the_other_has_let_go_of_it() -> None:
    both = {"a": node(in_use=True), "b": node()}
    assert decide(["a", "b"], ["a"], both) == plan.Decision(taken=("b",))
    assert decide(["b"], ["a"], both) == plan.Decision(taken=("b",), waiting=frozenset(["a"]))
    assert decide(["b"], ["a"], {"a": node(), "b": node()}) == plan.Decision(detach=("a",), taken=("b",))
    assert decide(["b"], ["a"], both, leaving=True) == plan.Decision(taken=("b",)), "it is on its way"
    assert decide(["a", "b"], [], both) == plan.Decision(attach=("a",), taken=("b",))
    assert decide(["a", "b"], ["a"], both, shared=True) == plan.Decision(attach=("b",))


@pytest.mark.parametrize(
    ("given", "waited", "decision"),
    [
        ({"in_use": False}, 0, plan.Decision(detach=("a",))),
        ({"in_use": True}, 9999, plan.Decision(waiting=frozenset(["a"]))),
        ({"in_use": True, "ready": False}, 0, plan.Decision(again=360.0, waiting=frozenset(["a"]))),
        ({"in_use": True, "ready": False}, 359, plan.Decision(again=1.0, waiting=frozenset(["a"]))),
        ({"in_use": True, "ready": False}, 360, plan.Decision(detach=("a",))),
        ({"in_use": True, "taint": plan.OUT_OF_SERVICE}, 0, plan.Decision(detach=("a",))),
    ],
    ids=["let go", "in use", "not ready", "almost six minutes", "six minutes", "out of service"],
)
def test_a_node_is_waited_for_as_long_as_it_can_answer(
    given: dict[str, bool], waited: float, decision: plan.Decision
) -> None:
    assert decide([], ["a"], {"a": node(**given)}, waited=waited) == decision


def test_a_node_whose_object_is_gone_is_waited_for_as_one_that_is_not_ready() -> None:
    """Its machine may run on, with the volume mounted."""
    assert decide([], ["a"], {}) == plan.Decision(again=360.0, waiting=frozenset(["a"]))
    assert decide([], ["a"], {}, waited=360) == plan.Decision(detach=("a",))


def test_the_pods_that_use_a_volume_are_named_without_those_of_other_namespaces() -> None:
    def pod(name: str, namespace: str = "ns") -> core_v1.Pod:
        return core_v1.Pod(metadata=meta_v1.ObjectMeta(name=name, namespace=namespace))

    me = pod("me")
    start = 'Multi-Attach error for volume "pv" '
    assert plan.multi_attach_message("pv", me, [pod("x"), pod("b")]) == f"{start}Volume is already used by pod(s) b, x"
    assert plan.multi_attach_message("pv", me, [pod("x"), pod("y", "other")]) == (
        f"{start}Volume is already used by pod(s) x and 1 pod(s) in different namespaces"
    )
    assert plan.multi_attach_message("pv", me, [pod("y", "other")]) == (
        f"{start}Volume is already used by 1 pod(s) in different namespaces"
    )
    assert plan.multi_attach_message("pv", me, []).endswith("attached to one node and can't be attached to another")


def test_an_attachments_name_is_upstreams() -> None:
    # The hash of handle, driver and node in this order, as csi_attacher.go makes it.
    digest = "4af94228ee9d441e02225497584706bfc975bdb4d2db3571d8c5db2668c1e969"
    assert attachment_name("driver", "vol", "node") == f"csi-{digest}"


State = dict[str, dict[str, Any]]
RUNNING: State = {"running": {}}
STOPPED: State = {"terminated": {"exitCode": 0}}
WAITING: State = {"waiting": {"reason": "ContainerCreating"}}


@pytest.mark.parametrize(
    ("deleted", "phase", "init", "main", "left"),
    [
        (False, "Pending", [], [WAITING], False),
        (False, "Succeeded", [], [STOPPED], True),
        (True, "Running", [], [RUNNING], False),
        (True, "Running", [], [STOPPED, RUNNING], False),
        (True, "Running", [RUNNING], [WAITING], False),
        (True, "Running", [], [{}], False),
        (True, "Running", [STOPPED], [STOPPED, WAITING], True),
        (True, "Pending", [], [], True),
    ],
)
def test_a_deleted_pod_whose_containers_do_not_run_needs_no_volumes(
    deleted: bool, phase: str, init: list[State], main: list[State], left: bool
) -> None:
    kinds = {"initContainerStatuses": init, "containerStatuses": main}
    body = {
        "metadata": {"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z" if deleted else None},
        "status": {"phase": phase, **{k: [{"name": "c", "state": s} for s in states] for k, states in kinds.items()}},
    }
    assert plan.has_left(msgspec.convert(body, core_v1.Pod)) is left
