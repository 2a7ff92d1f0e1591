"""Configuration of Pod Security: defaults for namespaces without labels, and exemptions."""

from __future__ import annotations

from typing import Any

import pytest

from control.admission.pod_security import PodSecurity
from control.admission.pod_security_configuration import parse
from control.auth.fields import ConfigurationError
from control.auth.user import UserInfo
from kube.errors import StatusError
from kube.json_object import Object
from tests.support.lookup import ADMIN, Objects, attributes

PREFIX = "pod-security.kubernetes.io/"
HEAD = {"apiVersion": "pod-security.admission.config.k8s.io/v1", "kind": "PodSecurityConfiguration"}
TOLD = {
    **HEAD,
    "defaults": {"enforce": "baseline", "audit": "restricted", "audit-version": "v1.30"},
    "exemptions": {"namespaces": ["system"], "usernames": ["jane"], "runtimeClasses": ["kata"]},
}


def plugin(labels: Object | None = None) -> PodSecurity:
    objects = Objects(
        ("namespaces", {"metadata": {"name": "shop", "labels": labels or {}}}),
        ("namespaces", {"metadata": {"name": "system"}}),
    )
    return PodSecurity(objects, TOLD)


def pod(namespace: str = "shop", **spec: Any) -> Object:
    return {"metadata": {"name": "web", "namespace": namespace}, "spec": {"containers": [{"name": "c"}], **spec}}


async def test_the_defaults_apply_to_a_namespace_without_labels() -> None:
    with pytest.raises(StatusError, match="host namespaces"):
        await plugin().validate(attributes("pods", obj=pod(hostNetwork=True)))
    await plugin({PREFIX + "enforce": "privileged"}).validate(attributes("pods", obj=pod(hostNetwork=True)))
    request = attributes("pods", obj=pod())
    await plugin().validate(request)
    assert request.annotations[PREFIX + "enforce-policy"] == "baseline:latest"
    assert request.annotations[PREFIX + "audit-violations"].startswith('would violate PodSecurity "restricted:v1.30": ')
    assert request.warnings == []


@pytest.mark.parametrize(
    ("made", "user", "why"),
    [
        (pod("system", hostNetwork=True), ADMIN, "namespace"),
        (pod(hostNetwork=True), UserInfo("jane"), "user"),
        (pod(hostNetwork=True, runtimeClassName="kata"), ADMIN, "runtimeClass"),
    ],
)
async def test_who_is_exempt_is_let_in_and_noted(made: Object, user: UserInfo, why: str) -> None:
    request = attributes("pods", obj=made, user=user)
    await plugin().validate(request)
    assert request.annotations == {PREFIX + "exempt": why}


async def test_a_level_on_an_exempt_namespace_is_warned_about() -> None:
    labelled = {"metadata": {"name": "system", "labels": {PREFIX + "enforce": "restricted"}}}
    request = attributes("namespaces", "UPDATE", labelled, {"metadata": {"name": "system"}})
    await plugin().validate(request)
    assert request.warnings == [
        'namespace "system" is exempt from Pod Security, and the policy (enforce=restricted:latest) will be ignored'
    ]


@pytest.mark.parametrize(
    ("reported", "why"),
    [
        ({"kind": "Other"}, "must be a PodSecurityConfiguration"),
        ({**HEAD, "defaults": {"enforce": "strict"}}, 'defaults.enforce: Invalid value: "strict"'),
        ({**HEAD, "defaults": {"warn-version": "1.30"}}, 'must be "latest" or "v1.x"'),
        ({**HEAD, "exemptions": {"users": []}}, "exemptions.users: unknown field"),
    ],
)
def test_what_cannot_be_meant_is_named(reported: Object, why: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse(reported)
    assert why in str(caught.value)
