"""Credential plugins and notes of who may use an image: real programs, a real API server, the fake runtime's registry."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import jwt
import pytest

from agent.config import ImageSettings
from cri.fake import FakeRuntime
from kube.api import core_v1, meta_v1, rbac_v1
from tests.support.control import ApiUnderTest
from tests.support.credential_plugin import CredentialPlugin
from tests.support.fake_node import calls, container, create, waiting
from tests.support.node import FastClock, NodeUnderTest, agent_node

IMAGE = "private.test/app:1"
TOKENS = {
    "serviceAccountTokenAudience": "registry.test",
    "requireServiceAccount": True,
    "cacheType": "ServiceAccount",
    "requiredServiceAccountAnnotationKeys": ["registry.test/role"],
}


@pytest.fixture
def plugin(tmp_path: Path) -> CredentialPlugin:
    made = CredentialPlugin(tmp_path)
    made.configure("*.test")
    made.answer("private.test", "me", "open")
    return made


@pytest.fixture
async def node(
    tmp_path: Path, runtime: FakeRuntime, api: ApiUnderTest, clock: FastClock, plugin: CredentialPlugin
) -> AsyncIterator[NodeUnderTest]:
    for name in (IMAGE, "private.test/app:2", "other.example/app:1"):
        runtime.images.publish(name, ("me", "open"))
    changes = {"images": ImageSettings(credential_providers=plugin.config, credential_provider_dir=plugin.bin_dir)}
    async with agent_node(tmp_path, runtime, api, clock=clock, **changes) as node:
        yield node


def app(image: str = IMAGE, **more: Any) -> dict[str, Any]:
    return container(**more) | {"image": image}


async def secret(node: NodeUnderTest, name: str, password: str = "open") -> dict[str, str]:
    auths = {"auths": {"private.test": {"username": "me", "password": password}}}
    data = {".dockerconfigjson": base64.b64encode(json.dumps(auths).encode()).decode()}
    made = core_v1.Secret(type="kubernetes.io/dockerconfigjson", data=data)
    made.metadata.name, made.metadata.namespace = name, "default"
    await node.client.create(made)
    return {"name": name}


async def nodes_may_have_tokens_for(node: NodeUnderTest, audience: str) -> None:
    """Allow what NodeRestriction asks for: tokens for an audience that the pod does not mount."""
    metadata = meta_v1.ObjectMeta(name="pull-tokens")
    verb = "request-serviceaccounts-token-audience"
    rule = rbac_v1.PolicyRule(verbs=[verb], api_groups=[""], resources=[audience])
    await node.client.create(rbac_v1.ClusterRole(metadata=metadata, rules=[rule]))
    nodes = rbac_v1.Subject(kind="Group", name="system:nodes", api_group="rbac.authorization.k8s.io")
    role = rbac_v1.RoleRef(kind="ClusterRole", name="pull-tokens", api_group="rbac.authorization.k8s.io")
    await node.client.create(rbac_v1.ClusterRoleBinding(metadata=metadata, role_ref=role, subjects=[nodes]))


def pulls(runtime: FakeRuntime) -> int:
    return len(calls(runtime, "PullImage"))


async def test_a_credential_plugin_is_called_once_for_all_images_of_a_registry(
    node: NodeUnderTest, plugin: CredentialPlugin
) -> None:
    await create(node, "one", app())
    await node.ready("one")
    await create(node, "two", app("private.test/app:2"))
    await node.ready("two")
    request = {"kind": "CredentialProviderRequest", "apiVersion": "credentialprovider.kubelet.k8s.io/v1"}
    assert plugin.received == [{**request, "image": IMAGE, "arguments": ["get-credentials"]}]


async def test_a_credential_plugin_is_not_called_for_images_that_do_not_match(
    node: NodeUnderTest, plugin: CredentialPlugin
) -> None:
    await create(node, "other", app("other.example/app:1"))
    await node.wait("other", lambda p: waiting(p) in ("ErrImagePull", "ImagePullBackOff"))
    assert plugin.received == []


async def test_a_pods_pull_secret_precedes_a_plugins_credentials(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    await create(node, "with", app(), imagePullSecrets=[await secret(node, "wrong", "wrong")])
    await node.ready("with")
    assert [request.auth.password for request in calls(runtime, "PullImage")] == ["wrong", "open"]


async def test_a_failed_credential_plugin_is_called_again_at_the_next_pull(
    node: NodeUnderTest, plugin: CredentialPlugin
) -> None:
    plugin.fail()
    await create(node, "late", app())
    await node.event("late", "BackOff")
    plugin.answer("private.test", "me", "open")
    await node.ready("late")
    assert len(plugin.received) >= 2


async def test_an_answer_is_not_logged_whatever_its_plugin_ends_with(
    node: NodeUnderTest, plugin: CredentialPlugin, caplog: pytest.LogCaptureFixture
) -> None:
    plugin.fail_afterwards()
    await create(node, "late", app())
    await node.event("late", "BackOff")
    assert "credential provider vault: exit status 3\n" in caplog.text
    assert "open" not in caplog.text and "get-credentials" not in caplog.text
    plugin.fail()
    await create(node, "later", app())
    await node.event("later", "BackOff")
    assert "credential provider vault: exit status 1: no credentials today\n" in caplog.text


@pytest.mark.parametrize("plugin", [()], indirect=False)
async def test_without_plugins_the_nodes_docker_configuration_counts(
    tmp_path: Path, runtime: FakeRuntime, api: ApiUnderTest, clock: FastClock, plugin: object
) -> None:
    runtime.images.publish(IMAGE, ("me", "open"))
    folder = tmp_path / "kubelet"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps({"auths": {"private.test": {"username": "me", "password": "open"}}}))
    async with agent_node(tmp_path, runtime, api, clock=clock) as node:
        await create(node, "plain", app())
        await node.ready("plain")


async def test_a_plugin_is_given_a_token_of_the_pods_account(
    tmp_path: Path, runtime: FakeRuntime, api: ApiUnderTest, clock: FastClock, plugin: CredentialPlugin
) -> None:
    plugin.configure("*.test", tokenAttributes=TOKENS)
    runtime.images.publish(IMAGE, ("me", "open"))
    changes = {"images": ImageSettings(credential_providers=plugin.config, credential_provider_dir=plugin.bin_dir)}
    async with agent_node(tmp_path, runtime, api, clock=clock, **changes) as node:
        await nodes_may_have_tokens_for(node, "registry.test")
        for name, annotations in (("puller", {"registry.test/role": "reader"}), ("nobody", {})):
            metadata = meta_v1.ObjectMeta(name=name, namespace="default", annotations=annotations)
            await node.client.create(core_v1.ServiceAccount(metadata=metadata))
        await create(node, "refused", app(), serviceAccountName="nobody")
        await node.wait("refused", lambda p: waiting(p) in ("ErrImagePull", "ImagePullBackOff"))
        assert plugin.received == []
        await node.delete("refused", grace=0)  # it would go on trying
        await node.gone("refused")
        pod = await create(node, "pulls", app(), serviceAccountName="puller")
        await node.ready("pulls")
        requested = plugin.received[0]
        assert requested["serviceAccountAnnotations"] == {"registry.test/role": "reader"}
        claims = jwt.decode(requested["serviceAccountToken"], options={"verify_signature": False})
        assert claims["aud"] == ["registry.test"]
        assert claims["sub"] == "system:serviceaccount:default:puller"
        assert claims["kubernetes.io"]["pod"]["uid"] == pod.metadata.uid
        before = pulls(runtime)
        await create(node, "again", app(), serviceAccountName="puller")
        await node.ready("again")
        assert (pulls(runtime), len(plugin.received)) == (before, 1)


async def test_an_image_that_a_secret_brought_is_for_those_who_have_it(
    node: NodeUnderTest, runtime: FakeRuntime, plugin: CredentialPlugin
) -> None:
    plugin.fail()
    owner = await secret(node, "mine")
    await create(node, "first", app(), imagePullSecrets=[owner])
    await node.ready("first")
    assert pulls(runtime) == 1
    await create(node, "same-secret", app(), imagePullSecrets=[owner])
    await node.ready("same-secret")
    await create(node, "same-password", app(), imagePullSecrets=[await secret(node, "copy")])
    await node.ready("same-password")
    assert pulls(runtime) == 1
    await create(node, "stranger", app())
    await node.wait("stranger", lambda p: waiting(p) in ("ErrImagePull", "ImagePullBackOff"))
    await create(node, "never", app(imagePullPolicy="Never"))
    pod = await node.wait("never", lambda p: waiting(p) == "ErrImageNeverPull")
    state = pod.status.container_statuses[0].state
    assert state and state.waiting
    assert state.waiting.message == f'Container image "{IMAGE}" is not present with pull policy of Never'
    await node.stop()
    await node.start()
    await create(node, "stranger-after", app())
    await node.wait("stranger-after", lambda p: waiting(p) in ("ErrImagePull", "ImagePullBackOff"))
    kept = list((node.config.root_dir / "image_manager/pulled").iterdir())
    assert len(kept) == 1 and "open" not in kept[0].read_text()


async def test_what_was_there_before_is_for_everybody(node: NodeUnderTest, runtime: FakeRuntime) -> None:
    runtime.images.add(IMAGE)
    await create(node, "preloaded", app())
    await node.ready("preloaded")
    assert pulls(runtime) == 0
