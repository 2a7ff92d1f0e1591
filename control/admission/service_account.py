"""ServiceAccount: every pod runs as an account that exists, and gets a token for it unless that is disabled.

The token is a projected volume kube-api-access-xxxxx (token, the cluster's CA, the namespace), mounted into each container
that has nothing else at that path. Its 3607 s is the number by which the token subresource knows these mounts.

A pod without imagePullSecrets gets the account's. Only so many are copied: the pods of a small template would each be as
large as the account.
"""

from __future__ import annotations

import random
from typing import Any

from control.admission import mountable_secrets
from control.admission.refusal import refuse, shown_name
from control.auth.references import pod_secrets
from control.interfaces.admission import Attributes, Plugin
from control.interfaces.lookup import Lookup, find
from kube.json_object import Object

MOUNT_PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
VOLUME_PREFIX = "kube-api-access-"
MIRROR = "kubernetes.io/config.mirror"
TOKEN_SECONDS = 3607
MOST_PULL_SECRETS, MOST_PULL_SECRETS_BYTES = 256, 64 << 10
"""Maximum number of imagePullSecrets that a pod gets from its account, and bytes of their names. Upstream has no limit."""
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # upstream's: no vowels, nothing that looks alike


class ServiceAccount(Plugin):
    name = "ServiceAccount"
    targets = ("pods",)

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def handles(self, attributes: Attributes) -> bool:
        return attributes.concern("pods", "CREATE") or _adds_ephemeral_containers(attributes)

    async def admit(self, attributes: Attributes) -> None:
        if attributes.subresource:
            return  # nothing is added to a pod that exists
        pod = _pod(attributes)
        spec = pod["spec"]
        if _is_mirror(pod):
            _check_mirror(attributes, spec)
            return
        name = spec.get("serviceAccountName") or "default"
        if not spec.get("serviceAccountName"):
            attributes.changed(self.name, "spec.serviceAccountName")
        spec["serviceAccountName"] = spec["serviceAccount"] = name
        account = await self._account(attributes, name)
        if _automount(spec, account) and _mount_token(spec):
            attributes.changed(self.name, "spec.containers[*].volumeMounts", "spec.volumes")
        if not spec.get("imagePullSecrets") and account.get("imagePullSecrets"):
            spec["imagePullSecrets"] = _pull_secrets(attributes, name, account["imagePullSecrets"])
            attributes.changed(self.name, "spec.imagePullSecrets")

    async def validate(self, attributes: Attributes) -> None:
        pod = _pod(attributes)
        spec = pod["spec"]
        if not attributes.subresource and _is_mirror(pod):
            _check_mirror(attributes, spec)
            return
        if not spec.get("serviceAccountName"):
            who = f"{attributes.namespace}/{shown_name(attributes)}"
            raise refuse(attributes, f"no service account specified for pod {who}")
        account = await self._account(attributes, spec["serviceAccountName"])
        if not mountable_secrets.enforced(account):
            return
        if attributes.subresource:
            why = mountable_secrets.containers_refusal(spec, account, ("ephemeralContainers",))
        else:
            why = mountable_secrets.refusal(spec, account)
        if why:
            raise refuse(attributes, why)

    async def _account(self, attributes: Attributes, name: str) -> Object:
        account = await find(self._lookup, "serviceaccounts", attributes.namespace, name)
        if account is None:
            where = f"{attributes.namespace}/{name}"
            raise refuse(attributes, f'error looking up service account {where}: serviceaccount "{name}" not found')
        return account


def _adds_ephemeral_containers(attributes: Attributes) -> bool:
    asked = (attributes.resource.target, attributes.operation, attributes.subresource)
    return asked == ("pods", "UPDATE", "ephemeralcontainers")


def _pod(attributes: Attributes) -> Object:
    assert attributes.obj is not None
    attributes.obj.setdefault("spec", {})
    return attributes.obj


def _is_mirror(pod: Object) -> bool:
    return MIRROR in (pod.get("metadata", {}).get("annotations") or {})


def _check_mirror(attributes: Attributes, spec: Object) -> None:
    if spec.get("serviceAccountName"):
        raise refuse(attributes, "a mirror pod may not reference service accounts")
    if pod_secrets(spec):
        raise refuse(attributes, "a mirror pod may not reference secrets")
    for volume in spec.get("volumes") or ():
        if any("serviceAccountToken" in s for s in (volume.get("projected") or {}).get("sources") or ()):
            raise refuse(attributes, "a mirror pod may not use ServiceAccountToken volume projections")


def _pull_secrets(attributes: Attributes, account: str, refs: list[Object]) -> list[Object]:
    """Return copies of an account's imagePullSecrets; raises 403 if they are too many or too long."""
    size = sum(len(ref.get("name") or "") for ref in refs)
    if len(refs) > MOST_PULL_SECRETS or size > MOST_PULL_SECRETS_BYTES:
        has = f"service account {attributes.namespace}/{account} has {len(refs)} imagePullSecrets of {size} bytes"
        most = f"a pod gets at most {MOST_PULL_SECRETS} of {MOST_PULL_SECRETS_BYTES} bytes from its account"
        raise refuse(attributes, f"{has}, {most}: remove some, or name those that the pod needs in its own spec")
    return [dict(ref) for ref in refs]


def _automount(spec: Object, account: Object) -> bool:
    for holder in (spec, account):
        if holder.get("automountServiceAccountToken") is not None:
            return bool(holder["automountServiceAccountToken"])
    return True


def _mount_token(spec: Object) -> bool:
    """Mount a token where a container has none; return whether one has got it."""
    present = next((v["name"] for v in spec.get("volumes") or () if v.get("name", "").startswith(VOLUME_PREFIX)), "")
    name = present or VOLUME_PREFIX + "".join(random.choices(_ALPHABET, k=5))
    mounted = False
    for part in ("initContainers", "containers"):
        for container in spec.get(part) or ():
            mounts = container.setdefault("volumeMounts", [])
            if all(m.get("mountPath") != MOUNT_PATH for m in mounts):
                mounts.append({"name": name, "readOnly": True, "mountPath": MOUNT_PATH})
                mounted = True
    if mounted and not present:
        spec.setdefault("volumes", []).append(token_volume(name))
    return mounted


def token_volume(name: str) -> dict[str, Any]:
    """Return the projected volume with token, ca.crt and namespace."""
    namespace = {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}
    sources = [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [namespace]}},
    ]
    return {"name": name, "projected": {"sources": sources, "defaultMode": 0o644}}
