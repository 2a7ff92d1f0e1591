"""References of mirror pods: a mirror pod may refer to no object of the API.

A node creates mirror pods for its static pods. If such a pod could name a Secret, a claim or an account, the node would
gain permission to read it. Volume sources are listed one by one, so that an unknown new one is rejected
(HasAPIObjectReference in pkg/api/pod/util.go; CVE-2025-4563).
"""

from __future__ import annotations

from control.auth import references
from kube.json_object import Object

_WITHOUT_OBJECTS = frozenset(
    {
        "awsElasticBlockStore",
        "azureDisk",
        "cephfs",
        "cinder",
        "downwardAPI",
        "emptyDir",
        "fc",
        "flexVolume",
        "flocker",
        "gcePersistentDisk",
        "gitRepo",
        "hostPath",
        "image",
        "iscsi",
        "nfs",
        "photonPersistentDisk",
        "portworxVolume",
        "quobyte",
        "rbd",
        "scaleIO",
        "storageos",
        "vsphereVolume",
    }
)
"""Sources of which some may name a Secret, which is checked before."""
_WITH_OBJECTS = {
    "configMap": "configmaps (via configmap volumes)",
    "secret": "secrets (via secret volumes)",
    "csi": "csidrivers (via CSI volumes)",
    "glusterfs": "endpoints (via glusterFS volumes)",
    "persistentVolumeClaim": "persistentvolumeclaims",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
    "azureFile": "secrets (via azureFile volumes)",
}
_PROJECTED = {
    "configMap": "configmaps (via projected volumes)",
    "secret": "secrets (via projected volumes)",
    "serviceAccountToken": "serviceaccounts (via projected volumes)",
    "clusterTrustBundle": "clustertrustbundles",
    "podCertificate": "podcertificates",
    "downwardAPI": "",
}


def object_reference(spec: Object) -> str:
    """Return the kind of object that a pod spec refers to, "" for none; raises ValueError for an unknown volume source."""
    if spec.get("serviceAccountName"):
        return "serviceaccounts"
    if references.pod_secrets(spec):
        return "secrets"
    if references.pod_config_maps(spec):
        return "configmaps"
    if spec.get("resourceClaims"):
        return "resourceclaims"
    return next(filter(None, map(_volume_reference, spec.get("volumes") or ())), "")


def _volume_reference(volume: Object) -> str:
    name = volume.get("name", "")
    sources = [source for source, value in volume.items() if source != "name" and value is not None]
    if not sources or any(s not in _WITHOUT_OBJECTS and s not in _WITH_OBJECTS and s != "projected" for s in sources):
        raise ValueError(f'unknown volume type for volume "{name}"')
    found = [_WITH_OBJECTS.get(source, "") for source in sources]
    for part in (volume.get("projected") or {}).get("sources") or ():
        kinds = [kind for kind, value in part.items() if value is not None]
        if not kinds or any(kind not in _PROJECTED for kind in kinds):
            raise ValueError(f'unknown source for projected volume "{name}"')
        found += [_PROJECTED[kind] for kind in kinds]
    return next(filter(None, found), "")
