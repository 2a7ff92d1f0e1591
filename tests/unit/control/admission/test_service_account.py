"""The ServiceAccount admission plugin: accounts, tokens, pull secrets and mountable secrets of pods."""

from __future__ import annotations

from typing import Any

import pytest

from control.admission.service_account import (
    MOST_PULL_SECRETS,
    MOST_PULL_SECRETS_BYTES,
    MOUNT_PATH,
    ServiceAccount,
)
from control.interfaces.admission import Attributes
from tests.support.lookup import Objects, attributes

from .test_lifecycle_and_pods import Object, admit, pod, refused


# -- ServiceAccount ---------------------------------------------------------------------------------------------------
def accounts(**default: Any) -> Objects:
    return Objects(
        ("serviceaccounts", {"metadata": {"name": "default", "namespace": "shop"}, **default}),
        ("serviceaccounts", {"metadata": {"name": "web", "namespace": "shop"}}),
    )


def test_a_pod_runs_as_default_with_a_token_in_every_container() -> None:
    made = pod({"name": "a"}, {"name": "b"}, initContainers=[{"name": "i"}])
    admit(ServiceAccount(accounts()), attributes("pods", obj=made))
    spec = made["spec"]
    assert spec["serviceAccountName"] == "default"
    (volume,) = spec["volumes"]
    assert volume["name"].startswith("kube-api-access-") and len(volume["name"]) == len("kube-api-access-") + 5
    token, ca, namespace = volume["projected"]["sources"]
    assert token == {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}}
    assert ca["configMap"]["name"] == "kube-root-ca.crt"
    assert namespace["downwardAPI"]["items"][0]["fieldRef"]["fieldPath"] == "metadata.namespace"
    for container in (*spec["containers"], *spec["initContainers"]):
        assert container["volumeMounts"] == [{"name": volume["name"], "readOnly": True, "mountPath": MOUNT_PATH}]


def test_a_missing_service_account_is_reported() -> None:
    message = refused(ServiceAccount(accounts()), attributes("pods", obj=pod(serviceAccountName="gone")))
    assert message == (
        'pods "web" is forbidden: error looking up service account shop/gone: serviceaccount "gone" not found'
    )


@pytest.mark.parametrize(
    "account, spec, mounted",
    [
        ({}, {}, True),
        ({"automountServiceAccountToken": False}, {}, False),
        ({"automountServiceAccountToken": False}, {"automountServiceAccountToken": True}, True),
        ({}, {"automountServiceAccountToken": False}, False),
    ],
)
def test_the_pods_word_on_mounting_counts_before_the_accounts(account: Object, spec: Object, mounted: bool) -> None:
    made = pod(**spec)
    admit(ServiceAccount(accounts(**account)), attributes("pods", obj=made))
    assert bool(made["spec"].get("volumes")) is mounted


def test_a_container_with_its_own_mount_at_the_path_keeps_it() -> None:
    own = {"name": "mine", "mountPath": MOUNT_PATH}
    made = pod({"name": "a", "volumeMounts": [own]})
    admit(ServiceAccount(accounts()), attributes("pods", obj=made))
    assert made["spec"]["containers"][0]["volumeMounts"] == [own]
    assert "volumes" not in made["spec"]


def test_pull_secrets_come_from_the_account_unless_the_pod_has_some() -> None:
    objects = accounts(imagePullSecrets=[{"name": "registry"}])
    made = pod()
    admit(ServiceAccount(objects), attributes("pods", obj=made))
    assert made["spec"]["imagePullSecrets"] == [{"name": "registry"}]
    other = pod(imagePullSecrets=[{"name": "own"}])
    admit(ServiceAccount(objects), attributes("pods", obj=other))
    assert other["spec"]["imagePullSecrets"] == [{"name": "own"}]


@pytest.mark.parametrize("refs", [MOST_PULL_SECRETS, MOST_PULL_SECRETS + 1])
@pytest.mark.parametrize("length", [10, 253, MOST_PULL_SECRETS_BYTES])
def test_a_pod_is_refused_that_its_account_would_make_large(refs: int, length: int) -> None:
    objects = accounts(imagePullSecrets=[{"name": "a" * length}] * refs)
    if refs <= MOST_PULL_SECRETS and length <= 253:
        made = pod()
        admit(ServiceAccount(objects), attributes("pods", obj=made))
        assert len(made["spec"]["imagePullSecrets"]) == refs
        return
    assert refused(ServiceAccount(objects), attributes("pods", obj=pod())) == (
        f'pods "web" is forbidden: service account shop/default has {refs} imagePullSecrets of {refs * length} bytes, '
        "a pod gets at most 256 of 65536 bytes from its account: remove some, or name those that the pod needs in its own spec"
    )
    own = pod(imagePullSecrets=[{"name": "own"}])
    admit(ServiceAccount(objects), attributes("pods", obj=own))
    assert own["spec"]["imagePullSecrets"] == [{"name": "own"}]


@pytest.mark.parametrize(
    "spec, why",
    [
        ({"serviceAccountName": "default"}, "a mirror pod may not reference service accounts"),
        ({"volumes": [{"name": "s", "secret": {"secretName": "x"}}]}, "a mirror pod may not reference secrets"),
        (
            {"volumes": [{"name": "s", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
            "a mirror pod may not use ServiceAccountToken volume projections",
        ),
        ({}, ""),
    ],
)
def test_mirror_pods_get_no_account_and_no_secrets(spec: Object, why: str) -> None:
    made = pod(**spec)
    made["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "hash"}
    request = attributes("pods", obj=made)
    if why:
        assert refused(ServiceAccount(accounts()), request).endswith(why)
    else:
        admit(ServiceAccount(accounts()), request)
        assert "serviceAccountName" not in made["spec"] and "volumes" not in made["spec"]


def of_secret(name: str, whole: bool) -> Object:
    if whole:
        return {"name": "c", "envFrom": [{"secretRef": {"name": name}}]}
    return {"name": "c", "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": name, "key": "k"}}}]}


def restricted(value: str = "true") -> Objects:
    annotations = {"kubernetes.io/enforce-mountable-secrets": value}
    metadata = {"name": "default", "namespace": "shop", "annotations": annotations}
    return accounts(metadata=metadata, secrets=[{"name": "ours"}], imagePullSecrets=[{"name": "registry"}])


NOT_OURS = "because service account default does not reference that"


@pytest.mark.parametrize(
    "spec, why",
    [
        (lambda n: {"initContainers": [of_secret(n, True)]}, "init container c with envFrom referencing"),
        (lambda n: {"initContainers": [of_secret(n, False)]}, "init container c with envVar A referencing"),
        (lambda n: {"containers": [of_secret(n, True)]}, "container c with envFrom referencing"),
        (lambda n: {"containers": [of_secret(n, False)]}, "container c with envVar A referencing"),
        (lambda n: {"volumes": [{"name": "v", "secret": {"secretName": n}}]}, "volume with"),
    ],
)
def test_an_account_that_restricts_its_pods_lets_them_have_its_own_secrets_alone(spec: Any, why: str) -> None:
    for value in ("true", "1", "T", "TRUE"):
        admit(ServiceAccount(restricted(value)), attributes("pods", obj=pod(**spec("ours"))))
        assert refused(ServiceAccount(restricted(value)), attributes("pods", obj=pod(**spec("theirs")))) == (
            f'pods "web" is forbidden: {why} secret.secretName="theirs" is not allowed {NOT_OURS} secret'
        )
    admit(ServiceAccount(restricted("false")), attributes("pods", obj=pod(**spec("theirs"))))


@pytest.mark.parametrize(
    "volume",
    [
        {"projected": {"sources": [{"secret": {"name": "theirs"}}]}},
        {"csi": {"driver": "d", "nodePublishSecretRef": {"name": "theirs"}}},
        {"cinder": {"volumeID": "x", "secretRef": {"name": "theirs"}}},
        {"azureFile": {"shareName": "s", "secretName": "theirs"}},
    ],
)
def test_no_kind_of_volume_brings_in_a_secret_that_is_not_the_accounts(volume: Object) -> None:
    made = pod(volumes=[{"name": "v", **volume}])
    assert refused(ServiceAccount(restricted()), attributes("pods", obj=made)).endswith(
        'secret "theirs" is not referenced by service account default, so it cannot be used'
    )


def test_pull_secrets_are_the_accounts_too() -> None:
    made = pod(imagePullSecrets=[{"name": "registry"}, {"name": "theirs"}])
    assert refused(ServiceAccount(restricted()), attributes("pods", obj=made)).endswith(
        f'imagePullSecrets[1].name="theirs" is not allowed {NOT_OURS} imagePullSecret'
    )


@pytest.mark.parametrize("whole, how", [(True, "envFrom"), (False, "envVar A")])
def test_an_ephemeral_container_has_no_other_secrets_either(whole: bool, how: str) -> None:
    old = pod(serviceAccountName="default")

    def request(name: str, **spec: Any) -> Attributes:
        new = pod(**{"serviceAccountName": "default", "ephemeralContainers": [of_secret(name, whole)], **spec})
        return attributes("pods", "UPDATE", new, old, subresource="ephemeralcontainers")

    assert refused(ServiceAccount(restricted()), request("theirs")) == (
        f'pods "web" is forbidden: ephemeral container c with {how} referencing secret.secretName="theirs" is not '
        f"allowed {NOT_OURS} secret"
    )
    admit(ServiceAccount(restricted()), request("ours"))
    admit(ServiceAccount(restricted("no")), request("theirs"))
    assert refused(ServiceAccount(restricted()), request("ours", serviceAccountName="")).endswith(
        "no service account specified for pod shop/web"
    )
    assert "error looking up service account shop/gone" in refused(
        ServiceAccount(restricted()), request("ours", serviceAccountName="gone")
    )
    # A pod's own update brings in none, so it is not looked at.
    admit(ServiceAccount(restricted()), attributes("pods", "UPDATE", old, old))
