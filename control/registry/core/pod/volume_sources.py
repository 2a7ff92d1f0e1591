"""Checks of volume sources that lie outside the cluster's own objects: network file systems, disks, drivers.

Most are no longer mounted by anybody, yet the API keeps their types and their rules. A pod's volume and a PersistentVolume
share them, but for what a PersistentVolume adds: handles, and namespaces of secrets (pkg/apis/core/validation).
"""

from __future__ import annotations

import re

from control.registry.checks import Errors, each, in_range, no_backsteps
from control.registry.core.claim_spec import validate_claim_spec
from control.registry.ratcheting import newly_invalid
from control.registry.rows import Rows
from control.registry.rules import Rule, between, enum, optional, require
from kube import names
from kube.errors import FieldError, forbidden_field, invalid_value, not_supported, required, too_long
from kube.json_object import Object

NEEDED = {
    "nfs": ("server", "path"),
    "iscsi": ("targetPortal", "iqn"),
    "persistentVolumeClaim": ("claimName",),
    "gcePersistentDisk": ("pdName",),
    "awsElasticBlockStore": ("volumeID",),
    "azureDisk": ("diskName", "diskURI"),
    "azureFile": ("secretName", "shareName"),
    "cinder": ("volumeID",),
    "vsphereVolume": ("volumePath",),
    "photonPersistentDisk": ("pdID",),
    "cephfs": ("monitors",),
    "rbd": ("monitors", "image"),
    "glusterfs": ("endpoints", "path"),
    "flexVolume": ("driver",),
    "portworxVolume": ("volumeID",),
    "gitRepo": ("repository",),
    "scaleIO": ("gateway", "system", "volumeName"),
}
_IQN = re.compile(r"iqn\.[0-9]{4}-[0-9]{2}\.([0-9a-z.-]+)(:[^,;*&$|\s]+)")
_EUI = re.compile(r"eui.[0-9a-fA-F]{16}")
_NAA = re.compile(r"naa.[0-9a-fA-F]{32}")
_UNSAFE_SERVER = re.compile(r"^-|[\s\x00-\x1f\x7f-\x9f]")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_SERVER = "must be a host name or IP address: it may not begin with '-' or contain white space or control characters"
_HOST_PORT = "must be a host:port pair or multiple pairs separated by commas"


def driver_name(name: str, path: str) -> Errors:
    """Check the name of a CSI driver."""
    if not name:
        return [required(path)]
    errors = [too_long(path, 63)] if len(name) > 63 else []
    return errors + each(path, name, names.dns1123_subdomain(name.lower()))


def _nfs(source: Object, path: str) -> Errors:
    server, where = source.get("server") or "", source.get("path") or ""
    errors: Errors = []
    # Upstream takes any text; nodes hand it to mount(8), to which one that begins with "-" is an option.
    if _UNSAFE_SERVER.search(server):
        errors.append(newly_invalid(f"{path}.server", server, _SERVER))
    if not where.startswith("/"):
        errors.append(invalid_value(f"{path}.path", where, "must be an absolute path"))
    elif _CONTROL.search(where):
        errors.append(newly_invalid(f"{path}.path", where, "may not contain control characters"))
    return errors


def _iscsi(source: Object, path: str) -> Errors:
    errors = _initiator(source.get("iqn") or "", f"{path}.iqn", "must be valid format") if source.get("iqn") else []
    errors += in_range(source.get("lun", 0), 0, 255, f"{path}.lun")
    if (source.get("chapAuthDiscovery") or source.get("chapAuthSession")) and source.get("secretRef") is None:
        errors.append(required(f"{path}.secretRef"))
    name = source.get("initiatorName")
    if name is not None:
        errors += _initiator(name, f"{path}.initiatorname", "must be valid format starting with iqn, eui, or naa")
    return errors


def _initiator(name: str, path: str, otherwise: str) -> Errors:
    form = {"iqn": _IQN, "eui": _EUI, "naa": _NAA}.get(name[:3])
    if form is None:
        return [invalid_value(path, name, otherwise)]
    return [] if form.fullmatch(name) else [invalid_value(path, name, "must be valid format")]


def _fc(source: Object, path: str) -> Errors:
    targets, wwids, lun = source.get("targetWWNs") or [], source.get("wwids") or [], source.get("lun")
    errors: Errors = []
    if not targets and not wwids:
        errors.append(required(f"{path}.targetWWNs", "must specify either targetWWNs or wwids, but not both"))
    if targets and wwids:
        detail = "targetWWNs and wwids can not be specified simultaneously"
        errors.append(invalid_value(f"{path}.targetWWNs", targets, detail))
    if targets and lun is None:
        errors.append(required(f"{path}.lun", "lun is required if targetWWNs is specified"))
    elif targets:
        errors += in_range(lun, 0, 255, f"{path}.lun")
    return errors


_AZURE_ENUMS = Rows(
    ("cachingMode?", enum("None", "ReadOnly", "ReadWrite")),
    ("kind?", enum("Dedicated", "Managed", "Shared")),
)


def _azure_disk(source: Object, path: str) -> Errors:
    errors = _AZURE_ENUMS(source, path)
    kind, uri = source.get("kind"), source.get("diskURI") or ""
    if kind == "Managed" and not uri.startswith("/subscriptions/"):
        form = "/subscriptions/{sub-id}/resourcegroups/{group-name}/providers/microsoft.compute/disks/{disk-id}"
        errors.append(not_supported(f"{path}.diskURI", uri, (form,)))
    elif kind not in (None, "Managed") and not uri.startswith("https://"):
        form = "https://{account-name}.blob.core.windows.net/{container-name}/{disk-name}.vhd"
        errors.append(not_supported(f"{path}.diskURI", uri, (form,)))
    return errors


def _quobyte(source: Object, path: str) -> Errors:
    registry, errors = source.get("registry") or "", []
    if not registry:
        errors.append(required(f"{path}.registry", _HOST_PORT))
    elif len(source.get("tenant") or "") >= 65:
        errors.append(required(f"{path}.tenant", "must be a UUID and may not exceed a length of 64 characters"))
    elif any(pair.count(":") != 1 for pair in registry.split(",")):
        errors.append(invalid_value(f"{path}.registry", registry, _HOST_PORT))
    return errors + ([] if source.get("volume") else [required(f"{path}.volume")])


def _flocker(source: Object, path: str) -> Errors:
    name, uuid = source.get("datasetName") or "", source.get("datasetUUID") or ""
    errors: Errors = []
    if not name and not uuid:
        errors.append(required(path, "one of datasetName and datasetUUID is required"))
    if name and uuid:
        detail = "datasetName and datasetUUID can not be specified simultaneously"
        errors.append(invalid_value(path, "resource", detail))
    if "/" in name:
        errors.append(invalid_value(f"{path}.datasetName", name, "must not contain '/'"))
    return errors


def _flex(source: Object, path: str) -> Errors:
    return [
        invalid_value(f"{path}.options[{key}]", key, "kubernetes.io and k8s.io namespaces are reserved")
        for key in source.get("options") or ()
        if ("." + key.partition("/")[0].lower()).endswith((".kubernetes.io", ".k8s.io"))
    ]


def _ephemeral(source: Object, path: str) -> Errors:
    template = source.get("volumeClaimTemplate")
    if template is None:
        return [required(f"{path}.volumeClaimTemplate")]
    return validate_claim_spec(template.get("spec") or {}, f"{path}.volumeClaimTemplate.spec")


def only_one(path: str) -> FieldError:
    return forbidden_field(path, "may not specify more than 1 volume type")


_PARTITION = Rows(("partition", between(0, 255)))
_PUBLISHED_SECRETS = (
    "controllerPublishSecretRef",
    "controllerExpandSecretRef",
    "nodePublishSecretRef",
    "nodeExpandSecretRef",
)
CHECKS: dict[str, Rule] = {
    "nfs": _nfs,
    "iscsi": _iscsi,
    "fc": _fc,
    "gcePersistentDisk": _PARTITION,
    "awsElasticBlockStore": _PARTITION,
    "azureDisk": _azure_disk,
    "quobyte": _quobyte,
    "flocker": _flocker,
    "flexVolume": _flex,
    "cinder": Rows(("secretRef?.name", require())),
    "csi": Rows(("driver", driver_name), ("nodePublishSecretRef?.name", require())),
    "ephemeral": _ephemeral,
}
PERSISTENT_CHECKS: dict[str, Rule] = {
    "csi": Rows(
        ("driver", driver_name),
        ("volumeHandle", require()),
        *((f"{key}?.{part}", require()) for key in _PUBLISHED_SECRETS for part in ("name", "namespace")),
    ),
    "local": Rows(("path", require(), optional(no_backsteps))),
}
"""Checks of PersistentVolumes that differ from those of pods' volumes."""
