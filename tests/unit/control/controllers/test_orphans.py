"""Pods without a controller: the controllers that select them, and the number of selector evaluations."""

from __future__ import annotations

from typing import Any

import pytest

from control.controllers import disruption, replicaset, selector_index
from control.controllers.context import Context
from control.controllers.daemonset import DaemonSetController
from control.controllers.deployment import DeploymentController
from control.controllers.job import JobController
from control.controllers.selector_index import CompiledSelectorIndex
from control.controllers.statefulset import StatefulSetController
from kube.api import apps_v1, batch_v1, core_v1, meta_v1, policy_v1
from kube.client import Client
from kube.selectors import LabelSelector, SelectorError, from_label_selector
from tests.support.clock import FakeClock

from .test_manager import EmptyServer

CASES: list[Any] = [
    (DaemonSetController, apps_v1.DaemonSet, core_v1.Pod),
    (StatefulSetController, apps_v1.StatefulSet, core_v1.Pod),
    (JobController, batch_v1.Job, core_v1.Pod),
    (replicaset.ReplicaSetController, apps_v1.ReplicaSet, core_v1.Pod),
    (DeploymentController, apps_v1.Deployment, apps_v1.ReplicaSet),
    (disruption.DisruptionController, policy_v1.PodDisruptionBudget, core_v1.Pod),
]
HERE = {"in": "here"}


def selecting_object(kind: Any, namespace: str, name: str = "s", **labels: str) -> Any:
    found = kind(metadata=meta_v1.ObjectMeta(name=name, namespace=namespace, resource_version=name))
    found.spec.selector = meta_v1.LabelSelector(match_labels=labels)
    return found


@pytest.mark.parametrize(("make", "kind", "orphan"), CASES, ids=[case[1].__name__ for case in CASES])
def test_an_orphan_reaches_who_selects_it_and_no_selector_is_read_for_it(
    make, kind, orphan, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def counted(selector: meta_v1.LabelSelector) -> LabelSelector:
        read.append(selector.match_labels["in"])
        return from_label_selector(selector)

    monkeypatch.setattr(selector_index, "from_label_selector", counted)
    context = Context(Client(EmptyServer()), FakeClock())
    controller = make(context)
    reported: list[str] = []
    monkeypatch.setattr(controller.controller, "enqueue", reported.append)
    for namespace in ("here", "there"):
        context.informers.of(kind)._set(f"{namespace}/s", selecting_object(kind, namespace, **HERE))
    assert read == ["here", "here"]
    reported.clear()
    for name in ("p", "q"):
        meta = meta_v1.ObjectMeta(name=name, namespace="here", labels=HERE)
        context.informers.of(orphan)._set(f"here/{name}", orphan(metadata=meta))
    assert (read[2:], reported) == ([], ["here/s", "here/s"])


def informer_with_index() -> tuple[Any, CompiledSelectorIndex[Any]]:
    informer = Context(Client(EmptyServer()), FakeClock()).informers.of(apps_v1.DaemonSet)
    return informer, CompiledSelectorIndex(informer)


async def test_a_selector_is_found_by_any_label_and_follows_its_object() -> None:
    informer, known = informer_with_index()
    informer._set("here/s", selecting_object(apps_v1.DaemonSet, "here", **HERE))
    assert await known.matching("here", {"a": "b", **HERE}) == ["here/s"]
    assert await known.matching("there", HERE) == await known.matching("here", {"in": "there"}) == []
    changed = selecting_object(apps_v1.DaemonSet, "here", **{"in": "there"})
    changed.metadata.resource_version = "2"
    informer._set("here/s", changed)
    assert await known.matching("here", HERE) == []
    assert await known.matching("here", {"in": "there"}) == ["here/s"]
    informer._remove("here/s", changed)
    assert await known.matching("here", {"in": "there"}) == []
    assert (known._written, known._index._known, known._index._at) == ({}, {}, {})


async def test_selectors_that_share_a_label_are_found_by_another_one() -> None:
    informer, known = informer_with_index()
    for number in range(20):
        found = selecting_object(apps_v1.DaemonSet, "here", f"s{number}", **HERE, tier=str(number))
        informer._set(f"here/s{number}", found)
    assert await known.matching("here", {**HERE, "tier": "7"}) == ["here/s7"]
    assert len(known._index.candidates("here", {**HERE, "tier": "7"})) <= 2


@pytest.mark.parametrize("operator", ["NotIn", "DoesNotExist", "Exists", "In"])
async def test_a_selector_that_demands_no_one_label_is_found_too(operator: str) -> None:
    informer, known = informer_with_index()
    found = selecting_object(apps_v1.DaemonSet, "here")
    values = ["x", "y"] if operator in ("In", "NotIn") else []
    found.spec.selector.match_expressions = [
        meta_v1.LabelSelectorRequirement(key="k", operator=operator, values=values)
    ]
    informer._set("here/s", found)
    demands = operator in ("In", "Exists")
    assert (await known.matching("here", {"k": "x"}), await known.matching("here", HERE)) == (
        (["here/s"], []) if demands else ([], ["here/s"])
    )


async def test_an_invalid_selector_selects_nothing_and_its_controller_reports_it() -> None:
    informer, known = informer_with_index()
    found = selecting_object(apps_v1.DaemonSet, "here")
    found.spec.selector.match_expressions = [meta_v1.LabelSelectorRequirement(key="k", operator="Near")]
    informer._set("here/s", found)
    assert await known.matching("here", {"k": "x"}) == []
    with pytest.raises(SelectorError):
        await known.of(found)
