"""The pods behind a Service and the Services of a pod, by labels, of which there may be many."""

from __future__ import annotations

import pytest

from control.controllers.context import Context
from control.controllers.endpoints import backends
from kube.api import core_v1, meta_v1
from kube.informer import Informer
from tests.support.clock import FakeClock
from tests.support.lagging_api import LaggingAPI

MANY = {f"k{number}": "" for number in range(backends.MANY + 1)}


class Site:
    """Services and pods of one namespace, and what the followers enqueue."""

    def __init__(self) -> None:
        informers = Context(LaggingAPI().client(), FakeClock()).informers
        self.services, self.pods = informers.of(core_v1.Service), informers.of(core_v1.Pod)
        self.pods.add_index(backends.PAIR, backends.by_label_pair)
        self.selecting = backends.selecting_services(self.services)
        self.enqueued: list[str] = []
        backends.follow_pods(self.pods, self.selecting, self.enqueued.append)

    def pod(self, name: str, labels: dict[str, str], version: str = "1") -> None:
        metadata = meta_v1.ObjectMeta(name=name, namespace="here", uid=name, labels=labels, resource_version=version)
        self.pods._set(f"here/{name}", core_v1.Pod(metadata=metadata))

    def service(self, name: str, selector: dict[str, str]) -> core_v1.Service:
        metadata = meta_v1.ObjectMeta(name=name, namespace="here", uid=name)
        made = core_v1.Service(metadata=metadata, spec=core_v1.ServiceSpec(selector=selector))
        self.services._set(f"here/{name}", made)
        return made

    async def behind(self, service: core_v1.Service) -> list[str | None]:
        return [pod.metadata.name for pod in await backends.pods_of(service, self.pods, self.selecting)]


async def test_pods_of_few_and_of_many_labels_stand_behind_a_service() -> None:
    site = Site()
    site.pod("few", {"k0": "", "app": "web"})
    site.pod("many", {**MANY, "app": "web"})
    site.pod("other", {**MANY, "app": "db"})
    assert await site.behind(site.service("one", {"app": "web"})) == ["few", "many"]
    assert await site.behind(site.service("all", {**MANY, "app": "web"})) == ["many"]
    assert await site.behind(site.service("none", {})) == []


async def test_the_index_of_a_pod_of_many_labels_is_small() -> None:
    site = Site()
    site.pod("many", dict(MANY))
    assert list(site.pods._indexes[backends.PAIR]) == ["here/"]
    site.pod("many", {"app": "web"}, "2")
    assert list(site.pods._indexes[backends.PAIR]) == ["here/app=web"]


async def test_pods_are_found_by_the_rarest_of_a_selectors_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    site, requested, by_index = Site(), list[str](), Informer.by_index
    for number in range(3):
        site.pod(f"p{number}", {"tier": "front", "app": f"a{number}"})
    monkeypatch.setattr(
        Informer, "by_index", lambda self, name, value: (requested.append(value), by_index(self, name, value))[1]
    )
    assert await site.behind(site.service("s", {"tier": "front", "app": "a1"})) == ["p1"]
    assert requested == ["here/app=a1", "here/"]


async def test_a_pod_whose_labels_change_concerns_the_services_of_before_and_of_now() -> None:
    site = Site()
    for name in ("web", "db"):
        site.service(name, {"app": name})
    site.service("none", {})
    site.pod("p", {"app": "web"})
    assert site.enqueued == ["here/web"]
    site.pod("p", {"app": "db"}, "2")
    assert site.enqueued == ["here/web", "here/web", "here/db"]
    site.pod("p", {"app": "db"}, "3")
    assert len(site.enqueued) == 3
