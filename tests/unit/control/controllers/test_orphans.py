"""Pods without a controller: which sets are told of them, and whose selectors are read for that."""

from __future__ import annotations

import pytest

from control.controllers.context import Context
from control.controllers.daemonset import controller as daemonset
from control.controllers.statefulset import controller as statefulset
from kube.api import apps_v1, core_v1, meta_v1
from kube.client import Client
from kube.clock import FakeClock
from kube.selectors import LabelSelector, from_label_selector

from .test_manager import EmptyServer

CASES = [
    (daemonset, "DaemonSetController", apps_v1.DaemonSet, apps_v1.DaemonSetSpec),
    (statefulset, "StatefulSetController", apps_v1.StatefulSet, apps_v1.StatefulSetSpec),
]


@pytest.mark.parametrize(("module", "name", "kind", "spec"), CASES, ids=["daemonset", "statefulset"])
def test_selectors_of_other_namespaces_are_not_read_for_a_pod(
    module, name, kind, spec, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []

    def counted(selector: meta_v1.LabelSelector) -> LabelSelector:
        read.append(selector.match_labels["in"])
        return from_label_selector(selector)

    monkeypatch.setattr(module, "from_label_selector", counted)
    context = Context(Client(EmptyServer()), FakeClock())
    controller = getattr(module, name)(context)
    told: list[str] = []
    monkeypatch.setattr(controller.controller, "enqueue", told.append)
    for namespace in ("here", "there"):
        meta = meta_v1.ObjectMeta(name="s", namespace=namespace)
        selector = meta_v1.LabelSelector(match_labels={"in": namespace})
        context.informers.of(kind)._set(f"{namespace}/s", kind(metadata=meta, spec=spec(selector=selector)))
    told.clear()
    meta = meta_v1.ObjectMeta(name="p", namespace="here", labels={"in": "here"})
    context.informers.of(core_v1.Pod)._set("here/p", core_v1.Pod(metadata=meta))
    assert (read, told) == (["here"], ["here/s"])
