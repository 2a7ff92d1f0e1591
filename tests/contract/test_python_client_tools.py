"""The official Python client's tools, as programs use them: manifests, watches that resume, informers, leader election."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import queue
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import aio, client, config, dynamic, utils, watch
from kubernetes.informer import ADDED, DELETED, ERROR, MODIFIED, SharedInformer
from kubernetes.leaderelection import electionconfig, leaderelection
from kubernetes.leaderelection.resourcelock.leaselock import LeaseLock

from control.server.lookup import BY_TARGET
from tests.support.control import api_server
from tests.support.custom_resources import GROUP, definition, obj, version

pytestmark = pytest.mark.timeout(120)
SHORT_WATCHES = {"min_watch_timeout": 1.0}
"""The server ends each watch after one to two seconds, so that a client has to resume it."""
LABELS = {"app": "web"}
MANIFEST: list[dict[str, Any]] = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
    {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": LABELS},
            "template": {"metadata": {"labels": LABELS}, "spec": {"containers": [{"name": "c", "image": "i"}]}},
        },
    },
    {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": "web", "namespace": "shop"},
                "spec": {"selector": LABELS, "ports": [{"port": 80}]},
            },
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRole",
                "metadata": {"name": "shop-reader"},
                "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}],
            },
        ],
    },
]


def maps(api: client.ApiClient, *names: str, **data: str) -> None:
    for name in names:
        body = client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"of": "tools"}), data=data)
        client.CoreV1Api(api).create_namespaced_config_map("default", body)


async def test_manifests_are_created_and_applied_again(tmp_path: Path) -> None:
    path = tmp_path / "manifest.yaml"
    path.write_text(yaml.safe_dump_all(MANIFEST))

    def work(kubeconfig: str) -> None:
        api = config.new_client_from_config(kubeconfig)
        created = [each[0] for each in utils.create_from_yaml(api, str(path))]
        assert [type(each).__name__ for each in created] == ["V1Namespace", "V1Deployment", "V1Service"]
        assert client.RbacAuthorizationV1Api(api).read_cluster_role("shop-reader").rules[0].verbs == ["get", "list"]
        with pytest.raises(utils.FailToCreateError) as again:
            utils.create_from_yaml(api, str(path))
        reasons = [json.loads(each.body)["reason"] for each in again.value.api_exceptions]
        assert reasons == ["AlreadyExists"] * 4
        changed = json.loads(json.dumps(MANIFEST[1]))
        changed["spec"]["replicas"] = 5
        with pytest.raises(utils.FailToCreateError) as conflict:
            utils.create_from_yaml(api, yaml_objects=[changed], apply=True, namespace="shop")
        (error,) = conflict.value.api_exceptions
        assert error.status == 409 and json.loads(error.body)["details"]["causes"][0]["field"] == ".spec.replicas"
        for forced in (True, False):  # who owns the field needs no force
            utils.create_from_yaml(api, yaml_objects=[changed], apply=True, namespace="shop", force_conflicts=forced)
        found = client.AppsV1Api(api).read_namespaced_deployment("web", "shop")
        assert found.spec.replicas == 5 and {m.manager for m in found.metadata.managed_fields} >= {"python-client"}

    async with api_server(tmp_path) as server:
        await asyncio.to_thread(work, str(server.kubeconfig()))


async def test_a_watch_resumes_when_the_server_ends_it(tmp_path: Path) -> None:
    def work(kubeconfig: str) -> None:
        api = config.new_client_from_config(kubeconfig)
        core, requests = client.CoreV1Api(api), []

        @functools.wraps(core.list_namespaced_config_map)
        def list_maps(*args: Any, **kwargs: Any) -> Any:
            requests.append(kwargs.get("resource_version"))
            if len(requests) == 3:  # written between two watches
                maps(api, "between")
            return core.list_namespaced_config_map(*args, **kwargs)

        maps(api, "first")
        stream, seen = watch.Watch(), list[str]()
        for event in stream.stream(list_maps, "default", label_selector="of=tools", allow_watch_bookmarks=True):
            if event["type"] == "BOOKMARK":
                continue
            seen.append(event["object"].metadata.name)
            if len(seen) == 2:
                core.delete_namespaced_config_map("first", "default")
            elif len(seen) == 3:
                assert event["type"] == "DELETED"
                stream.stop()
        assert seen == ["first", "between", "first"] and len(requests) >= 3
        assert requests[0] is None and all(int(each) > 0 for each in requests[1:])

    def expired(kubeconfig: str) -> None:
        core = client.CoreV1Api(config.new_client_from_config(kubeconfig))
        with pytest.raises(client.ApiException, match="Expired: too old resource version") as gone:
            list(watch.Watch().stream(core.list_namespaced_config_map, "default", resource_version="1"))
        assert gone.value.status == 410

    async with api_server(tmp_path, **SHORT_WATCHES) as server:
        await asyncio.to_thread(work, str(server.kubeconfig()))
        await server.api.store.compact(await server.api.store.current_revision())
        recent = server.api.registry.cached(BY_TARGET["configmaps"]).recent
        recent._changes.clear()
        recent.floor = server.api.cache.revision
        await asyncio.to_thread(expired, str(server.kubeconfig()))


async def test_an_informer_keeps_its_cache_over_several_watches(tmp_path: Path) -> None:
    def work(kubeconfig: str) -> None:
        api = config.new_client_from_config(kubeconfig)
        core = client.CoreV1Api(api)
        events: queue.Queue[tuple[str, str]] = queue.Queue()
        requests = threading.Semaphore(0)

        @functools.wraps(core.list_namespaced_config_map)
        def list_maps(*args: Any, **kwargs: Any) -> Any:
            requests.release()
            return core.list_namespaced_config_map(*args, **kwargs)

        informer = SharedInformer(list_maps, namespace="default", label_selector="of=tools")
        for kind in (ADDED, MODIFIED, DELETED):
            informer.add_event_handler(kind, lambda o, kind=kind: events.put((kind, o.metadata.name)))
        informer.add_event_handler(ERROR, lambda error: events.put((ERROR, str(error))))
        maps(api, "a")
        informer.start()
        try:
            assert events.get(timeout=60) == (ADDED, "a")
            for round_number in range(4):
                name = f"m{round_number}"
                maps(api, name)
                assert events.get(timeout=60) == (ADDED, name)
                assert requests.acquire(timeout=60), "the server has ended a watch"
            core.patch_namespaced_config_map("a", "default", {"data": {"k": "v"}})
            assert events.get(timeout=60) == (MODIFIED, "a")
            core.delete_namespaced_config_map("m1", "default")
            assert events.get(timeout=60) == (DELETED, "m1")
            assert sorted(informer.cache.list_keys()) == ["default/a", "default/m0", "default/m2", "default/m3"]
            assert informer.cache.get_by_key("default/a").data == {"k": "v"}
        finally:
            informer.stop()

    async with api_server(tmp_path, **SHORT_WATCHES) as server:
        await asyncio.to_thread(work, str(server.kubeconfig()))


class Candidate:
    """A thread that takes part in an election, until its lease can no longer be renewed."""

    def __init__(self, name: str, leads: Callable[[str], None]) -> None:
        self.cut, self.stopped = threading.Event(), threading.Event()
        lock = LeaseLock("election", "default", name)
        update = lock.update
        lock.update = lambda *args: not self.cut.is_set() and update(*args)
        settings = electionconfig.Config(
            lock,
            lease_duration=3,
            renew_deadline=2,
            retry_period=1,
            onstarted_leading=lambda: leads(name),
            onstopped_leading=self.stopped.set,
        )
        self.thread = threading.Thread(target=leaderelection.LeaderElection(settings).run, daemon=True)
        self.thread.start()


@contextlib.contextmanager
def default_client(kubeconfig: str) -> Iterator[None]:
    """Configure the client that the locks of elections use."""
    before = client.Configuration._default
    config.load_kube_config(kubeconfig)
    try:
        yield
    finally:
        client.Configuration.set_default(before)


async def test_leader_election_fails_over(tmp_path: Path) -> None:
    def work(kubeconfig: str) -> None:
        leaders: queue.Queue[str] = queue.Queue()
        with default_client(kubeconfig):
            first = Candidate("one", leaders.put)
            assert leaders.get(timeout=60) == "one"
            second = Candidate("two", leaders.put)
            leases = client.CoordinationV1Api()
            assert leases.read_namespaced_lease("election", "default").spec.holder_identity == "one"
            first.cut.set()
            assert leaders.get(timeout=60) == "two"
            assert first.stopped.wait(60)
            assert leases.read_namespaced_lease("election", "default").spec.holder_identity == "two"
            second.cut.set()
            assert second.stopped.wait(60)
            for candidate in (first, second):
                candidate.thread.join(60)

    async with api_server(tmp_path) as server:
        await asyncio.to_thread(work, str(server.kubeconfig()))


async def test_the_dynamic_client_applies_watches_and_patches_custom_resources(tmp_path: Path) -> None:
    def work(kubeconfig: str, made: dict[str, Any]) -> None:
        api = config.new_client_from_config(kubeconfig)
        found = dynamic.DynamicClient(api)
        definitions = found.resources.get(api_version="apiextensions.k8s.io/v1", kind="CustomResourceDefinition")
        definitions.create(made)
        for event in definitions.watch(name=made["metadata"]["name"], timeout=60):
            conditions = event["object"].to_dict().get("status", {}).get("conditions", ())
            if any(c["type"] == "Established" and c["status"] == "True" for c in conditions):
                break
        found.resources.invalidate_cache()
        tools = found.resources.get(api_version=f"{GROUP}/v1", kind="Tool")
        first = tools.create(obj("Tool", "first", replicas=1), namespace="default")
        events = tools.watch(namespace="default", resource_version=first.metadata.resourceVersion, timeout=60)
        body = {"apiVersion": f"{GROUP}/v1", "kind": "Tool", "metadata": {"name": "first"}, "spec": {"replicas": 3}}
        tools.patch(body=body, namespace="default", content_type="application/merge-patch+json")
        assert next(events)["object"].spec.replicas == 3
        tools.status.patch(
            body={**body, "status": {"phase": "Fine"}}, namespace="default", content_type="application/merge-patch+json"
        )
        changed = next(events)["object"]
        assert (changed.status.phase, changed.spec.replicas) == ("Fine", 3)
        tools.delete(namespace="default", label_selector="", field_selector="metadata.name=first")
        assert next(events)["type"] == "DELETED"

    async with api_server(tmp_path) as server:
        made = definition("Tool", version(subresources={"status": {}}))
        await asyncio.to_thread(work, str(server.kubeconfig()), made)


async def test_the_asyncio_client_lists_watches_and_deletes(tmp_path: Path) -> None:
    async with api_server(tmp_path, **SHORT_WATCHES) as server:
        await aio.config.load_kube_config(str(server.kubeconfig()))
        async with aio.client.ApiClient() as api:
            core = aio.client.CoreV1Api(api)
            for name in ("a", "b"):
                body = aio.client.V1ConfigMap(metadata=aio.client.V1ObjectMeta(name=name, labels={"of": "tools"}))
                await core.create_namespaced_config_map("default", body)
            seen = list[tuple[str, str]]()
            async with aio.watch.Watch() as stream:
                events = stream.stream(core.list_namespaced_config_map, "default", label_selector="of=tools")
                async for event in events:
                    seen.append((event["type"], event["object"].metadata.name))
                    if len(seen) == 2:
                        await core.delete_namespaced_config_map("a", "default")
                    elif len(seen) == 3:
                        break
            assert sorted(seen[:2]) == [("ADDED", "a"), ("ADDED", "b")] and seen[2] == ("DELETED", "a")
            left = await core.list_namespaced_config_map("default", label_selector="of=tools")
            assert [each.metadata.name for each in left.items] == ["b"]
