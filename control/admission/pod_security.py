"""PodSecurity: enforces the Pod Security Standards by a namespace's labels.

pod-security.kubernetes.io/enforce refuses pods, /warn sends a Warning header to whoever makes a pod or a workload of pods; each
has a version label beside it ("latest" or v1.x); /audit notes in the audit log. Without labels the defaults of the plugin's
configuration hold (pod_security_configuration.py), without these everything is let in. Who is exempt there is not looked at.
A stricter level or another version on a namespace is warned about where pods that are there already break it, of which so many
are looked at as upstream does.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress

import msgspec

from control.admission.pod_security_checks import violations
from control.admission.pod_security_configuration import LEVELS, MODES, VERSION, parse
from control.admission.pod_security_details import Violation
from control.admission.refusal import refuse
from control.event_loop import offload
from control.interfaces.admission import Attributes, Plugin
from control.interfaces.lookup import Lookup, find
from kube.errors import FieldError, invalid, invalid_value
from kube.json_object import Object

PREFIX = "pod-security.kubernetes.io/"
_MAX_SHOWN = 10
MOST_PODS, CHECK_SECONDS = 3000, 1.0
"""Pods of a namespace that are looked at for a new level, and for how long (upstream: namespaceMaxPodsToCheck,
namespacePodCheckTimeout)."""

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


class Policy(msgspec.Struct, frozen=True):
    """One level and the version of the standards it is meant in."""

    level: str = "privileged"
    version: str = "latest"

    def __str__(self) -> str:
        return f"{self.level}:{self.version}"

    def broken_by(self, pod: Object) -> list[Violation]:
        """Return what a pod breaks of this policy."""
        minor = None if self.version == "latest" else int(self.version.removeprefix("v1."))
        return violations(pod, self.level, minor)


def read_policy(labels: Object, mode: str, defaults: Mapping[str, str] | None = None) -> Policy:
    """Read one mode's labels; what is not valid counts as the strictest, as upstream fails closed."""
    usual = defaults or {}
    level = labels.get(PREFIX + mode, usual.get(mode, "privileged"))
    version = labels.get(f"{PREFIX}{mode}-version", usual.get(f"{mode}-version", "latest"))
    if level not in LEVELS:
        level = "restricted"
    return Policy(level, version if VERSION.fullmatch(version) else "latest")


def label_problems(labels: Object) -> list[FieldError]:
    """Return what is wrong with a namespace's pod security labels."""
    found = []
    for mode in ("audit", "enforce", "warn"):
        level, version = labels.get(PREFIX + mode), labels.get(f"{PREFIX}{mode}-version")
        where = "metadata.labels[" + PREFIX + mode
        if level is not None and level not in LEVELS:
            found.append(invalid_value(where + "]", level, "must be one of " + ", ".join(LEVELS)))
        if version is not None and not VERSION.fullmatch(version):
            found.append(invalid_value(where + "-version]", version, 'must be "latest" or "v1.x"'))
    return found


class PodSecurity(Plugin):
    name = "PodSecurity"
    targets = ("pods", "namespaces", *_TEMPLATES)

    def __init__(self, lookup: Lookup, configuration: Object | None = None) -> None:
        self._lookup = lookup
        settings = parse(configuration or {})
        self._defaults, self._exempt = settings.defaults, settings.exempt

    def handles(self, attributes: Attributes) -> bool:
        if attributes.operation not in ("CREATE", "UPDATE"):
            return False
        target = attributes.resource.target
        if target == "pods":
            return attributes.subresource in ("", "ephemeralcontainers")
        return not attributes.subresource and (target == "namespaces" or target in _TEMPLATES)

    async def validate(self, attributes: Attributes) -> None:
        target = attributes.resource.target
        if target == "namespaces":
            await self._namespace(attributes, attributes.obj or {})
            return
        namespace = await find(self._lookup, "namespaces", "", attributes.namespace)
        labels = (namespace or {}).get("metadata", {}).get("labels") or {}
        if not self._defaults and not any(key.startswith(PREFIX) for key in labels):
            return
        if self._is_exempt(attributes):
            return
        template = attributes.obj  # that of a large creation is decoded here
        if target == "pods":
            self._pod(attributes, template or {}, labels)
            return
        for part in _TEMPLATES[target]:
            template = (template or {}).get(part)
        if template and template.get("spec") and not self._of_exempt_class(attributes, template):
            self._tell(attributes, template, labels)

    def _is_exempt(self, attributes: Attributes) -> bool:
        """Return whether the namespace, the user or a pod's runtime class is exempt, and note which for the audit log."""
        if attributes.namespace in self._exempt.namespaces:
            attributes.annotations[PREFIX + "exempt"] = "namespace"
        elif attributes.user.name in self._exempt.users:
            attributes.annotations[PREFIX + "exempt"] = "user"
        elif attributes.resource.target == "pods":
            return self._of_exempt_class(attributes, attributes.obj or {})
        else:
            return False
        return True

    def _of_exempt_class(self, attributes: Attributes, pod: Object) -> bool:
        found = (pod.get("spec") or {}).get("runtimeClassName") in self._exempt.runtime_classes
        if found:
            attributes.annotations[PREFIX + "exempt"] = "runtimeClass"
        return found

    def _pod(self, attributes: Attributes, pod: Object, labels: Object) -> None:
        if attributes.old is not None and attributes.old.get("spec") == pod.get("spec"):
            return
        enforce = read_policy(labels, "enforce", self._defaults)
        attributes.annotations[PREFIX + "enforce-policy"] = str(enforce)
        broken = enforce.broken_by(pod)
        self._tell(attributes, pod, labels, warn=not broken)
        if broken:
            raise refuse(attributes, f'violates PodSecurity "{enforce}": {_detail(broken)}')

    def _tell(self, attributes: Attributes, pod: Object, labels: Object, *, warn: bool = True) -> None:
        """Report violations of the audit and warn levels, in the audit log and in warnings."""
        for mode in ("audit", "warn") if warn else ("audit",):
            policy = read_policy(labels, mode, self._defaults)
            broken = policy.broken_by(pod)
            if not broken:
                continue
            text = f'would violate PodSecurity "{policy}": {_detail(broken)}'
            if mode == "audit":
                attributes.annotations[PREFIX + "audit-violations"] = text
            else:
                attributes.warnings.append(text)

    async def _namespace(self, attributes: Attributes, obj: Object) -> None:
        labels = obj["metadata"].get("labels") or {}
        old_labels = (attributes.old or {}).get("metadata", {}).get("labels") or {}
        problems = label_problems(labels)
        if problems and [str(p) for p in problems] != [str(p) for p in label_problems(old_labels)]:
            raise invalid("", "Namespace", obj["metadata"].get("name", ""), problems)
        name = attributes.name or obj["metadata"].get("name", "")
        new = read_policy(labels, "enforce", self._defaults)
        old = read_policy(old_labels, "enforce", self._defaults)
        if name in self._exempt.namespaces:
            policies = {mode: read_policy(labels, mode, self._defaults) for mode in MODES if PREFIX + mode in labels}
            if policies and labels != old_labels:
                shown = ", ".join(f"{mode}={policy}" for mode, policy in policies.items())
                attributes.warnings.append(
                    f"namespace {json.dumps(name)} is exempt from Pod Security, and the policy ({shown}) will be ignored"
                )
            return
        stricter = new.version != old.version or LEVELS.index(new.level) > LEVELS.index(old.level)
        if attributes.operation == "UPDATE" and new.level != "privileged" and stricter:
            attributes.warnings += await self._existing(attributes.user.name, name, new)

    async def _existing(self, user: str, namespace: str, policy: Policy) -> list[str]:
        """Say which pods a namespace already has that its new level would refuse."""
        groups: dict[str, list[str]] = {}
        total, checked = self._lookup.count("pods", namespace), 0
        with suppress(TimeoutError):
            async with asyncio.timeout(CHECK_SECONDS), aclosing(self._prioritized(namespace)) as pods:
                async for pod, size in pods:
                    if checked == MOST_PODS:
                        break
                    broken = await offload.run(user, size, self._broken, policy, pod)
                    checked += 1
                    if broken:
                        reasons = ", ".join(v.reason for v in broken)
                        groups.setdefault(reasons, []).append(pod["metadata"]["name"])
        cut = f"new PodSecurity enforce level only checked against the first {checked} of {total} existing pods"
        warnings = [cut] if checked < total else []
        if not groups:
            return warnings
        lines = []
        for reasons, names in groups.items():
            names.sort()
            rest = len(names) - 1
            more = f" (and {rest} other pod{'s' if rest > 1 else ''})" if rest else ""
            lines.append(f"{names[0]}{more}: {reasons}")
        shown = json.dumps(namespace)
        head = f'existing pods in namespace {shown} violate the new PodSecurity enforce level "{policy}"'
        return [*warnings, head, *sorted(lines)[:_MAX_SHOWN]]

    def _broken(self, policy: Policy, pod: Object) -> list[Violation]:
        """Return what a pod breaks of a policy; to read a large one is to decode it."""
        exempt = (pod.get("spec") or {}).get("runtimeClassName") in self._exempt.runtime_classes
        return [] if exempt else policy.broken_by(pod)

    async def _prioritized(self, namespace: str) -> AsyncGenerator[tuple[Object, int]]:
        """Give a namespace's pods with their bytes: one of each controller, then the others (upstream: prioritisePods).

        None is kept meanwhile.
        """
        first: dict[str, str] = {}
        for others in (False, True):
            async with aclosing(self._lookup.each("pods", namespace)) as pods:
                async for pod, size in pods:
                    name = pod["metadata"]["name"]
                    owners = pod["metadata"].get("ownerReferences") or ()
                    kind = next((f"uid {o.get('uid')}" for o in owners if o.get("controller")), name)
                    if (first.setdefault(kind, name) != name) is others:
                        yield pod, size


def _detail(broken: list[Violation]) -> str:
    return ", ".join(f"{v.reason} ({v.detail})" if v.detail else v.reason for v in broken)
