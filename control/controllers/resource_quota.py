"""Resource quotas: what a namespace uses of what its quotas count.

Admission charges new objects; this controller counts anew when a quota changes, when pods or Services go, and every five
minutes. Upstream: pkg/controller/resourcequota and pkg/quota/v1/evaluator/core.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from decimal import Decimal

import msgspec

from control.controllers.context import Context
from control.controllers.discovery import Served, served
from kube import quantity
from kube.api import core_v1
from kube.client import Client, key_of
from kube.controller import Controller
from kube.errors import StatusError
from kube.informer import Change, by_namespace
from kube.pod_requests import pod_limits, pod_requests

RESYNC_SECONDS = 300.0
SETTLE_SECONDS = 2.0
"""How long after a pod appears its namespace is counted again."""
_BARE_COUNTS = {"configmaps", "secrets", "persistentvolumeclaims", "replicationcontrollers", "resourcequotas"}
"""Object counts that are named by the plural alone."""

_BY_CLASS = ".storageclass.storage.k8s.io/"

Used = dict[str, Decimal]


def pod_usage(pods: Iterable[core_v1.Pod]) -> Used:
    """Add up what pods use: their number, requests and limits, by quota names. Finished pods use nothing."""
    used: Used = {}

    def add(name: str, amount: Decimal) -> None:
        used[name] = used.get(name, Decimal(0)) + amount

    for pod in pods:
        add("count/pods", Decimal(1))
        if pod.status.phase in ("Succeeded", "Failed"):
            continue
        add("pods", Decimal(1))
        for kind, amounts in (("requests", pod_requests(pod)), ("limits", pod_limits(pod))):
            for name, number in amounts.items():
                amount = Decimal(number) / 1000 if name == "cpu" else Decimal(number)
                add(f"{kind}.{name}", amount)
                if kind == "requests" and name in ("cpu", "memory", "ephemeral-storage"):
                    add(name, amount)
    return used


def service_usage(services: Iterable[core_v1.Service]) -> Used:
    """Count Services, those of type LoadBalancer, and node ports."""
    used: Used = {n: Decimal(0) for n in ("services", "count/services", "services.loadbalancers", "services.nodeports")}
    for service in services:
        used["services"] += 1
        used["count/services"] += 1
        if service.spec.type == "LoadBalancer":
            used["services.loadbalancers"] += 1
        if service.spec.type in ("NodePort", "LoadBalancer"):
            used["services.nodeports"] += sum(1 for port in service.spec.ports if port.node_port)
    return used


def claim_usage(claims: Iterable[core_v1.PersistentVolumeClaim]) -> Used:
    """Count claims and the storage they request, in all and by storage class."""
    used: Used = {}
    for claim in claims:
        storage = claim.spec.resources.requests.get("storage", 0) if claim.spec.resources else 0
        amounts = {"persistentvolumeclaims": Decimal(1), "requests.storage": quantity.parse(storage)}
        prefix = f"{claim.spec.storage_class_name}{_BY_CLASS}" if claim.spec.storage_class_name else ""
        for name, amount in amounts.items():
            for full in (name, prefix + name) if prefix else (name,):
                used[full] = used.get(full, Decimal(0)) + amount
    return used


def in_scopes(pod: core_v1.Pod, quota: core_v1.ResourceQuota) -> bool:
    """True where a pod is one of those that a quota speaks of."""
    selector = quota.spec.scope_selector
    expressions = selector.match_expressions if selector else []
    pairs: list[tuple[str, str, tuple[str, ...]]] = [(scope, "Exists", ()) for scope in quota.spec.scopes]
    pairs += [(e.scope_name, e.operator, tuple(e.values)) for e in expressions]
    return all(_in_scope(pod, scope, operator, values) for scope, operator, values in pairs)


def _in_scope(pod: core_v1.Pod, scope: str, operator: str, values: tuple[str, ...]) -> bool:
    terminating = pod.spec.active_deadline_seconds is not None
    best_effort = not pod_requests(pod) and not pod_limits(pod)
    if scope in ("Terminating", "NotTerminating"):
        return terminating is (scope == "Terminating")
    if scope in ("BestEffort", "NotBestEffort"):
        return best_effort is (scope == "BestEffort")
    if scope == "PriorityClass":
        name = pod.spec.priority_class_name or ""
        known = {"Exists": bool(name), "DoesNotExist": not name, "In": name in values, "NotIn": name not in values}
        return known.get(operator, False)
    if scope == "CrossNamespacePodAffinity":
        return _crosses_namespaces(pod)
    return False


def _crosses_namespaces(pod: core_v1.Pod) -> bool:
    affinity = pod.spec.affinity
    terms: list[core_v1.PodAffinityTerm] = []
    for part in (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity else ():
        if part is not None:
            terms += part.required_during_scheduling_ignored_during_execution
            preferred = part.preferred_during_scheduling_ignored_during_execution
            terms += [w.pod_affinity_term for w in preferred if w.pod_affinity_term is not None]
    return any(term.namespaces or term.namespace_selector is not None for term in terms)


class ResourceQuotaController:
    """Follows quotas, pods and Services."""

    def __init__(self, context: Context) -> None:
        self._client = context.client
        self._quotas = context.informers.of(core_v1.ResourceQuota)
        self._pods = context.informers.of(core_v1.Pod)
        self._services = context.informers.of(core_v1.Service)
        for informer in (self._pods, self._services, self._quotas):
            informer.add_index("namespace", by_namespace)
        self.controller = Controller("resource quota", self.reconcile, workers=2, clock=context.clock)
        self._quotas.subscribe(self._quota_changed)
        self._pods.subscribe(self._pod_changed)
        self._services.subscribe(self._service_changed)

    async def run(self) -> None:
        """Work until cancelled."""
        await self.controller.run()

    def _quota_changed(self, change: Change[core_v1.ResourceQuota]) -> None:
        # Admission charges before the object is stored: counting at that moment would take the charge back.
        if change.old is None or change.old.spec != change.new.spec:
            self.controller.enqueue(change.key)

    def _pod_changed(self, change: Change[core_v1.Pod]) -> None:
        if change.type == "ADDED":
            # A count made between a pod's charge and its being seen here was too low; this one will not be.
            for quota in self._quotas.by_index("namespace", change.new.metadata.namespace or ""):
                self.controller.enqueue_after(key_of(quota), SETTLE_SECONDS)
            return
        done = change.new.status.phase in ("Succeeded", "Failed")
        was_done = change.old is not None and change.old.status.phase in ("Succeeded", "Failed")
        if change.type == "DELETED" or (done and not was_done):
            self._recount(change.new.metadata.namespace or "")

    def _service_changed(self, change: Change[core_v1.Service]) -> None:
        if change.type != "ADDED":
            self._recount(change.new.metadata.namespace or "")

    def _recount(self, namespace: str) -> None:
        for quota in self._quotas.by_index("namespace", namespace):
            self.controller.enqueue(key_of(quota))

    async def reconcile(self, key: str) -> float | None:
        """Write the status of one quota."""
        quota = self._quotas.get(key)
        if quota is None or quota.metadata.deletion_timestamp is not None:
            return None
        hard = quota.spec.hard
        namespace = quota.metadata.namespace or ""
        pods = [p for p in self._pods.by_index("namespace", namespace) if in_scopes(p, quota)]
        used = {**pod_usage(pods), **service_usage(self._services.by_index("namespace", namespace))}
        if any(name == "requests.storage" or _BY_CLASS in name for name in hard):
            claims = await self._client.list(core_v1.PersistentVolumeClaim, namespace)
            used.update(claim_usage(claims.items))
        others = [name for name in hard if name not in used and _counted(name) is not None]
        counts = await count_objects(self._client, namespace, others)
        used.update({name: Decimal(number) for name, number in counts.items()})
        shown: dict[str, str | int | float] = {
            name: quantity.render(used.get(name, Decimal(0)), _family(limit)) for name, limit in hard.items()
        }
        if quota.status.hard != hard or not _equal(quota.status.used, shown):
            status = core_v1.ResourceQuotaStatus(hard=hard, used=shown)
            await self._client.update_status(msgspec.structs.replace(quota, status=status))
        return RESYNC_SECONDS


def _family(limit: str | int | float) -> str:
    return "binary" if str(limit).endswith("i") else "decimal"


def _equal(a: dict[str, str | int | float], b: dict[str, str | int | float]) -> bool:
    return a.keys() == b.keys() and all(quantity.parse(a[name]) == quantity.parse(b[name]) for name in a)


def _counted(name: str) -> tuple[str, str] | None:
    """Return (plural, group) of the objects that a quota name counts, None where it is not a plain count."""
    if _BY_CLASS in name:
        return None
    if name in _BARE_COUNTS:
        return name, ""
    if name.startswith("count/"):
        plural, _, group = name.removeprefix("count/").partition(".")
        return plural, group
    return None


async def count_objects(client: Client, namespace: str, quota_names: list[str]) -> dict[str, int]:
    """Count the objects of a namespace that quota names such as "count/deployments.apps" mean."""
    if not quota_names:
        return {}
    resources, _ = await served(client)
    by_name: dict[tuple[str, str], Served] = {(r.plural, r.group): r for r in resources if r.namespaced}

    async def one(name: str) -> tuple[str, int]:
        resource = by_name.get(_counted(name) or ("", ""))
        if resource is None:
            return name, 0
        try:
            data = await client.call("GET", resource.path(namespace))
        except StatusError as error:
            if error.not_found:
                return name, 0
            raise
        return name, len(msgspec.json.decode(data).get("items") or ())

    return dict(await asyncio.gather(*(one(name) for name in quota_names)))
