"""PodSecurity: a namespace's labels say how much its pods may do (the Pod Security Standards).

pod-security.kubernetes.io/enforce refuses pods, /warn sends a Warning header to whoever makes a pod or a workload of pods; each
has a version label beside it ("latest" or v1.x). Without labels everything is let in, as upstream's default has it.
Putting a stricter level on a namespace is warned about where pods that are there already break it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from control.admission.lookup import Lookup, Object, find
from control.admission.plugin import Attributes, Plugin
from control.admission.pod_security_checks import Violation, violations
from control.admission.refusal import refuse
from kube.errors import FieldError, invalid, invalid_value

PREFIX = "pod-security.kubernetes.io/"
LEVELS = ("privileged", "baseline", "restricted")
_VERSION = re.compile(r"latest|v1\.(0|[1-9]\d*)")
_MAX_SHOWN = 10

# Where a kind keeps the pod it is going to make.
_TEMPLATES = {
    "podtemplates": ("template",),
    "replicationcontrollers": ("spec", "template"),
    "deployments.apps": ("spec", "template"),
    "replicasets.apps": ("spec", "template"),
    "statefulsets.apps": ("spec", "template"),
    "daemonsets.apps": ("spec", "template"),
    "jobs.batch": ("spec", "template"),
    "cronjobs.batch": ("spec", "jobTemplate", "spec", "template"),
}


@dataclass(frozen=True, slots=True)
class Policy:
    """One level and the version of the standards it is meant in."""

    level: str = "privileged"
    version: str = "latest"

    def __str__(self) -> str:
        return f"{self.level}:{self.version}"

    def broken_by(self, pod: Object) -> list[Violation]:
        """Return what a pod breaks of this policy."""
        minor = None if self.version == "latest" else int(self.version.removeprefix("v1."))
        return violations(pod, self.level, minor)


def read_policy(labels: Object, mode: str) -> Policy:
    """Read one mode's labels; what is not valid counts as the strictest, as upstream fails closed."""
    level = labels.get(PREFIX + mode, "privileged")
    version = labels.get(f"{PREFIX}{mode}-version", "latest")
    if level not in LEVELS:
        level = "restricted"
    return Policy(level, version if _VERSION.fullmatch(version) else "latest")


def label_problems(labels: Object) -> list[FieldError]:
    """Return what is wrong with a namespace's pod security labels."""
    found = []
    for mode in ("audit", "enforce", "warn"):
        level, version = labels.get(PREFIX + mode), labels.get(f"{PREFIX}{mode}-version")
        where = "metadata.labels[" + PREFIX + mode
        if level is not None and level not in LEVELS:
            found.append(invalid_value(where + "]", level, "must be one of " + ", ".join(LEVELS)))
        if version is not None and not _VERSION.fullmatch(version):
            found.append(invalid_value(where + "-version]", version, 'must be "latest" or "v1.x"'))
    return found


class PodSecurity(Plugin):
    name = "PodSecurity"

    def __init__(self, lookup: Lookup) -> None:
        self._lookup = lookup

    def handles(self, attributes: Attributes) -> bool:
        if attributes.operation not in ("CREATE", "UPDATE"):
            return False
        target = attributes.resource.target
        if target == "pods":
            return attributes.subresource in ("", "ephemeralcontainers")
        return not attributes.subresource and (target == "namespaces" or target in _TEMPLATES)

    async def validate(self, attributes: Attributes) -> None:
        target, obj = attributes.resource.target, attributes.obj or {}
        if target == "namespaces":
            self._namespace(attributes, obj)
            return
        namespace = await find(self._lookup, "namespaces", "", attributes.namespace)
        labels = (namespace or {}).get("metadata", {}).get("labels") or {}
        if not any(key.startswith(PREFIX) for key in labels):
            return
        if target == "pods":
            self._pod(attributes, obj, labels)
            return
        template: Object | None = obj
        for part in _TEMPLATES[target]:
            template = (template or {}).get(part)
        if template and template.get("spec"):
            self._warn(attributes, template, read_policy(labels, "warn"))

    def _pod(self, attributes: Attributes, pod: Object, labels: Object) -> None:
        if attributes.old is not None and attributes.old.get("spec") == pod.get("spec"):
            return
        enforce = read_policy(labels, "enforce")
        broken = enforce.broken_by(pod)
        if broken:
            raise refuse(attributes, f'violates PodSecurity "{enforce}": {_detail(broken)}')
        self._warn(attributes, pod, read_policy(labels, "warn"))

    def _warn(self, attributes: Attributes, pod: Object, policy: Policy) -> None:
        broken = policy.broken_by(pod)
        if broken:
            attributes.warnings.append(f'would violate PodSecurity "{policy}": {_detail(broken)}')

    def _namespace(self, attributes: Attributes, obj: Object) -> None:
        labels = obj["metadata"].get("labels") or {}
        old_labels = (attributes.old or {}).get("metadata", {}).get("labels") or {}
        problems = label_problems(labels)
        if problems and [str(p) for p in problems] != [str(p) for p in label_problems(old_labels)]:
            raise invalid("", "Namespace", obj["metadata"].get("name", ""), problems)
        new, old = read_policy(labels, "enforce"), read_policy(old_labels, "enforce")
        if attributes.operation == "UPDATE" and LEVELS.index(new.level) > LEVELS.index(old.level):
            attributes.warnings += self._existing(attributes.name or obj["metadata"]["name"], new)

    def _existing(self, namespace: str, policy: Policy) -> list[str]:
        """Say which pods a namespace already has that its new level would refuse."""
        groups: dict[str, list[str]] = {}
        for pod in self._lookup.list("pods", namespace):
            broken = policy.broken_by(pod)
            if broken:
                reasons = ", ".join(v.reason for v in broken)
                groups.setdefault(reasons, []).append(pod["metadata"]["name"])
        if not groups:
            return []
        lines = []
        for reasons, names in groups.items():
            names.sort()
            rest = len(names) - 1
            more = f" (and {rest} other pod{'s' if rest > 1 else ''})" if rest else ""
            lines.append(f"{names[0]}{more}: {reasons}")
        shown = json.dumps(namespace)
        head = f'existing pods in namespace {shown} violate the new PodSecurity enforce level "{policy}"'
        return [head, *sorted(lines)[:_MAX_SHOWN]]


def _detail(broken: list[Violation]) -> str:
    return ", ".join(f"{v.reason} ({v.detail})" if v.detail else v.reason for v in broken)
