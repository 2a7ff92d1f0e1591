"""Usage that objects add to a ResourceQuota: by resource name, with scopes and required fields.

Pure functions, shared by the admission plugin, which charges one object, and the quota controller, which adds all up.
Names and rules are those of pkg/quota/v1/evaluator: pods by requests and limits, claims by storage and devices,
services by kind, everything by count.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from decimal import Decimal

from control.admission.pod_resources import family, pod_totals
from control.admission.quota_claims import device_usage, volume_in_scope, volume_usage
from control.admission.resized_pod import effective_spec
from control.registry.core.pod.qos import qos_class
from kube import quantity
from kube.json_object import Object

Usage = dict[str, Decimal]

# Resources that have a quota name of their own besides count/<resource>.<group>.
_PLAIN = frozenset(
    {
        "pods",
        "services",
        "configmaps",
        "secrets",
        "replicationcontrollers",
        "resourcequotas",
        "persistentvolumeclaims",
    }
)
_COMPUTE = ("cpu", "memory", "ephemeral-storage")
_MUST_BE_SAID = frozenset({"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"})


def usage(target: str, obj: Object, *, requested: bool = False) -> Usage:
    """Return what one object uses, by quota resource name; `requested`: also what a pod's node cannot give it."""
    found: Usage = {f"count/{target}": Decimal(1)}
    if target == "pods":
        if finished(obj):
            return {f"count/{target}": Decimal(1)}
        found |= _pod(obj, requested=requested)
    elif target == "services":
        found |= _service(obj)
    elif target == "persistentvolumeclaims":
        found |= volume_usage(obj)
    elif target == "resourceclaims.resource.k8s.io":
        found |= device_usage(obj)
    elif target in _PLAIN:
        found[target] = Decimal(1)
    return found


def finished(pod: Object) -> bool:
    """Return whether a pod has ended: then it uses nothing but a place in the store."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def _pod(pod: Object, *, requested: bool) -> Usage:
    requests, limits = pod_totals(effective_spec(pod, requested=requested))
    found: Usage = {"pods": Decimal(1)}
    for name, value in requests.items():
        amount = quantity.parse(value)
        if name in _COMPUTE or name.startswith("hugepages-"):
            found[name] = amount
        found[f"requests.{name}"] = amount
    for name, value in limits.items():
        if name in _COMPUTE:
            found[f"limits.{name}"] = quantity.parse(value)
    return found


def _service(service: Object) -> Usage:
    spec, found = service.get("spec", {}), {"services": Decimal(1)}
    kind, ports = spec.get("type", "ClusterIP"), Decimal(len(spec.get("ports") or ()))
    if kind == "NodePort":
        found["services.nodeports"] = ports
    elif kind == "LoadBalancer":
        found["services.loadbalancers"] = Decimal(1)
        if spec.get("allocateLoadBalancerNodePorts") is False:
            ports = Decimal(sum(1 for port in spec.get("ports") or () if port.get("nodePort")))
        found["services.nodeports"] = ports
    return found


def subtract(new: Usage, old: Usage) -> Usage:
    """Return what a change adds: only rises count."""
    return {name: value - old.get(name, Decimal(0)) for name, value in new.items() if value > old.get(name, Decimal(0))}


def matches(quota: Object, target: str, obj: Object) -> bool:
    """Return whether a quota's scopes include an object; what is no pod and no volume claim is within none."""
    return within(scopes(quota), target, obj)


def within(terms: Iterable[Object], target: str, obj: Object) -> bool:
    """Return whether an object is within all of these scopes."""
    return all(in_scope(term, target, obj) for term in terms)


def terms(quota: Object) -> list[Object]:
    """Return a quota's scopes as terms to compare many objects with: a value is found without going through all."""
    return [term | {"values": frozenset(term.get("values") or ())} for term in scopes(quota)]


def scopes(quota: Object) -> list[Object]:
    """Return a quota's scopes, all as terms of a selector."""
    spec = quota.get("spec", {})
    terms = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    return terms + list((spec.get("scopeSelector") or {}).get("matchExpressions") or ())


def in_scope(term: Object, target: str, obj: Object) -> bool:
    """Return whether an object is within one scope of a quota or of a configuration."""
    if target == "persistentvolumeclaims":
        return volume_in_scope(term, obj)
    return target == "pods" and _pod_in_scope(term, obj)


def _pod_in_scope(term: Object, pod: Object) -> bool:
    spec, name, operator = pod["spec"], str(term.get("scopeName")), term.get("operator", "Exists")
    values: Collection[str] = term.get("values") or ()
    if name in ("Terminating", "NotTerminating"):
        return bool(spec.get("activeDeadlineSeconds") is not None) is (name == "Terminating")
    if name in ("BestEffort", "NotBestEffort"):
        return (qos_class(spec) == "BestEffort") == (name == "BestEffort")
    if name == "CrossNamespacePodAffinity":
        return _cross_namespace(spec)
    if name == "PriorityClass":
        mine = str(spec.get("priorityClassName") or "")
        if operator == "In":
            return mine in values
        if operator == "NotIn":
            return mine not in values
        return bool(mine) is bool(operator == "Exists")
    return False


def _cross_namespace(spec: Object) -> bool:
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        terms = list((affinity.get(kind) or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or ())
        preferred = (affinity.get(kind) or {}).get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        terms += [p.get("podAffinityTerm") or {} for p in preferred]
        if any(t.get("namespaces") or t.get("namespaceSelector") is not None for t in terms):
            return True
    return False


def unsaid(hard: Container[str], spec: Object) -> str:
    """Return which compute resources under quota a pod's containers do not state: `limits.cpu for: a,b; ...`."""
    missing: dict[str, set[str]] = {}
    if spec.get("resources"):  # stated for the pod as a whole
        requests, limits = pod_totals(spec)
        totals = {"requests": requests, "limits": limits}
    else:
        totals = {}
    for name in _MUST_BE_SAID:
        if name not in hard:
            continue
        kind, _, plain = name.rpartition(".")
        kind = kind or "requests"
        if plain in totals.get(kind, {}):
            continue
        for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
            if plain not in ((container.get("resources") or {}).get(kind) or {}):
                missing.setdefault(name, set()).add(container.get("name", ""))
    return "; ".join(f"{name} for: {','.join(sorted(missing[name]))}" for name in sorted(missing))


def show(usage: Usage) -> str:
    """Write usage as messages have it: `cpu=500m,pods=1`."""
    return ",".join(f"{name}={quantity.render(value, family(name))}" for name, value in sorted(usage.items()))


def parse(resources: Object | None, names: Iterable[str]) -> Usage:
    """Read these resources of a quota's hard or used; a quota may have tens of thousands of others."""
    found = resources or {}
    return {name: quantity.parse(found[name]) for name in names if name in found}


def render(usage: Usage) -> Object:
    """Write usage as it stands in a quota's status."""
    return {name: quantity.render(value, family(name)) for name, value in usage.items()}
