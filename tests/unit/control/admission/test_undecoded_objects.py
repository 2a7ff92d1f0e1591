"""Objects of large creations, which are bytes until a plugin requests them, stay bytes where the default plugins have no use
for them."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from control.admission import plugins
from control.admission.webhooks.caller import Caller
from control.admission.webhooks.invoker import WebhookInvoker
from control.auth.rbac import RBACAuthorizer
from control.auth.user import UserInfo
from control.registry.encoded import EncodedAttributes
from kube.resources import RESOURCES, Resource
from tests.support.lookup import Objects

WORKLOADS = (
    "deployments.apps",
    "replicasets.apps",
    "statefulsets.apps",
    "daemonsets.apps",
    "jobs.batch",
    "cronjobs.batch",
)
UNUSED = (
    *WORKLOADS,
    "podtemplates",
    "replicationcontrollers",
    "configmaps",
    "secrets",
    "events",
    "networkpolicies.networking.k8s.io",
)
CREATED = [resource for resource in RESOURCES if "create" in resource.verbs]


def decoded_by(resource: Resource, phase: str, **labels: str) -> set[str]:
    """Return the names of the plugins that decode a new object in a namespace with some labels."""
    objects = Objects(
        ("namespaces", {"metadata": {"name": "default", "labels": labels}}),
        ("serviceaccounts", {"metadata": {"name": "default", "namespace": "default"}}),
    )
    rbac = RBACAuthorizer()
    context = plugins.PluginContext(objects, rbac, rbac, WebhookInvoker(objects, Caller(objects), rbac))
    found = set[str]()
    for plugin in plugins.make(context):
        attributes = EncodedAttributes(
            resource=resource, operation="CREATE", user=UserInfo("jane"), namespace="default", name="a"
        )
        body: dict[str, Any] = {"metadata": {"name": "a"}, "spec": {"serviceAccountName": "default", "containers": []}}
        attributes.hold(msgspec.json.encode(body))
        if plugin.handles(attributes):
            asyncio.run(getattr(plugin, phase)(attributes))
        if attributes._decoded is not None:
            found.add(plugin.name)
    return found


@pytest.mark.parametrize("resource", [r for r in CREATED if r.target in UNUSED], ids=lambda r: str(r.target))
def test_no_plugin_decodes_an_object_that_no_setting_concerns(resource: Resource) -> None:
    assert decoded_by(resource, "admit") == decoded_by(resource, "validate") == set()


def test_a_workload_is_decoded_if_its_namespace_has_a_level() -> None:
    (resource,) = (r for r in CREATED if r.target == "deployments.apps")
    assert decoded_by(resource, "validate", **{"pod-security.kubernetes.io/warn": "baseline"}) == {"PodSecurity"}


@pytest.mark.parametrize(
    ("target", "admit", "validate"),
    [
        ("persistentvolumeclaims", {"DefaultStorageClass", "StorageObjectInUseProtection"}, set()),
        (
            "pods",
            {"ServiceAccount", "Priority", "DefaultTolerationSeconds", "RuntimeClass", "PodTopologyLabels"},
            {"ServiceAccount", "RuntimeClass"},
        ),
    ],
)
def test_plugins_decode_pods_and_claims_only_if_they_change_or_check_them(
    target: str, admit: set[str], validate: set[str]
) -> None:
    (resource,) = (r for r in CREATED if r.target == target)
    assert (decoded_by(resource, "admit"), decoded_by(resource, "validate")) == (admit, validate)
