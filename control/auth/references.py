"""References of pods and persistent volumes by name: the secrets, config maps, claims and account that their node must read."""

from __future__ import annotations

from collections.abc import Iterator

from kube.json_object import Object


def containers(pod_spec: Object) -> Iterator[Object]:
    """Yield all containers of a pod spec: init, regular, ephemeral."""
    for part in ("initContainers", "containers", "ephemeralContainers"):
        yield from pod_spec.get(part) or ()


# Volume sources that name a secret in the pod's namespace: source -> the field with the name, or with a reference.
_SECRET_NAME = {"secret": "secretName", "azureFile": "secretName"}
_SECRET_REF = {
    "cephfs": "secretRef",
    "cinder": "secretRef",
    "csi": "nodePublishSecretRef",
    "flexVolume": "secretRef",
    "iscsi": "secretRef",
    "rbd": "secretRef",
    "scaleIO": "secretRef",
    "storageos": "secretRef",
}
# Those of a CSI volume that nodes need; the others are the controllers' alone.
_PV_SECRETS = ("nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef")
_OWN_NAMESPACE = ("csi", "cinder", "storageos")
"""Sources of persistent volumes whose references name their namespace; with the others it may be the claim's."""


def pod_secrets(spec: Object) -> set[str]:
    """Return the names of the secrets a pod spec refers to."""
    found = {ref.get("name", "") for ref in spec.get("imagePullSecrets") or ()}
    found |= set(_from_environment(spec, "secretKeyRef", "secretRef"))
    for volume in spec.get("volumes") or ():
        for source, field in _SECRET_NAME.items():
            if source in volume:
                found.add(volume[source].get(field, ""))
        for source, field in _SECRET_REF.items():
            if source in volume:
                found.add((volume[source].get(field) or {}).get("name", ""))
        for part in (volume.get("projected") or {}).get("sources") or ():
            if "secret" in part:
                found.add(part["secret"].get("name", ""))
    return found - {""}


def pod_config_maps(spec: Object) -> set[str]:
    """Return the names of the config maps a pod spec refers to."""
    found = set(_from_environment(spec, "configMapKeyRef", "configMapRef"))
    for volume in spec.get("volumes") or ():
        found.add((volume.get("configMap") or {}).get("name", ""))
        for part in (volume.get("projected") or {}).get("sources") or ():
            found.add((part.get("configMap") or {}).get("name", ""))
    return found - {""}


def pod_claims(pod: Object) -> set[str]:
    """Return the names of the persistent volume claims a pod uses, those made for it from templates too."""
    found = set()
    for volume in pod["spec"].get("volumes") or ():
        if "persistentVolumeClaim" in volume:
            found.add(volume["persistentVolumeClaim"].get("claimName", ""))
        elif "ephemeral" in volume:
            found.add(f"{pod['metadata']['name']}-{volume.get('name', '')}")
    return found - {""}


def pod_resource_claims(pod: Object) -> set[str]:
    """Return the names of the device claims a pod uses: those it names, and those made for it from templates."""
    found, status = set(), pod.get("status", {})
    made = {c.get("name"): c.get("resourceClaimName") or "" for c in status.get("resourceClaimStatuses") or ()}
    for claim in pod["spec"].get("resourceClaims") or ():
        if claim.get("resourceClaimName"):
            found.add(claim["resourceClaimName"])
        elif claim.get("resourceClaimTemplateName"):
            found.add(made.get(claim.get("name"), ""))
    found.add((status.get("extendedResourceClaimStatus") or {}).get("resourceClaimName", ""))
    return found - {""}


def volume_secrets(volume: Object) -> set[tuple[str, str]]:
    """Return (namespace, name) of the secrets that a node needs for a persistent volume."""
    spec, found = volume.get("spec", {}), set()
    default = (spec.get("claimRef") or {}).get("namespace", "")
    for source, fields in (("csi", _PV_SECRETS), *((s, ("secretRef",)) for s in _SECRET_REF if s != "csi")):
        for field in fields:
            ref = (spec.get(source) or {}).get(field)
            if ref:
                fallback = "" if source in _OWN_NAMESPACE else default
                found.add((ref.get("namespace") or fallback, ref.get("name", "")))
    if "azureFile" in spec:
        found.add((spec["azureFile"].get("secretNamespace") or default, spec["azureFile"].get("secretName", "")))
    return found


def _from_environment(spec: Object, key_ref: str, whole_ref: str) -> Iterator[str]:
    for container in containers(spec):
        for variable in container.get("env") or ():
            ref = (variable.get("valueFrom") or {}).get(key_ref)
            if ref:
                yield ref.get("name", "")
        for source in container.get("envFrom") or ():
            if whole_ref in source:
                yield source[whole_ref].get("name", "")
