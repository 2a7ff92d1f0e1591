"""PodTolerationRestriction (off by default): a namespace gives its pods tolerations, and says which ones they may have.

Annotations of the namespace hold both as JSON lists, scheduler.alpha.kubernetes.io/defaultTolerations and
/tolerationsWhitelist; where one is missing the plugin's configuration stands in. Pods that are not best effort tolerate memory
pressure, as their nodes' kubelets would have it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from control.admission.configuration import of_kind
from control.admission.lookup import Lookup, find
from control.admission.plugin import Attributes, Plugin
from control.admission.refusal import refuse
from control.auth.fields import list_at
from control.registry.core.qos import qos_class
from kube.errors import StatusError, not_found

Object = dict[str, Any]
DEFAULTS = "scheduler.alpha.kubernetes.io/defaultTolerations"
WHITELIST = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
GROUP = "podtolerationrestriction.admission.k8s.io"
PRESSURE = {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}


class PodTolerationRestriction(Plugin):
    name = "PodTolerationRestriction"

    def __init__(self, lookup: Lookup, configuration: Object | None = None) -> None:
        self._lookup = lookup
        told = of_kind(configuration, GROUP, "Configuration", ("v1alpha1",)) if configuration else {}
        self._default: list[Object] = list_at(told, "default", "")
        self._whitelist: list[Object] = list_at(told, "whitelist", "")

    def handles(self, attributes: Attributes) -> bool:
        return attributes.concern("pods", "CREATE", "UPDATE")

    async def admit(self, attributes: Attributes) -> None:
        spec = (attributes.obj or {}).setdefault("spec", {})
        tolerations = list(spec.get("tolerations") or ())
        if attributes.operation == "CREATE":
            given = await self._of_namespace(attributes, DEFAULTS)
            tolerations = [*(self._default if given is None else given), *tolerations]
        if qos_class(spec) != "BestEffort":
            tolerations.append(PRESSURE)
        merged = merge(tolerations)
        if merged:
            spec["tolerations"] = merged

    async def validate(self, attributes: Attributes) -> None:
        tolerations = ((attributes.obj or {}).get("spec") or {}).get("tolerations") or []
        if not tolerations:
            return
        whitelist, scope = await self._of_namespace(attributes, WHITELIST), "namespace"
        if whitelist is None:
            whitelist, scope = self._whitelist, "cluster"
        if whitelist and not all(any(covers(allowed, each) for allowed in whitelist) for each in tolerations):
            raise refuse(
                attributes,
                "pod tolerations (possibly merged with namespace default tolerations) conflict with its "
                f"{scope} whitelist",
            )

    async def _of_namespace(self, attributes: Attributes, annotation: str) -> list[Object] | None:
        """Return what the namespace says; None where it says nothing."""
        namespace = await find(self._lookup, "namespaces", "", attributes.namespace)
        if namespace is None:
            raise not_found("", "namespaces", attributes.namespace)
        text = (namespace["metadata"].get("annotations") or {}).get(annotation)
        if not text:
            return None if text is None else []
        try:
            found = json.loads(text)
            if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
                raise ValueError("it is no list of tolerations")
        except ValueError as error:
            raise StatusError(500, "InternalError", f"{annotation}: {error}") from error
        return found


def merge(tolerations: Sequence[Object]) -> list[Object]:
    """Return tolerations without those that another one covers; of equal ones the first stays."""
    merged: list[Object] = []
    for index, each in enumerate(tolerations):
        if any(covers(other, each) for other in merged):
            continue
        if any(other != each and covers(other, each) for other in tolerations[index + 1 :]):
            continue
        merged.append(each)
    return merged


def covers(wide: Object, narrow: Object) -> bool:
    """True if one toleration tolerates everything that another one does."""
    exists = wide.get("operator") == "Exists"
    if wide.get("key", "") != narrow.get("key", "") and (wide.get("key") or not exists):
        return False
    if wide.get("effect") and wide["effect"] != narrow.get("effect", ""):
        return False
    if wide.get("effect") == "NoExecute" and wide.get("tolerationSeconds") is not None:
        seconds = narrow.get("tolerationSeconds")
        if seconds is None or seconds > wide["tolerationSeconds"]:
            return False
    if exists:
        return True
    operators = (wide.get("operator") or "Equal", narrow.get("operator") or "Equal")
    return operators[0] == operators[1] and wide.get("value", "") == narrow.get("value", "")
