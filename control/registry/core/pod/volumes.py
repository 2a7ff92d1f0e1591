"""Checks of a pod's volumes: one name and one source each, and each source's own fields."""

from __future__ import annotations

from control.registry.checks import Errors, FieldErrors, each, no_backsteps, one_of, quantity
from control.registry.core.pod import volume_sources
from control.registry.core.pod.env import field_reference, resource_reference
from control.registry.rows import Rows
from control.registry.rules import Rule, between, optional, require, require_enum
from kube import names
from kube.errors import duplicate, forbidden_field, invalid_value, required
from kube.json_object import Object

NOT_RELATIVE = "must be a relative path"
_HOST_PATH_TYPES = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)


def validate_volumes(
    volumes: list[Object] | None, path: str, *, is_pod: bool = True
) -> tuple[Errors, dict[str, Object]]:
    """Return what is wrong, and the volumes by name."""
    errors: Errors = []
    found: dict[str, Object] = {}
    for index, volume in enumerate(volumes or ()):
        where, name = f"{path}[{index}]", volume.get("name") or ""
        wrong = list(validate_source({k: v for k, v in volume.items() if k != "name"}, where))
        image = volume.get("image")
        if is_pod and image is not None and not image.get("reference"):
            wrong.append(required(f"{where}.image.reference"))
        if not name:
            wrong.append(required(f"{where}.name"))
        else:
            wrong += each(f"{where}.name", name, names.dns1123_label(name))
        if name in found:
            wrong.append(duplicate(f"{where}.name", name))
        if not wrong:
            found[name] = volume
        errors += wrong
    return errors, found


def validate_source(sources: Object, path: str, *, persistent: bool = False) -> FieldErrors:
    """Check that there is one source, a pod's or a PersistentVolume's, and that its required fields are set."""
    present = [(kind, source) for kind, source in sources.items() if source is not None]
    if not present:
        yield required(path, "must specify a volume type")
        return
    for position, (kind, source) in enumerate(present):
        where = f"{path}.{kind}"
        if position:
            yield volume_sources.only_one(where)
            continue
        yield from [required(f"{where}.{key}") for key in volume_sources.NEEDED.get(kind, ()) if not source.get(key)]
        check = volume_sources.PERSISTENT_CHECKS.get(kind) if persistent else None
        check = check or _CHECKS.get(kind) or volume_sources.CHECKS.get(kind)
        if check:
            yield from check(source, where)


def descending_path(path: str, where: str) -> Errors:
    """Refuse a path that leads upwards or begins at the root."""
    errors = [invalid_value(where, path, NOT_RELATIVE)] if path.startswith("/") else []
    return errors + no_backsteps(path, where)


def local_path(path: str, where: str) -> Errors:
    """Check a path that must stay below where it is rooted."""
    errors = descending_path(path, where)
    if path.startswith("..") and not path.startswith("../"):
        errors.append(invalid_value(where, path, "must not start with '..'"))
    return errors


def _empty_dir(source: Object, path: str) -> Errors:
    limit = source.get("sizeLimit")
    if limit is not None and quantity(limit, path):
        return [forbidden_field(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")]
    return []


def _host_path(source: Object, path: str) -> Errors:
    where = source.get("path") or ""
    if not where:
        return [required(f"{path}.path")]
    errors = no_backsteps(where, f"{path}.path")
    kind = source.get("type") or ""
    return errors + (one_of(kind, _HOST_PATH_TYPES, f"{path}.type") if kind else [])


_MODE = between(0, 0o777, "must be a number between 0 and 0777 (octal), both inclusive")
_ITEMS = Rows(
    ("items[*].key", require()),
    ("items[*].path", require(), optional(local_path)),
    ("items[*].mode", _MODE),
)
_SECRET = Rows(("secretName", require()), ("defaultMode", _MODE), ("", _ITEMS))
_CONFIG_MAP = Rows(("name", require()), ("defaultMode", _MODE), ("", _ITEMS))
_PROJECTED_NAME = Rows(("name", require()), ("", _ITEMS))
_DEFAULT_MODE = Rows(("defaultMode", _MODE))


def _downward(source: Object, path: str) -> Errors:
    errors = _DEFAULT_MODE(source, path)
    for item in source.get("items") or ():
        # The place is that of the whole, as upstream's is.
        errors += _DOWNWARD_ITEM(item, path)
    return errors


def _references(item: Object, path: str) -> Errors:
    field, resource = item.get("fieldRef"), item.get("resourceFieldRef")
    if field is not None:
        errors = field_reference(field, f"{path}.fieldRef")
        if resource is not None:
            detail = "fieldRef and resourceFieldRef can not be specified simultaneously"
            errors.append(invalid_value(path, "resource", detail))
        return errors
    if resource is not None:
        return resource_reference(resource, f"{path}.resourceFieldRef", in_volume=True)
    return [required(path, "one of fieldRef and resourceFieldRef is required")]


_DOWNWARD_ITEM = Rows(("path", require(), optional(local_path)), ("", _references), ("mode", _MODE))


def _projected(source: Object, path: str) -> Errors:
    errors = _DEFAULT_MODE(source, path)
    paths: set[str] = set()
    for index, projection in enumerate(source.get("sources") or ()):
        where = f"{path}.sources[{index}]"
        present = [kind for kind, value in projection.items() if value is not None]
        for kind in present:
            errors += _projection(kind, projection[kind], f"{where}.{kind}", path, paths)
        if len(present) > 1:
            errors.append(forbidden_field(where, "may not specify more than 1 volume type per source"))
    return errors


def _projection(kind: str, part: Object, path: str, whole: str, paths: set[str]) -> FieldErrors:
    """Check one source of a projected volume; `whole` is the volume's own place, where repeated paths are reported."""
    if kind in ("secret", "configMap"):
        yield from _PROJECTED_NAME(part, path)
    elif kind == "downwardAPI":
        for item in part.get("items") or ():
            yield from _DOWNWARD_ITEM(item, path)
    elif kind == "serviceAccountToken":
        yield from _token(part, path, whole)
        return
    for item in part.get("items") or ():
        target = item.get("path") or ""
        if target and target in paths:
            shown = target if kind == "downwardAPI" else part.get("name") or ""
            yield invalid_value(whole, shown, "conflicting duplicate paths")
        paths.add(target)


def _token(part: Object, path: str, whole: str) -> Errors:
    seconds, target, errors = part.get("expirationSeconds") or 0, part.get("path") or "", []
    where = f"{path}.expirationSeconds"
    if seconds < 600:
        errors.append(invalid_value(where, seconds, "may not specify a duration less than 10 minutes"))
    if seconds > 1 << 32:
        errors.append(invalid_value(where, seconds, "may not specify a duration larger than 2^32 seconds"))
    return errors + (local_path(target, f"{whole}.path") if target else [required(f"{whole}.path")])


_CHECKS: dict[str, Rule] = {
    "emptyDir": _empty_dir,
    "hostPath": _host_path,
    "secret": _SECRET,
    "configMap": _CONFIG_MAP,
    "downwardAPI": _downward,
    "projected": _projected,
    "gitRepo": lambda source, path: local_path(source.get("directory") or "", f"{path}.directory"),
    "image": Rows(("pullPolicy", require_enum("Always", "IfNotPresent", "Never"))),
}
