"""PodNodeSelector (off by default): a namespace's node selector for its pods.

The annotation scheduler.alpha.kubernetes.io/node-selector of the namespace, or clusterDefaultNodeSelector of the plugin's
configuration where there is none, is added to each new pod's selector and must not contradict it. The configuration may
also list, by namespace, the only labels that pods there may select.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from control.admission.refusal import refuse
from control.auth.fields import ConfigurationError
from control.interfaces.admission import Attributes, Plugin
from control.interfaces.lookup import Lookup, find
from kube.errors import StatusError, not_found

ANNOTATION = "scheduler.alpha.kubernetes.io/node-selector"
DEFAULT = "clusterDefaultNodeSelector"


class PodNodeSelector(Plugin):
    name = "PodNodeSelector"
    targets = ("pods",)

    def __init__(self, lookup: Lookup, configuration: Mapping[str, Any] | None = None) -> None:
        self._lookup = lookup
        settings = (configuration or {}).get("podNodeSelectorPluginConfig") or {}
        if not isinstance(settings, dict):
            raise ConfigurationError("podNodeSelectorPluginConfig: must be an object")
        try:
            self._by_namespace = {str(name): labels_of(str(text or "")) for name, text in settings.items()}
        except ValueError as error:
            raise ConfigurationError(f"podNodeSelectorPluginConfig: {error}") from error

    def handles(self, attributes: Attributes) -> bool:
        return attributes.concern("pods", "CREATE")

    async def admit(self, attributes: Attributes) -> None:
        wanted = await self._wanted(attributes)
        spec = (attributes.obj or {}).setdefault("spec", {})
        self._refuse_conflict(attributes, wanted)
        if wanted:
            spec["nodeSelector"] = {**wanted, **(spec.get("nodeSelector") or {})}
            attributes.changed(self.name, "spec.nodeSelector")
        await self.validate(attributes)

    async def validate(self, attributes: Attributes) -> None:
        self._refuse_conflict(attributes, await self._wanted(attributes))
        allowed = self._by_namespace.get(attributes.namespace)
        if allowed and not _selector(attributes).items() <= allowed.items():
            raise refuse(attributes, "pod node label selector labels conflict with its namespace whitelist")

    def _refuse_conflict(self, attributes: Attributes, wanted: Mapping[str, str]) -> None:
        has = _selector(attributes)
        if any(has.get(key, value) != value for key, value in wanted.items()):
            raise refuse(attributes, "pod node label selector conflicts with its namespace node label selector")

    async def _wanted(self, attributes: Attributes) -> Mapping[str, str]:
        namespace = await find(self._lookup, "namespaces", "", attributes.namespace)
        if namespace is None:
            raise not_found("", "namespaces", attributes.namespace)
        text = (namespace["metadata"].get("annotations") or {}).get(ANNOTATION)
        if text is None:
            return self._by_namespace.get(DEFAULT, {})
        try:
            return labels_of(text)
        except ValueError as error:
            raise StatusError(500, "InternalError", str(error)) from error


def _selector(attributes: Attributes) -> dict[str, str]:
    return ((attributes.obj or {}).get("spec") or {}).get("nodeSelector") or {}


def labels_of(text: str) -> dict[str, str]:
    """Read `key=value,key=value`; raises ValueError."""
    found = {}
    for part in text.split(",") if text else ():
        key, is_there, value = part.partition("=")
        if not is_there:
            raise ValueError(f"invalid selector: [{part}]")
        found[key.strip()] = value.strip()
    return found
