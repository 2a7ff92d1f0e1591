"""ResourceQuota: an object is charged to the quotas of its namespace before it is stored, or refused.

The charge is a compare-and-swap on the quota's status, so that two servers, or two requests, cannot both use
the last unit; within one server a lock for each namespace avoids conflicts. Usage of requests that fail afterwards, and of
objects deleted later, is released by the quota controller, which counts again. A dry run charges nothing.
"""

from __future__ import annotations

from typing import NamedTuple

from control.admission import limited_resources, object_work
from control.admission import quota as quotas
from control.admission.quota import Usage
from control.admission.refusal import refuse
from control.interfaces.admission import Attributes, Plugin
from control.interfaces.lookup import Lookup
from kube.errors import StatusError
from kube.json_object import Object
from kube.locks import Locks

_ATTEMPTS = 5
_IGNORED = frozenset(
    {
        "bindings",
        "componentstatuses",
        "events",
        "events.events.k8s.io",
        "tokenreviews.authentication.k8s.io",
        "selfsubjectreviews.authentication.k8s.io",
        "subjectaccessreviews.authorization.k8s.io",
        "selfsubjectaccessreviews.authorization.k8s.io",
        "localsubjectaccessreviews.authorization.k8s.io",
        "selfsubjectrulesreviews.authorization.k8s.io",
    }
)
"""Kinds that are not stored, and Events, which upstream does not count either (pkg/quota/v1/install)."""
_ON_UPDATE = frozenset(
    {
        ("services", ""),
        ("persistentvolumeclaims", ""),
        ("resourceclaims.resource.k8s.io", ""),
        ("pods", "resize"),
    }
)


class RequestedUsage(NamedTuple):
    """Usage of a request: that of the whole object, and its increase."""

    whole: Usage
    more: Usage
    obj: quotas.Subject
    old: quotas.Subject | None

    def of(self, quota: Object) -> Usage:
        """Return the usage to charge to a quota: the whole if the object did not match its scopes before."""
        scopes = quotas.scopes(quota)
        if not self.obj.within(scopes):
            return {}
        return self.more if self.old is None or self.old.within(scopes) else self.whole


def _requested(target: str, obj: Object, old: Object | None) -> RequestedUsage:
    whole = quotas.usage(target, obj, requested=True)
    subject = quotas.Subject(target, obj)
    if old is None:
        return RequestedUsage(whole, whole, subject, None)
    more = quotas.subtract(whole, quotas.usage(target, old))
    return RequestedUsage(whole, more, subject, quotas.Subject(target, old))


def _changes_scope(attributes: Attributes) -> bool:
    """Return whether a pod gets a deadline, which is the scope Terminating, or loses it."""
    first, second = (
        ((obj or {}).get("spec") or {}).get("activeDeadlineSeconds") is None for obj in (attributes.obj, attributes.old)
    )
    return first != second


class ResourceQuota(Plugin):
    name = "ResourceQuota"

    def __init__(self, lookup: Lookup, configuration: Object | None = None) -> None:
        self._lookup = lookup
        self._limited = limited_resources.parse(configuration or {})
        self._locks = Locks()

    def handles(self, attributes: Attributes) -> bool:
        if not attributes.namespace or attributes.resource.target in _IGNORED:
            return False
        if attributes.operation == "UPDATE":
            place = attributes.resource.target, attributes.subresource
            return place in _ON_UPDATE or (place == ("pods", "") and _changes_scope(attributes))
        return attributes.operation == "CREATE" and not attributes.subresource

    async def validate(self, attributes: Attributes) -> None:
        if not self._limited and not self._lookup.count("resourcequotas", attributes.namespace):
            return
        target, obj = attributes.resource.target, attributes.obj or {}
        requested = await object_work.run(attributes, _requested, target, obj, attributes.old)
        async with self._locks.of(attributes.namespace):
            if self._limited:
                present = [quota async for quota, _ in self._lookup.each("resourcequotas", attributes.namespace)]
                if requested.more or any(map(requested.of, present)):
                    if why := limited_resources.refusal(self._limited, target, obj, requested.whole, present):
                        raise refuse(attributes, why)
            charged: list[str] = []
            # All are looked at before one is charged, and none is kept: each may be as large as an object can be.
            async for quota, _ in self._lookup.each("resourcequotas", attributes.namespace):
                if _delta(attributes, quota, target, obj, requested):
                    charged.append(quota["metadata"]["name"])
            if not attributes.dry_run:
                for name in sorted(charged):
                    await self._write(attributes, name, target, obj, requested)

    async def _write(
        self, attributes: Attributes, name: str, target: str, obj: Object, requested: RequestedUsage
    ) -> None:
        """Add to a quota's `used`, on conflicts from its newest version. A quota that is gone limits nothing."""
        quota = self._lookup.get("resourcequotas", attributes.namespace, name)
        for _ in range(_ATTEMPTS):
            delta = _delta(attributes, quota, target, obj, requested) if quota is not None else {}
            if quota is None or not delta:
                return
            before = quota["status"].get("used") or {}
            used = quotas.parse(before, delta)
            total = quotas.render({name: used.get(name, 0) + value for name, value in delta.items()})
            try:
                await self._lookup.update_status(
                    "resourcequotas", quota | {"status": quota["status"] | {"used": before | total}}
                )
                return
            except StatusError as error:
                if not error.conflict:
                    raise
            quota = await self._lookup.fresh("resourcequotas", attributes.namespace, name)
        raise refuse(attributes, f"unable to charge quota {name}: it changes too fast")


def _delta(attributes: Attributes, quota: Object, target: str, obj: Object, requested: RequestedUsage) -> Usage:
    """Return what an object adds to a quota; raise if that exceeds it or cannot be determined."""
    name = quota["metadata"]["name"]
    hard = (quota.get("status") or {}).get("hard") or quota.get("spec", {}).get("hard") or {}
    if not requested.obj.within(quotas.scopes(quota)):
        return {}
    if target == "pods" and attributes.operation == "CREATE":
        unsaid = quotas.unsaid(hard, obj["spec"])
        if unsaid:
            raise refuse(attributes, f"failed quota: {name}: must specify {unsaid}")
    delta = {key: value for key, value in requested.of(quota).items() if key in hard}
    hard, used = (quotas.parse(each, delta) for each in (hard, (quota.get("status") or {}).get("used")))
    unknown = sorted(delta.keys() - used.keys())
    if unknown:
        raise refuse(attributes, f"status unknown for quota: {name}, resources: {','.join(unknown)}")
    over = {key for key, value in delta.items() if used[key] + value > hard[key]}
    if over:
        parts = [quotas.show({key: source[key] for key in over}) for source in (delta, used, hard)]
        raise refuse(
            attributes, f"exceeded quota: {name}, requested: {parts[0]}, used: {parts[1]}, limited: {parts[2]}"
        )
    return delta
