"""Table cells of several kinds: counts and numbers, columns of workloads, and the format of maps and selectors."""

from __future__ import annotations

from typing import Any

from control.registry.columns import AGE, NAME, Column, Field
from kube.json_object import Object

NONE = "<none>"
UNSET = "<unset>"


def count(path: str) -> Field:
    """Count the items of a list or map."""
    return Field(path, show=lambda found: len(found or ()))


def number(path: str, absent: str) -> Field:
    """Print a number or a flag; `absent` only if it is absent."""
    return Field(path, show=lambda found: absent if found is None else str(found))


def reference(found: Object | None) -> str:
    """Print the kind and name of a reference: `Deployment/web`."""
    return f"{(found or {}).get('kind', '')}/{(found or {}).get('name', '')}"


def name_of(obj: Object) -> str:
    name: str = obj.get("metadata", {}).get("name", "")
    return name


def created(obj: Object) -> str | None:
    """Return metadata.creationTimestamp."""
    stamp: str | None = obj.get("metadata", {}).get("creationTimestamp")
    return stamp


def labels_text(labels: dict[str, str] | None) -> str:
    """Print a label map as `a=1,b=2`, `<none>` where it is empty (labels.FormatLabels)."""
    if not labels:
        return NONE
    return ",".join(f"{k}={labels[k]}" for k in sorted(labels))


def selector_text(selector: dict[str, Any] | None) -> str:
    """Print a LabelSelector as metav1.FormatLabelSelector does: `a=1,b in (x,y),!c`, `<none>` where it takes all."""
    if selector is None:
        return NONE
    labels = selector.get("matchLabels") or {}
    requirements = [(k, f"{k}={v}") for k, v in labels.items()]
    for expression in selector.get("matchExpressions") or []:
        key, operator = expression.get("key", ""), expression.get("operator")
        values = ",".join(sorted(expression.get("values") or []))
        shown = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }.get(operator)
        if shown is None:
            return "<error>"
        requirements.append((key, shown))
    return ",".join(text for _, text in sorted(requirements, key=lambda r: r[0])) or NONE


def names_of(containers: list[Object] | None) -> str:
    return ",".join(c.get("name", "") for c in containers or ())


def images_of(containers: list[Object] | None) -> str:
    return ",".join(c.get("image", "") for c in containers or ())


def containers_and_images(path: str) -> tuple[Column, Column]:
    """Return the columns of the containers at a path, their names and their images."""
    return (
        Column("Containers", Field(path, show=names_of), "Names of the containers in the template.", priority=1),
        Column("Images", Field(path, show=images_of), "Images of the containers in the template.", priority=1),
    )


def _ready(workload: Object) -> str:
    spec, status = workload.get("spec") or {}, workload.get("status") or {}
    return f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"


_SHORT_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def access_modes(modes: list[str] | None) -> str:
    """Print access modes in upstream's order, without repetition: `RWO,ROX`."""
    return ",".join(short for mode, short in _SHORT_MODES.items() if mode in (modes or ()))


def phase(obj: Object) -> str:
    if obj.get("metadata", {}).get("deletionTimestamp"):
        return "Terminating"
    found: str = (obj.get("status") or {}).get("phase") or ""
    return found


CREATED_AT = Column("Created At", Field("metadata.creationTimestamp"), "When the object was created.")
CONTAINERS, IMAGES = containers_and_images("spec.template.spec.containers")
READY = Column("Ready", Field("", show=_ready), "How many pods are ready.")
SELECTOR = Column("Selector", Field("spec.selector", show=selector_text), "Labels that choose the pods.", priority=1)

__all__ = ["AGE", "CONTAINERS", "CREATED_AT", "IMAGES", "NAME", "NONE", "READY", "SELECTOR", "UNSET", "Column", "Field"]
