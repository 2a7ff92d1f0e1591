"""PodTolerationRestriction (off by default): a namespace sets default tolerations of its pods, and a whitelist.

Both are JSON lists in annotations of the namespace, scheduler.alpha.kubernetes.io/defaultTolerations and
/tolerationsWhitelist; if one is missing, the plugin's configuration applies. Pods that are not best effort tolerate memory
pressure, as the kubelet's admission does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from control.admission.configuration import of_kind
from control.admission.refusal import refuse
from control.auth.fields import list_at
from control.decoding.decode import load_json
from control.decoding.typed import to_object
from control.interfaces.admission import Attributes, Plugin
from control.interfaces.lookup import Lookup, find
from control.registry.core.pod.qos import qos_class
from kube.api import core_v1
from kube.errors import StatusError, not_found
from kube.json_object import Object

DEFAULTS = "scheduler.alpha.kubernetes.io/defaultTolerations"
WHITELIST = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
GROUP = "podtolerationrestriction.admission.k8s.io"
PRESSURE = {"key": "node.kubernetes.io/memory-pressure", "operator": "Exists", "effect": "NoSchedule"}


class PodTolerationRestriction(Plugin):
    name = "PodTolerationRestriction"
    targets = ("pods",)

    def __init__(self, lookup: Lookup, configuration: Object | None = None) -> None:
        self._lookup = lookup
        settings = of_kind(configuration, GROUP, "Configuration", ("v1alpha1",)) if configuration else {}
        self._default: list[Object] = list_at(settings, "default", "")
        self._whitelist: list[Object] = list_at(settings, "whitelist", "")

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
            if merged != spec.get("tolerations"):
                attributes.changed(self.name, "spec.tolerations")
            spec["tolerations"] = merged

    async def validate(self, attributes: Attributes) -> None:
        tolerations = ((attributes.obj or {}).get("spec") or {}).get("tolerations") or []
        if not tolerations:
            return
        whitelist, scope = await self._of_namespace(attributes, WHITELIST), "namespace"
        if whitelist is None:
            whitelist, scope = self._whitelist, "cluster"
        allowed = Tolerated(whitelist)
        if whitelist and not all(allowed.cover(each) for each in tolerations):
            raise refuse(
                attributes,
                "pod tolerations (possibly merged with namespace default tolerations) conflict with its "
                f"{scope} whitelist",
            )

    async def _of_namespace(self, attributes: Attributes, annotation: str) -> list[Object] | None:
        """Return the tolerations of a namespace's annotation; None if it has none."""
        namespace = await find(self._lookup, "namespaces", "", attributes.namespace)
        if namespace is None:
            raise not_found("", "namespaces", attributes.namespace)
        text = (namespace["metadata"].get("annotations") or {}).get(annotation)
        if not text:
            return None if text is None else []
        try:
            tolerations = to_object({"tolerations": load_json(text.encode())}, core_v1.PodSpec).get("tolerations")
        except (ValueError, msgspec.ValidationError) as error:
            raise StatusError(500, "InternalError", f"{annotation}: {error}") from error
        return tolerations or []


class Tolerated:
    """Index of tolerations: a pod of 1 MiB has tens of thousands, and each is compared with all others.

    Of those that differ only in their seconds the two widest are kept, of which at least one is unequal to any given one.
    """

    def __init__(self, tolerations: Iterable[Object] = ()) -> None:
        self._widest: dict[tuple[str, ...], list[Object]] = {}
        for each in tolerations:
            self.add(each)

    def add(self, toleration: Object) -> None:
        known = self._widest.setdefault(_kind(toleration), [])
        if toleration not in known:
            known.append(toleration)
            known.sort(key=_seconds, reverse=True)
            del known[2:]

    def cover(self, narrow: Object, *, unequal: bool = False) -> bool:
        """Return whether one of them covers a toleration; `unequal`: one that is not the same."""
        operator, value = narrow.get("operator") or "Equal", narrow.get("value", "")
        return any(
            covers(wide, narrow) and not (unequal and wide == narrow)
            for key in {narrow.get("key", ""), ""}
            for effect in {narrow.get("effect", ""), ""}
            for kind in ((key, effect), (key, effect, operator, value))
            for wide in self._widest.get(kind, ())
        )


def _kind(toleration: Object) -> tuple[str, ...]:
    """Return the fields of a toleration except its seconds."""
    place = toleration.get("key", ""), toleration.get("effect", "")
    if toleration.get("operator") == "Exists":
        return place
    return (*place, toleration.get("operator") or "Equal", toleration.get("value", ""))


def _seconds(toleration: Object) -> float:
    """Return the seconds of a toleration for the comparison."""
    seconds = toleration.get("tolerationSeconds")
    return math.inf if seconds is None or toleration.get("effect") != "NoExecute" else seconds


def merge(tolerations: Sequence[Object]) -> list[Object]:
    """Return tolerations without those that another one covers; of equal ones the first is kept."""
    later, narrow = Tolerated(), [False] * len(tolerations)
    for index, each in reversed(list(enumerate(tolerations))):
        narrow[index] = later.cover(each, unequal=True)
        later.add(each)
    merged, before = list[Object](), Tolerated()
    for index, each in enumerate(tolerations):
        if not narrow[index] and not before.cover(each):
            merged.append(each)
            before.add(each)
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
