"""The journal through the API: writers, refused and denied requests, attempts of the scheduler, and access to it."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import httpx2
import pytest

from kube.clock import SYSTEM
from kube.journal import PATH, kind_key
from tests.support.broken_clusters import pod, story_of, workload
from wherry.testing import AsyncCluster, ClusterError


async def page(cluster: AsyncCluster, named: str, user: str = "kubernetes-admin", **query: str) -> httpx2.Response:
    transport = cluster.transport(user, None if user == "kubernetes-admin" else [])
    async with httpx2.AsyncClient(base_url="http://cluster", transport=transport) as client:
        options = {"group": "", "version": "v1", "resource": "pods", "namespace": "default", "name": named} | query
        return await client.get(PATH, params=options)


def texts(answer: httpx2.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [f"{entry['actor']}: {entry['text']}" for entry in answer.json()["entries"]]


async def test_a_pods_journal_has_its_writer_and_each_attempt_to_schedule_it() -> None:
    async with AsyncCluster(2) as cluster:
        await cluster.apply(pod("big", resources={"requests": {"memory": "640Gi"}}))
        await cluster.wait("pod/big", "PodScheduled=False")
        answer = await page(cluster, "big")
        found = texts(answer)
        assert any(text.startswith("kubernetes-admin: applied with ") for text in found)
        assert any(text.startswith("default-scheduler: found no node in attempt 1: 0/2 nodes") for text in found)
        (details,) = [each["details"] for each in answer.json()["entries"] if "attempt" in (each.get("details") or {})]
        assert details["nodes"] == {"Insufficient memory": ["node-1", "node-2"]}
        story = await story_of(cluster, "pod/big")
        assert any("node-1, node-2: Insufficient memory" in moment.text for moment in story.moments)
        assert not story.unknown


async def test_a_refused_write_and_the_deletion_of_an_object_that_is_still_there_are_in_the_journal() -> None:
    async with AsyncCluster(0) as cluster:
        held = pod("web")
        held["metadata"]["finalizers"] = ["example.org/wait"]
        await cluster.apply(held)
        with pytest.raises(ClusterError):
            await cluster.patch("pod/web", {"spec": {"nodeSelector": {"a": "b"}}})
        await cluster.delete("pod/web")
        found = texts(await page(cluster, "web"))
        assert "kubernetes-admin: patch pods was refused (422 Invalid): spec (FieldValueForbidden)" in found, found
        assert found[-1].startswith("kubernetes-admin: deleted")


async def test_the_entries_of_an_object_end_with_it_also_those_of_refused_requests() -> None:
    async with AsyncCluster(0) as cluster:
        for _ in range(2):  # within one second, which is as exact as times of creation are
            await cluster.apply(pod("web"))
            with pytest.raises(ClusterError):
                await cluster.patch("pod/web", {"spec": {"nodeSelector": {"a": "b"}}})
            found = texts(await page(cluster, "web"))
            assert len([text for text in found if "refused" in text]) == 1, found
            await cluster.delete("pod/web")
            assert texts(await page(cluster, "web")) == []


async def test_denied_requests_are_answered_for_the_present_object_to_those_who_may_get_it_everywhere() -> None:
    async with AsyncCluster(0, time="virtual") as cluster:
        named, web = {"namespace": "(denied)"}, "/api/v1/namespaces/default/pods/web"
        async with httpx2.AsyncClient(base_url="http://cluster", transport=cluster.transport("eve", [])) as client:
            assert (await client.get(web)).status_code == 403
            assert texts(await page(cluster, "default/web", **named)) == []
            await cluster.apply(pod("web"))
            assert texts(await page(cluster, "default/web", **named)) == []
            await cluster.advance(seconds=2)
            assert (await client.delete(web)).status_code == 403
        (found,) = texts(await page(cluster, "default/web", **named))
        assert found.startswith("eve: delete pods was denied (403): ")
        assert (await page(cluster, "default/web", "eve", **named)).status_code == 403


async def test_the_journal_shows_an_object_to_those_alone_who_may_get_it() -> None:
    async with AsyncCluster(0) as cluster:
        await cluster.apply(pod("web"))
        denied = await page(cluster, "web", "eve")
        assert denied.status_code == 403 and "web" in denied.json()["message"]
        role = {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["web"]}]}
        subject = {"kind": "User", "name": "eve", "apiGroup": "rbac.authorization.k8s.io"}
        rbac = "rbac.authorization.k8s.io"
        await cluster.apply(
            [
                {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": {"name": "web"}, **role},
                {
                    "apiVersion": f"{rbac}/v1",
                    "kind": "RoleBinding",
                    "metadata": {"name": "web"},
                    "roleRef": {"apiGroup": rbac, "kind": "Role", "name": "web"},
                    "subjects": [subject],
                },
            ]
        )
        assert texts(await page(cluster, "web", "eve"))
        assert (await page(cluster, "other", "eve")).status_code == 403
        assert (await page(cluster, "web", "eve", namespace="kube-system")).status_code == 403
        assert (await page(cluster, "web", "eve", resource="secrets")).status_code == 403


def settings(name: str, namespace: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}


async def listed(cluster: AsyncCluster, user: str = "kubernetes-admin", **query: str) -> httpx2.Response:
    """Return the answer about all objects."""
    transport = cluster.transport(user, None if user == "kubernetes-admin" else [])
    async with httpx2.AsyncClient(base_url="http://cluster", transport=transport) as client:
        return await client.get(PATH, params=query)


async def test_what_was_decided_at_a_time_is_listed() -> None:
    async with AsyncCluster(0) as cluster:
        await cluster.apply([pod("first"), {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}])
        middle = SYSTEM.now().timestamp()
        await cluster.apply(settings("second", "shop"))
        answer = (await listed(cluster, since=str(middle))).json()
        assert ("ConfigMap", "shop", "second", "kubernetes-admin") in {
            (each.get("kind"), each.get("namespace"), each["name"], each["actor"]) for each in answer["entries"]
        }
        assert all(each["time"] > middle for each in answer["entries"])
        assert answer["completeSince"] < middle and not answer["more"]
        former = (await listed(cluster, until=str(middle))).json()["entries"]
        assert {each["name"] for each in former if each.get("kind") == "Pod"} == {"first"}
        times = [each["time"] for each in former]
        assert times == sorted(times)
        one = (await listed(cluster, limit="1")).json()
        assert len(one["entries"]) == 1 and one["more"]
        assert one["entries"][0]["time"] == max(each["time"] for each in answer["entries"])
        for query in ({"since": "x"}, {"until": "nan"}, {"limit": "many"}):
            refused = await listed(cluster, **query)
            assert refused.status_code == 400 and "is a number" in refused.json()["message"]


SHOP = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}


async def test_the_list_has_objects_that_the_user_may_list_and_no_others() -> None:
    async with AsyncCluster(0) as cluster:
        await cluster.apply([SHOP, settings("till", "shop"), settings("web", "default")])
        await cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "key", "namespace": "shop"}})
        assert (await listed(cluster, "eve")).json()["entries"] == []
        assert (await listed(cluster, "eve", namespace="shop")).json()["entries"] == []
        rbac = "rbac.authorization.k8s.io"
        binding = {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "eve", "namespace": "shop"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "view"},
            "subjects": [{"kind": "User", "name": "eve", "apiGroup": rbac}],
        }
        await cluster.apply(binding)
        found = (await listed(cluster, "eve", namespace="shop")).json()["entries"]
        names = {(each.get("kind") or each["resource"], each["name"]) for each in found}
        assert ("ConfigMap", "till") in names and not any(kind in ("Secret", "secrets") for kind, _ in names)
        assert (await listed(cluster, "eve", namespace="default")).json()["entries"] == []
        assert (await listed(cluster, "eve")).json()["entries"] == [], (
            "of all namespaces only to those who may list in all"
        )
        everything = (await listed(cluster, limit="500")).json()["entries"]
        assert {"web", "key", "till"} <= {each["name"] for each in everything}


async def test_the_list_of_a_namespace_has_nothing_of_a_former_one_of_its_name() -> None:
    async with AsyncCluster(0) as cluster:
        await cluster.apply([SHOP, settings("former", "shop")])
        assert "former" in {each["name"] for each in (await listed(cluster, namespace="shop")).json()["entries"]}
        await cluster.delete("namespace/shop")
        async with asyncio.timeout(30):
            while True:
                try:
                    await cluster.get("namespace/shop")
                except ClusterError:
                    break
                await asyncio.sleep(0.02)
        assert (await listed(cluster, namespace="shop")).json()["entries"] == []
        await cluster.apply([SHOP, settings("present", "shop")])
        names = {each["name"] for each in (await listed(cluster, namespace="shop")).json()["entries"]}
        assert "present" in names and "former" not in names


@pytest.mark.parametrize("query", [{"resource": "nopes"}, {"name": ""}, {"version": "v9"}])
async def test_a_wrong_query_is_refused(query: dict[str, Any]) -> None:
    async with AsyncCluster(0) as cluster:
        answer = await page(cluster, "web", **query)
        assert answer.status_code == 400 and "query options" in answer.json()["message"]


async def test_a_controllers_refused_pods_are_in_the_journal_of_its_owner() -> None:
    async with AsyncCluster(0) as cluster:
        quota = {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "none"},
            "spec": {"hard": {"pods": "0"}},
        }
        await cluster.apply([quota, workload("StatefulSet", spec={"serviceName": "web"})])

        async def recorded(_: object) -> bool:
            found = texts(await page(cluster, "web", group="apps", resource="statefulsets"))
            return any("FailedCreate" in text and "exceeded quota" in text for text in found)

        await cluster.wait("statefulset/web", recorded)
        assert SYSTEM.now().timestamp() > (await page(cluster, "web")).json()["completeSince"]


async def test_the_agents_entries_are_merged_and_an_agent_that_does_not_respond_is_named() -> None:
    async with AsyncCluster(1) as cluster:
        await cluster.apply(pod("web", envFrom=[{"configMapRef": {"name": "settings"}}]))
        failed = 'Failed: Error: configmap "settings" not found'

        async def recorded(_: object) -> bool:
            return f"kubelet: {failed}" in texts(await page(cluster, "web"))

        await cluster.wait("pod/web", recorded)
        entries = (await page(cluster, "web")).json()["entries"]
        assert [each["time"] for each in entries] == sorted(each["time"] for each in entries)
        story = await story_of(cluster, "pod/web")
        assert not story.unknown
        assert any(moment.text == failed and moment.actor == "kubelet" for moment in story.moments)
        cluster.node("node-1").partition()
        (unknown,) = (await story_of(cluster, "pod/web")).unknown
        assert unknown.startswith("decisions of node node-1: its agent does not respond: error dialing backend: ")


async def test_a_placed_pod_has_the_best_scores_and_the_nodes_that_do_not_fit() -> None:
    async with AsyncCluster(2) as cluster:
        await cluster.add_node("small", capacity={"memory": "1Mi"})
        await cluster.apply(pod("web", resources={"requests": {"memory": "64Mi"}}))
        await cluster.wait("pod/web", "PodScheduled")
        (entry,) = [
            each for each in (await page(cluster, "web")).json()["entries"] if each["text"].startswith("chose ")
        ]
        assert re.fullmatch(
            r"chose node-[12] of 2 nodes that fit, by score: node-[12] \d+, node-[12] \d+; 1 do not fit", entry["text"]
        )
        assert entry["actor"] == "default-scheduler"
        assert entry["details"]["nodes"] == {"Insufficient memory": ["small"]}


async def test_a_write_has_the_fields_that_admission_plugins_set() -> None:
    async with AsyncCluster(0) as cluster:
        defaults = {"limits": [{"type": "Container", "default": {"memory": "64Mi"}}]}
        limits = {"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "small"}, "spec": defaults}
        await cluster.apply([limits, pod("web")])
        (entry,) = [each for each in (await page(cluster, "web")).json()["entries"] if "applied" in each["text"]]
        changed = entry["details"]["changed"]
        assert changed["LimitRanger"] == ["spec.containers[*].resources"]
        assert changed["ServiceAccount"][0] == "spec.serviceAccountName"
        assert changed["DefaultTolerationSeconds"] == ["spec.tolerations"]
        texts = [moment.text for moment in (await story_of(cluster, "pod/web")).moments]
        assert "- admission: LimitRanger set spec.containers[*].resources" in texts


async def test_a_kind_of_another_group_does_not_show_the_entries_of_one_with_its_name() -> None:
    async with AsyncCluster(0) as cluster:
        names = {"plural": "pods", "singular": "pod", "kind": "Pod", "listKind": "PodList"}
        schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
        version = {"name": "v1", "served": True, "storage": True, "schema": schema}
        await cluster.apply(
            [
                {
                    "apiVersion": "apiextensions.k8s.io/v1",
                    "kind": "CustomResourceDefinition",
                    "metadata": {"name": "pods.sea.example.org"},
                    "spec": {"group": "sea.example.org", "scope": "Namespaced", "names": names, "versions": [version]},
                },
                pod("web"),
            ]
        )
        await cluster.wait("crd/pods.sea.example.org", "Established")
        own = {"apiVersion": "sea.example.org/v1", "kind": "Pod", "metadata": {"name": "web"}}
        await cluster.apply([own])
        for group, label in (("sea.example.org", "a"), ("", "b")):
            found = [text for text in texts(await page(cluster, "web", group=group)) if "applied" in text]
            assert len(found) == 1, (label, found)


@pytest.mark.parametrize("user", ["eve", "CORP\\eve", 'e"ve'])
async def test_denied_requests_do_not_displace_what_happened_in_a_namespace(user: str) -> None:
    async with AsyncCluster(0) as cluster:
        await cluster.apply(pod("web"))
        async with httpx2.AsyncClient(base_url="http://cluster", transport=cluster.transport(user, [])) as client:
            for _ in range(20):
                answer = await client.delete("/api/v1/namespaces/default/pods/web")
                assert answer.status_code == 403
        assert not [text for text in texts(await page(cluster, "web")) if "denied" in text or "refused" in text]


async def test_names_that_no_object_can_have_take_no_memory() -> None:
    async with AsyncCluster(0) as cluster:
        journal = cluster.engine.api.journal
        assert journal is not None
        async with httpx2.AsyncClient(base_url="http://cluster", transport=cluster.transport("eve", [])) as client:
            for number in range(50):
                answer = await client.get(f"/api/v1/namespaces/default/pods/{number}{'x' * 8000}")
                assert answer.status_code == 403
        assert "(denied)" not in journal._rings


async def test_an_answer_has_the_newest_entries_and_says_since_when() -> None:
    async with AsyncCluster(0) as cluster:
        await cluster.apply(pod("web"))
        journal = cluster.engine.api.journal
        assert journal is not None
        uid = (await cluster.get("pod/web"))["metadata"]["uid"]
        for number in range(2000):
            journal.record(kind_key("", "Pod"), "default", "web", "jane", f"{number} " + "x" * 1500, uid=uid)
        answer = await page(cluster, "web")
        found = [text for text in texts(answer) if text.startswith("jane: ")]
        assert len(answer.content) < 2 << 20 and 100 < len(found) < 1000 and found[-1].startswith("jane: 1999 ")
        assert answer.json()["completeSince"] > journal.began


async def test_notes_for_the_audit_log_stay_out_of_the_journal() -> None:
    async with AsyncCluster(0) as cluster:
        await cluster.patch(
            "namespace/default", {"metadata": {"labels": {"pod-security.kubernetes.io/audit": "restricted"}}}
        )
        await cluster.apply(pod("web"))
        assert all("audit" not in str(entry) for entry in (await page(cluster, "web")).json()["entries"])


async def test_those_who_may_list_nothing_do_not_learn_whether_a_namespace_exists() -> None:
    async with AsyncCluster(0) as cluster:
        await cluster.apply([SHOP, settings("web", "shop")])
        answers = [(await listed(cluster, "nobody", namespace=name)).json() for name in ("shop", "none")]
        assert answers[0] == answers[1] and answers[0]["entries"] == []
