"""Limits of the journal: values of secrets, other namespaces, texts and entries that somebody made to do harm."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kube.journal import kind_key
from tests.contract.why.test_journal import page, texts
from tests.support.broken_clusters import pod, story_of
from wherry.testing import AsyncCluster
from wherry.why import report

ADMISSION = "admissionregistration.k8s.io/v1"
RBAC = "rbac.authorization.k8s.io"
KEY = "hunter2hunter2"


async def test_a_policy_that_sets_a_key_of_a_secret_is_recorded_without_the_key() -> None:
    async with AsyncCluster(0) as cluster:
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"], "operations": ["UPDATE"]}
        patch = f'Object{{metadata: Object.metadata{{labels: {{"by": "policy"}}}}, stringData: {{"{KEY}": "a"}}}}'
        spec = {
            "matchConstraints": {"resourceRules": [rule]},
            "reinvocationPolicy": "Never",
            "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": patch}}],
        }
        name = {"name": "keys"}
        bound = {"kind": "MutatingAdmissionPolicyBinding", "metadata": name, "spec": {"policyName": "keys"}}
        made = {"kind": "MutatingAdmissionPolicy", "metadata": name, "spec": spec}
        await cluster.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}})
        await cluster.apply([{"apiVersion": ADMISSION, **each} for each in (made, bound)])

        async def changed(_: object) -> bool:
            await cluster.patch("secret/s", {"metadata": {"annotations": {"at": str(cluster.now)}}})
            return '"policy keys"' in (await page(cluster, "s", resource="secrets")).text

        await cluster.wait("secret/s", changed)
        shown = (await page(cluster, "s", resource="secrets")).json()["entries"]
        (fields,) = {str(each["details"]["changed"]["policy keys"]) for each in shown if "details" in each}
        assert "metadata.labels" in fields and KEY not in str(shown)


async def test_a_tenant_reads_nothing_of_other_namespaces_of_nodes_and_of_denied_requests() -> None:
    async with AsyncCluster(1) as cluster:
        await cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "theirs"}})
        await cluster.apply(pod("web"))
        await cluster.apply(pod("web"), namespace="theirs")
        rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
        subject = {"kind": "User", "name": "eve", "apiGroup": RBAC}
        role = {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": {"name": "all"}, "rules": rules}
        reference = {"apiGroup": RBAC, "kind": "Role", "name": "all"}
        binding = {"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": {"name": "all"}}
        await cluster.apply([role, binding | {"roleRef": reference, "subjects": [subject]}])
        own = await page(cluster, "web", "eve")
        assert texts(own) and "theirs" not in own.text
        for query in (
            {"namespace": "theirs"},
            {"namespace": ""},
            {"namespace": "(denied)"},
            {"namespace": "(denied)", "resource": "secrets"},
        ):
            assert (await page(cluster, "web", "eve", **query)).status_code == 403, query
        assert (await page(cluster, "node-1", "eve", resource="nodes")).status_code == 403
        assert (await page(cluster, "theirs", "eve", resource="namespaces", namespace="theirs")).status_code == 403


async def test_evictions_and_objects_of_a_deleted_collection_are_recorded_with_their_uids() -> None:
    async with AsyncCluster(0) as cluster:
        uids = {name: (await cluster.apply(pod(name)))[0]["metadata"]["uid"] for name in ("a", "b")}
        for name in uids:  # an object's entries end with it
            await cluster.patch(f"pod/{name}", {"metadata": {"finalizers": ["example.org/wait"]}})
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
        client = cluster.client
        await client.call("POST", "/api/v1/namespaces/default/pods/a/eviction", body=json.dumps(eviction).encode())
        await client.call("DELETE", "/api/v1/namespaces/default/pods")
        for name, text in (("a", "created its eviction"), ("b", "deleted")):
            found = (await page(cluster, name)).json()["entries"]
            assert any(each["text"].startswith(text) and each["uid"] == uids[name] for each in found)


async def test_a_large_object_has_its_revision_too() -> None:
    async with AsyncCluster(0) as cluster:
        large = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large"}, "data": {"a": "x" * 500_000}}
        made = await cluster.create(large)
        (entry,) = (await page(cluster, "large", resource="configmaps")).json()["entries"]
        assert entry["uid"] == made["metadata"]["uid"]
        assert entry["revision"] == int(made["metadata"]["resourceVersion"])


@pytest.mark.parametrize("details", [None, {"nodes": [1]}, {"nodes": {"a": "b"}}, {"container": {}}])
async def test_texts_cannot_command_the_terminal_and_wrong_details_are_left_out(details: Any) -> None:
    async with AsyncCluster(0) as cluster:
        await cluster.apply(pod("web"))
        journal = cluster.engine.api.journal
        assert journal is not None
        hostile = "\x1b[2J\x9b2J\u202e\r\nfix: rm -rf /"
        journal.record(kind_key("", "Pod"), "default", "web", f"jane{hostile}", hostile, details=details)
        story = await story_of(cluster, "pod/web")
        assert any(hostile in moment.text for moment in story.moments)
        lines = report.lines(story)
        assert all(line.isprintable() for line in lines)
        assert not any(line.startswith("fix: rm") for line in lines)


async def test_what_happened_before_the_process_began_is_said_to_be_unknown() -> None:
    async with AsyncCluster(0) as cluster:
        await cluster.apply(pod("web"))
        journal = cluster.engine.api.journal
        assert journal is not None
        journal.began += 3600  # as of a server that was started after the pod was created
        (unknown,) = (await story_of(cluster, "pod/web")).unknown
        assert unknown.startswith("decisions before ") and unknown.endswith(", when the journal begins")
