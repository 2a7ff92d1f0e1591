"""Table cells of several kinds: columns of workloads, and the format of maps and selectors."""

from __future__ import annotations

from typing import Any

from control.registry.strategy import AGE, NAME, Column, Object

NONE = "<none>"
UNSET = "<unset>"
CREATED_AT = Column("Created At", description="When the object was created.")
CONTAINERS = Column("Containers", description="Names of the containers in the template.", priority=1)
IMAGES = Column("Images", description="Images of the containers in the template.", priority=1)
SELECTOR = Column("Selector", description="Labels that choose the pods.", priority=1)

__all__ = ["AGE", "CONTAINERS", "CREATED_AT", "IMAGES", "NAME", "NONE", "SELECTOR", "UNSET", "Column"]


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


def containers_and_images(spec: Object | None) -> tuple[str, str]:
    """Return the container names and the images of a pod spec, each joined with commas."""
    containers = (spec or {}).get("containers") or []
    return ",".join(c.get("name", "") for c in containers), ",".join(c.get("image", "") for c in containers)


def template_spec(obj: Object) -> Object:
    """Return the pod spec inside a workload's template."""
    found: Object = ((obj.get("spec") or {}).get("template") or {}).get("spec") or {}
    return found
