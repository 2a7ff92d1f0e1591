"""Invariants of every request: secrets that an account may use, times to live, headers, objects that a node may read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from control.auth.user import AuthzAttributes, Decision, UserInfo
from kube.json_object import Object
from tests.support.authorised import canaries
from tests.support.authorised.calls import HIDDEN, Call
from tests.support.authorised.objects import NAMESPACES
from tests.support.authorised.recording import Record
from tests.support.authorised.targets import TARGETS, target_of
from tests.support.authorised.world import Sent, World

NODE = UserInfo("system:node:n1", groups=("system:nodes", "system:authenticated"))
MIRROR = "kubernetes.io/config.mirror"
_EXPIRE = ("", "events.k8s.io")
_READ_BY_NODES = ("secrets", "configmaps", "persistentvolumeclaims", "resourceclaims.resource.k8s.io")


def broken(world: World, call: Call, record: Record) -> Iterator[str]:
    """Yield what should hold after any request and does not."""
    for dial in record.dials:
        for name, value in call.headers:
            if HIDDEN in value and value.encode() in dial.sent:
                yield f"the client's header {name} was passed on to {dial.host}"
    for write in record.writes:
        found = target_of(write.key)
        if found is None or write.new is None:
            continue
        target, namespace, name = found
        if write.ttl and not (target.plural == "events" and target.group in _EXPIRE):
            yield f"{target.plural}.{target.group} {namespace}/{name} was stored for {write.ttl} s, and only Events expire"
        if target.plural == "pods":
            yield from _mountable(world, namespace, name, write.new, write.old)
            annotations = [
                ((o or {}).get("metadata", {}).get("annotations") or {}).get(MIRROR) for o in (write.new, write.old)
            ]
            if call.user == NODE.name and write.old is not None and annotations[0] != annotations[1]:
                yield f"a node changed the annotation {MIRROR} of pod {namespace}/{name}"


def _mountable(world: World, namespace: str, name: str, pod: Object, old: Object | None) -> Iterator[str]:
    """Yield Secrets that a pod came to name although its account may not use them (enforce-mountable-secrets)."""
    account = (
        world.object(TARGETS["serviceaccounts"], namespace, pod["spec"].get("serviceAccountName") or "default") or {}
    )
    annotations = account.get("metadata", {}).get("annotations") or {}
    if annotations.get("kubernetes.io/enforce-mountable-secrets") != "true":
        return
    allowed = {ref["name"] for ref in account.get("secrets") or ()}
    for secret in sorted(_secrets(pod["spec"]) - _secrets((old or {}).get("spec", {})) - allowed):
        yield f"pod {namespace}/{name} names Secret {secret}, which its account may not use"


def _secrets(value: Any) -> set[str]:
    """Return the names of all Secrets that are mentioned anywhere in a pod's spec."""
    found: set[str] = set()
    if isinstance(value, list):
        for item in value:
            found |= _secrets(item)
    if isinstance(value, dict):
        for key, item in value.items():
            if key in ("secretKeyRef", "secretRef") and isinstance(item, dict):
                found.add(str(item.get("name", "")))
            elif key == "secret" and isinstance(item, dict):
                found.add(str(item.get("secretName") or item.get("name", "")))
            else:
                found |= _secrets(item)
    return found - {""}


def beyond_its_pods(world: World, sent: Sent) -> Iterator[str]:
    """Yield Secrets and ConfigMaps that node n1 was shown and that none of its pods names."""
    shown = (world.owners[own] for own in canaries.texts(sent.everything) if own in world.owners)
    for target, namespace, name in shown:
        if target.plural not in ("secrets", "configmaps"):
            continue
        pods = (world.object(TARGETS["pods"], namespace, pod) or {} for pod in world.seeded(TARGETS["pods"], namespace))
        specs = [pod["spec"] for pod in pods if pod.get("spec", {}).get("nodeName") == "n1"]
        if not any(name in _secrets(spec) | _config_maps(spec) for spec in specs):
            yield f"{target.plural} {namespace}/{name} was shown to a node none of whose pods names it"


def _config_maps(spec: Object) -> set[str]:
    return {volume["configMap"]["name"] for volume in spec.get("volumes") or () if "configMap" in volume}


def readable_by_node(world: World) -> frozenset[tuple[str, str, str]]:
    """Return which of the seeded objects the Node authorizer lets node n1 get."""
    found = set()
    for name in _READ_BY_NODES:
        target = TARGETS[name]
        for namespace in NAMESPACES:
            for seed in world.seeded(target, namespace):
                requested = AuthzAttributes(
                    user=NODE,
                    verb="get",
                    group=target.group,
                    version=target.version,
                    resource=target.plural,
                    namespace=namespace,
                    name=seed,
                )
                if world.api.auth.node.authorize(requested)[0] is Decision.ALLOW:
                    found.add((name, namespace, seed))
    return frozenset(found)
