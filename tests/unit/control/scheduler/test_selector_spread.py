"""Pods with the same Services or workload as a pod: selectors that count, and very large ones that do not."""

from __future__ import annotations

import pytest

from control.controllers.context import Context
from control.scheduler import selector_spread
from control.scheduler.selector_spread import MOST_LABELS, MOST_TERMS, DefaultSelectors
from kube.api import apps_v1, core_v1, meta_v1
from tests.support.clock import FakeClock
from tests.support.lagging_api import LaggingAPI

MANY = {f"k{number}": "" for number in range(MOST_TERMS + 1)}


class Site:
    def __init__(self) -> None:
        self.informers = Context(LaggingAPI().client(), FakeClock()).informers
        kinds = core_v1.Service, apps_v1.ReplicaSet, apps_v1.StatefulSet, core_v1.ReplicationController
        self.selectors = DefaultSelectors(*(self.informers.of(kind) for kind in kinds))  # type: ignore[arg-type]

    def service(self, name: str, selector: dict[str, str]) -> None:
        made = core_v1.Service(metadata=metadata(name), spec=core_v1.ServiceSpec(selector=selector))
        self.informers.of(core_v1.Service)._set(f"default/{name}", made)

    def replica_set(self, name: str, selector: meta_v1.LabelSelector) -> None:
        made = apps_v1.ReplicaSet(metadata=metadata(name), spec=apps_v1.ReplicaSetSpec(selector=selector))
        self.informers.of(apps_v1.ReplicaSet)._set(f"default/{name}", made)

    def kin(self, labels: dict[str, str], owner: str = "") -> str | None:
        found = core_v1.Pod(metadata=metadata("p", labels=labels))
        if owner:
            ref = meta_v1.OwnerReference(
                api_version="apps/v1", kind="ReplicaSet", name=owner, uid=owner, controller=True
            )
            found.metadata.owner_references = [ref]
        selector = self.selectors.of(found)
        return None if selector is None else str(selector)


def metadata(name: str, **more: dict[str, str]) -> meta_v1.ObjectMeta:
    return meta_v1.ObjectMeta(name=name, namespace="default", uid=name, **more)  # type: ignore[arg-type]


def test_the_kin_of_a_pod_are_what_its_services_and_its_workload_select() -> None:
    site = Site()
    site.service("web", {"app": "web"})
    site.service("db", {"app": "db"})
    site.replica_set("rs", meta_v1.LabelSelector(match_labels={"hash": "1"}))
    assert site.kin({"app": "web", "hash": "1"}) == "app=web"
    assert site.kin({"app": "web", "hash": "1"}, "rs") == "app=web,hash=1"
    assert site.kin({"a": "b"}) is None


def test_selectors_of_very_many_terms_are_passed_over() -> None:
    site = Site()
    site.service("large", MANY)
    values = meta_v1.LabelSelectorRequirement(key="app", operator="NotIn", values=list(MANY))
    site.replica_set("rs", meta_v1.LabelSelector(match_expressions=[values]))
    assert site.kin(MANY) is None and site.kin({"app": "x"}, "rs") is None
    site.service("web", {"app": "web"})
    assert site.kin({**MANY, "app": "web"}, "rs") == "app=web"
    for number in range(2):
        site.service(f"half{number}", dict(list(MANY.items())[number * 200 : (number + 1) * 200]))
    assert site.kin(MANY) is None


@pytest.mark.parametrize(("labels", "kept"), [(MOST_LABELS, 1), (MOST_LABELS + 1, 0)])
def test_no_answer_is_remembered_with_very_many_labels(labels: int, kept: int) -> None:
    site = Site()
    site.service("web", {"k0": ""})
    for _ in range(2):
        assert site.kin({f"k{number}": "" for number in range(labels)}) == "k0="
    assert len(site.selectors._remembered) == kept <= selector_spread.MOST_REMEMBERED


def test_what_is_cached_is_limited_in_its_text_and_holds_nothing_of_pods() -> None:
    site = Site()
    site.replica_set("rs", meta_v1.LabelSelector(match_labels={f"k{i}": "v" * 60 for i in range(MOST_TERMS)}))
    for number in range(200):
        labels = {f"{number}-{i}": "x" * 60 for i in range(MOST_LABELS)}
        site.kin(labels, "rs")
        cached = site.selectors._remembered
        assert all(isinstance(key, bytes) and len(key) == 32 for key in cached)
        assert sum(len(str(selector)) for selector in cached.values()) < 1.1 * selector_spread.MOST_TEXT
    assert cached
    site.service("web", {"k0": ""})
    assert not cached and site.selectors._text == 0
