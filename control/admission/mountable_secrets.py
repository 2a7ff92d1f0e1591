"""Annotation kubernetes.io/enforce-mountable-secrets: restricts the pods of a service account to the secrets that it lists.

Init, regular and ephemeral containers are checked (CVE-2023-2728: ephemeral ones are added later, through a subresource),
with `env` and `envFrom`. Upstream checks only volumes of kind Secret; here every volume that names a secret is checked.
"""

from __future__ import annotations

from collections.abc import Iterable

from control.auth.references import pod_secrets
from kube.json_object import Object

ENFORCE = "kubernetes.io/enforce-mountable-secrets"
_TRUE = frozenset({"1", "t", "T", "true", "TRUE", "True"})
_KINDS = {"initContainers": "init container", "containers": "container", "ephemeralContainers": "ephemeral container"}


def enforced(account: Object) -> bool:
    """Return whether an account's pods are restricted."""
    return (account["metadata"].get("annotations") or {}).get(ENFORCE) in _TRUE


def refusal(spec: Object, account: Object) -> str:
    """Return why a new pod may not run as an account, "" if it may."""
    names, who = _names(account, "secrets"), account["metadata"]["name"]
    for volume in spec.get("volumes") or ():
        name = (volume.get("secret") or {}).get("secretName", "")
        if volume.get("secret") is not None and name not in names:
            return _not_referenced(f'volume with secret.secretName="{name}"', who)
    if found := containers_refusal(spec, account, ("initContainers", "containers")):
        return found
    pull = _names(account, "imagePullSecrets")
    for index, ref in enumerate(spec.get("imagePullSecrets") or ()):
        if ref.get("name", "") not in pull:
            return _not_referenced(f'imagePullSecrets[{index}].name="{ref.get("name", "")}"', who, "imagePullSecret")
    for name in sorted(pod_secrets(spec | {"imagePullSecrets": []}) - names):
        return f'secret "{name}" is not referenced by service account {who}, so it cannot be used'
    return ""


def containers_refusal(spec: Object, account: Object, kinds: Iterable[str]) -> str:
    """Return why some kinds of a pod's containers may not run as an account, "" if they may."""
    names, who = _names(account, "secrets"), account["metadata"]["name"]
    for kind in kinds:
        for container in spec.get(kind) or ():
            what = f"{_KINDS[kind]} {container.get('name', '')} with"
            for variable in container.get("env") or ():
                ref = (variable.get("valueFrom") or {}).get("secretKeyRef")
                if ref is not None and ref.get("name", "") not in names:
                    shown = f'envVar {variable.get("name", "")} referencing secret.secretName="{ref.get("name", "")}"'
                    return _not_referenced(f"{what} {shown}", who)
            for source in container.get("envFrom") or ():
                ref = source.get("secretRef")
                if ref is not None and ref.get("name", "") not in names:
                    shown = f'envFrom referencing secret.secretName="{ref.get("name", "")}"'
                    return _not_referenced(f"{what} {shown}", who)
    return ""


def _names(account: Object, part: str) -> set[str]:
    return {ref.get("name", "") for ref in account.get(part) or ()}


def _not_referenced(what: str, account: str, kind: str = "secret") -> str:
    return f"{what} is not allowed because service account {account} does not reference that {kind}"
