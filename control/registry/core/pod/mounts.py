"""Checks of volume mounts and volume devices of containers."""

from __future__ import annotations

from control.registry.checks import FieldErrors, one_of
from control.registry.core.pod.volumes import descending_path
from kube.errors import FieldError, forbidden_field, invalid_value, required
from kube.json_object import Object


def validate_mounts(container: Object, volumes: dict[str, Object], path: str) -> FieldErrors:
    seen: set[str] = set()
    devices = container.get("volumeDevices") or ()
    device_names, device_paths = {d.get("name") for d in devices}, {d.get("devicePath") for d in devices}
    privileged = (container.get("securityContext") or {}).get("privileged")
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        where, name, target = f"{path}[{index}]", mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            yield required(f"{where}.name")
        elif name not in volumes:
            yield FieldError(f"{where}.name", "Not found", "", name)
        if not target:
            yield required(f"{where}.mountPath")
        elif target in seen:
            yield invalid_value(f"{where}.mountPath", target, "must be unique")
        seen.add(target)
        if name in device_names:
            yield invalid_value(f"{where}.name", name, "must not already exist in volumeDevices")
        if target in device_paths:
            yield invalid_value(f"{where}.mountPath", target, "must not already exist as a path in volumeDevices")
        for key in ("subPath", "subPathExpr"):
            if mount.get(key):
                # The place lacks the index, as upstream's does.
                yield from descending_path(mount[key], f"{path}.{key}")
        if mount.get("subPath") and mount.get("subPathExpr"):
            detail = "subPathExpr and subPath are mutually exclusive"
            yield invalid_value(f"{where}.subPathExpr", mount["subPathExpr"], detail)
        propagation = mount.get("mountPropagation")
        if propagation is not None:
            modes = ("Bidirectional", "HostToContainer", "None")
            yield from one_of(propagation, modes, f"{path}.mountPropagation")
            if propagation == "Bidirectional" and not privileged:
                detail = "Bidirectional mount propagation is available only to privileged containers"
                yield forbidden_field(f"{path}.mountPropagation", detail)
        yield from _recursive_read_only(mount, f"{path}.recursiveReadOnly")


def _recursive_read_only(mount: Object, path: str) -> FieldErrors:
    wanted, propagation = mount.get("recursiveReadOnly"), mount.get("mountPropagation")
    if wanted is None or wanted == "Disabled":
        return
    if wanted not in ("Enabled", "IfPossible"):
        yield from one_of(wanted, ("Disabled", "Enabled", "IfPossible"), path)
        return
    if not mount.get("readOnly"):
        yield forbidden_field(path, "may only be specified when readOnly is true")
    if propagation not in (None, "None"):
        yield forbidden_field(path, "may only be specified when mountPropagation is None or not specified")


def validate_devices(container: Object, volumes: dict[str, Object], path: str) -> FieldErrors:
    mounts = {m.get("name"): m.get("mountPath") for m in container.get("volumeMounts") or ()}
    mount_paths = set(mounts.values())
    names_seen: set[str] = set()
    paths_seen: set[str] = set()
    for index, device in enumerate(container.get("volumeDevices") or ()):
        where, name, target = f"{path}[{index}]", device.get("name") or "", device.get("devicePath") or ""
        if not name:
            yield required(f"{where}.name")
        if name in names_seen:
            yield invalid_value(f"{where}.name", name, "must be unique")
        if name not in volumes:
            yield FieldError(f"{where}.name", "Not found", "", name)
        elif not {"persistentVolumeClaim", "ephemeral"} & volumes[name].keys():
            detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            yield invalid_value(f"{where}.name", name, detail)
        if not target:
            yield required(f"{where}.devicePath")
        if target in paths_seen:
            yield invalid_value(f"{where}.devicePath", target, "must be unique")
        if ".." in target.split("/"):
            yield invalid_value(f"{where}.devicePath", target, "can not contain backsteps ('..')")
        else:
            paths_seen.add(target)
        if name in mounts:
            yield invalid_value(f"{where}.name", name, "must not already exist in volumeMounts")
        if target in mount_paths:
            yield invalid_value(f"{where}.devicePath", target, "must not already exist as a path in volumeMounts")
        names_seen.add(name)
