"""Limits of the journal: values of secrets, other namespaces, texts and entries that somebody made to do harm."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kube.journal import kind_key
from tests.contract.why.test_journal import page, texts
from tests.support.broken_clusters import pod, story_of
from wherry.testing import AsyncCluster, ClusterError
from wherry.why import report

ADMISSION = "admissionregistration.k8s.io/v1"
RBAC = "rbac.authorization.k8s.io"
KINDS = ("Secret", "ConfigMap")
VALUE, ENCODED = "hunter2hunter2", "aHVudGVyMmh1bnRlcjI="


def quoting_policy() -> list[dict[str, Any]]:
    """Return a policy that refuses Secrets and ConfigMaps with their values in its message, and its binding."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets", "configmaps"], "operations": ["*"]}
    check = {
        "expression": "!('word' in object.data) || object.metadata.name == 'good'",
        "messageExpression": "'it has ' + string(object.data.word)",
    }
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [check]}
    bound = {"policyName": "quotes", "validationActions": ["Deny"]}
    return [
        {"apiVersion": ADMISSION, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "quotes"}, "spec": spec},
        {
            "apiVersion": ADMISSION,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": "quotes"},
            "spec": bound,
        },
    ]


async def test_the_values_of_secrets_are_in_no_entry_not_even_of_an_error_that_quotes_them() -> None:
    async with AsyncCluster(0) as cluster:
        await cluster.apply([{"apiVersion": "v1", "kind": kind, "metadata": {"name": "s"}} for kind in KINDS])
        await cluster.apply(quoting_policy())
        for kind in KINDS:
            wrong = {"data" if kind == "ConfigMap" else "stringData": {"word": VALUE}}

            async def refused(_: object, kind: str = kind, wrong: Any = wrong) -> bool:
                try:
                    await cluster.patch(f"{kind.lower()}/s", wrong)
                except ClusterError as error:
                    return "it has" in str(error)
                return False

            await cluster.wait(f"{kind.lower()}/s", refused)
        shown = await page(cluster, "s", resource="secrets")
        refusal = "kubernetes-admin: patch secrets was refused (422): Invalid, with a message that may contain values"
        assert refusal in texts(shown)
        assert VALUE not in shown.text and ENCODED not in shown.text
        assert VALUE in (await page(cluster, "s", resource="configmaps")).text


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
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a"}}
        client = cluster.client
        await client.call("POST", "/api/v1/namespaces/default/pods/a/eviction", body=json.dumps(eviction).encode())
        await client.call("DELETE", "/api/v1/namespaces/default/pods")
        for name, text in (("a", "created its eviction"), ("b", "deleted")):
            last = (await page(cluster, name)).json()["entries"][-1]
            assert last["text"].startswith(text) and last["uid"] == uids[name]


async def test_a_large_object_has_its_revision_too() -> None:
    async with AsyncCluster(0) as cluster:
        large = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "large"}, "data": {"a": "x" * 500_000}}
        made = await cluster.create(large)
        (entry,) = (await page(cluster, "large", resource="configmaps")).json()["entries"]
        assert entry["uid"] == made["metadata"]["uid"]
        assert entry["revision"] == int(made["metadata"]["resourceVersion"])


@pytest.mark.parametrize("details", [None, [1], {"nodes": [1]}, {"nodes": {"a": "b"}}, {"container": {}}])
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
