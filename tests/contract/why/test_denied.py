"""Requests that a user may not make: the role that is missing is named, and binding it allows them."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from kube.clock import SYSTEM
from tests.support.broken_clusters import Broken, run
from wherry.errors import WherryError
from wherry.testing import AsyncCluster
from wherry.why import denied, report
from wherry.why.model import Story

QUESTIONS = {
    "jane get pods": (
        "the ClusterRole view would in default",
        "kubectl create rolebinding jane-view --clusterrole=view --user=jane -n default",
    ),
    "shop:robot delete pods/web": (
        "there is no role that would without allowing everything else, secrets, commands in pods or impersonation",
        "kubectl create role delete-pods --verb=delete --resource=pods --resource-name=web -n default && ",
    ),
    "jane get secrets/keys": (
        "there is no role that would without",
        "kubectl create role get-secrets --verb=get --resource=secrets --resource-name=keys -n default && ",
    ),
    "jane create configmaps": (
        "there is no role that would without",
        "kubectl create role create-configmaps --verb=create",
    ),
    "jane get pods/log": ("the ClusterRole view would in default", "kubectl create rolebinding jane-view"),
    "jane delete nodes": (
        "there is no role that would without allowing everything else",
        "kubectl create clusterrole delete-nodes --verb=delete --resource=nodes &&",
    ),
}


def _has(rules: list[Any], role: dict[str, Any]) -> bool:
    return all(rule in (role.get("rules") or ()) for rule in rules)


async def asked(cluster: AsyncCluster, question: str) -> Story:
    wanted = await denied.request(cluster.client, question.split(), "default", ())
    return await denied.explained(cluster.client, wanted, SYSTEM.now())


@pytest.mark.parametrize("question", QUESTIONS)
async def test_a_denied_request_names_the_smallest_role_that_allows_it(question: str) -> None:
    text, fix = QUESTIONS[question]
    async with AsyncCluster(0) as cluster:
        await cluster.wait("clusterrole/view", lambda role: bool(role.get("rules")))
        for smaller, larger in (("view", "edit"), ("edit", "admin")):  # each gets the rules of the one before it
            rules = (await cluster.get(f"clusterrole/{smaller}"))["rules"]
            await cluster.wait(f"clusterrole/{larger}", functools.partial(_has, rules))
        found = await asked(cluster, question)
        (cause,) = found.causes
        assert text in cause.text and cause.fix.startswith(fix)
        await run(cluster, cause.fix, Broken("", "", ""))
        mended = await asked(cluster, question)
        assert mended.state.startswith("it is allowed") and not mended.causes
        assert report.lines(mended)[-1] == report.NOTHING_WRONG


async def test_a_role_that_leads_to_other_permissions_is_not_the_smallest_one() -> None:
    group = "rbac.authorization.k8s.io"
    pods = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
    extra: dict[str, dict[str, list[str]]] = {
        "a": {"apiGroups": [""], "resources": ["users", "groups"], "verbs": ["impersonate"]},
        "b": {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]},
        "c": {"apiGroups": [""], "resources": ["nodes/proxy"], "verbs": ["get"]},
        "d": {"apiGroups": [group], "resources": ["clusterroles"], "verbs": ["bind"]},
        "e": {"apiGroups": [""], "resources": ["*"], "verbs": ["get"]},
        "wherry:f": {"apiGroups": [""], "resources": ["events"], "verbs": ["get"]},
    }
    async with AsyncCluster(0) as cluster:
        await cluster.wait("clusterrole/view", lambda role: bool(role.get("rules")))
        await cluster.apply(
            [
                {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": [pods, rule]}
                for name, rule in extra.items()
            ]
        )
        assert "the ClusterRole view would" in (await asked(cluster, "jane get pods")).causes[0].text


async def test_a_request_that_no_role_allows_gets_a_new_role() -> None:
    async with AsyncCluster(0) as cluster:
        found = await asked(cluster, "jane create nodes")
        assert "there is no role that would" in found.causes[0].text
        await run(cluster, found.causes[0].fix, Broken("", "", ""))
        assert not (await asked(cluster, "jane create nodes")).causes


@pytest.mark.parametrize("question", ["jane", "jane gte pods", "jane get nopes", "jane get"])
async def test_a_wrong_question_is_one_sentence(question: str) -> None:
    async with AsyncCluster(0) as cluster:
        with pytest.raises(WherryError, match=r"USER VERB RESOURCE|no verb gte|no kind"):
            await asked(cluster, question)
