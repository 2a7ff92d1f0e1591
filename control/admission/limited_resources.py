"""Limited resources of ResourceQuota's configuration: usable only if a quota of the namespace has them.

`ResourceQuotaConfiguration.limitedResources` names a resource and parts of quota names (`matchContains`), or scopes
(`matchScopes`), for example "pods of the class cluster-services only with a quota for that class".
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from control.admission import quota as quotas
from control.admission.configuration import of_kind
from control.auth.fields import ConfigurationError, known, list_at
from kube.json_object import Object

GROUP = "apiserver.config.k8s.io"
SCOPES = frozenset(
    {
        "PriorityClass",
        "BestEffort",
        "NotBestEffort",
        "Terminating",
        "NotTerminating",
        "CrossNamespacePodAffinity",
        "VolumeAttributesClass",
    }
)


class Limited(msgspec.Struct, frozen=True):
    """One entry: the resource's target, parts of names, and scopes."""

    target: str
    contains: tuple[str, ...]
    scopes: tuple[Object, ...]


def parse(configuration: Object) -> tuple[Limited, ...]:
    """Read the plugin's configuration, empty: none is scarce; raises ConfigurationError."""
    if not configuration:
        return ()
    settings = of_kind(configuration, GROUP, "ResourceQuotaConfiguration", ("v1", "v1beta1", "v1alpha1"))
    known(settings, "", ("apiVersion", "kind", "limitedResources"))
    found = []
    for index, entry in enumerate(list_at(settings, "limitedResources", "")):
        where = f"limitedResources[{index}]"
        known(entry, where, ("apiGroup", "resource", "matchContains", "matchScopes"))
        resource, group = str(entry.get("resource") or ""), str(entry.get("apiGroup") or "")
        if not resource:
            raise ConfigurationError(f"{where}.resource: Required value")
        scopes = tuple(list_at(entry, "matchScopes", where))
        for term in scopes:
            if not isinstance(term, dict) or term.get("scopeName") not in SCOPES:
                raise ConfigurationError(f"{where}.matchScopes: unsupported scope")
        contains = tuple(str(part) for part in list_at(entry, "matchContains", where))
        found.append(Limited(f"{resource}.{group}" if group else resource, contains, scopes))
    return tuple(found)


def refusal(
    limited: Iterable[Limited], target: str, obj: Object, asked: Iterable[str], present: Iterable[Object]
) -> str:
    """Return why an object that requests some quota names is not let in under the namespace's quotas, or ""."""
    entries = [entry for entry in limited if entry.target == target]
    if not entries:
        return ""
    names = {name for name in asked for entry in entries for part in entry.contains if part in name}
    subject = quotas.Subject(target, obj)
    scopes = [term for entry in entries for term in entry.scopes if subject.in_scope(term)]
    covering = [quota for quota in present if subject.within(quotas.scopes(quota))]
    missing = names - {name for quota in covering for name in (quota.get("spec") or {}).get("hard") or ()}
    if missing:
        return f"insufficient quota to consume: {','.join(sorted(missing))}"
    open_ = [term for term in scopes if not any(term["scopeName"] in _scopes_of(quota) for quota in covering)]
    if open_:
        shown = " ".join(
            f"{{{t['scopeName']} {t.get('operator', 'Exists')} [{' '.join(t.get('values') or ())}]}}" for t in open_
        )
        return f"insufficient quota to match these scopes: [{shown}]"
    return ""


def _scopes_of(quota: Object) -> set[str]:
    return {term.get("scopeName", "") for term in quotas.scopes(quota)}
