"""Bodies of requests that write: whole objects and changes, and what they say amiss of themselves."""

from __future__ import annotations

import copy
from random import Random

from kube.json_object import Object
from tests.support.authorised.calls import one, some
from tests.support.authorised.objects import NAMESPACES, whole
from tests.support.authorised.targets import Target
from tests.support.authorised.world import World


def fresh(rng: Random, world: World, target: Target, namespace: str, name: str) -> Object:
    """Return a whole object that the server takes, under a name."""
    obj = copy.deepcopy(whole(target, namespace or "left", "b.c", world.csr))
    obj.pop("status", None)
    obj["metadata"]["name"] = name
    if target.plural == "pods":
        _pod(rng, obj)
    if target.plural.endswith("admissionpolicies") and some(rng, 2):
        del obj["spec"]["paramKind"]
    if target.plural.endswith("admissionpolicybindings") and some(rng, 2):
        obj["spec"]["policyName"] = one(rng, ("a", "b.c"))
        obj["spec"]["paramRef"] = {"name": "a", "namespace": "right", "parameterNotFoundAction": "Deny"}
    return obj


def _pod(rng: Random, pod: Object) -> None:
    """Let a pod run as the account that may use one Secret alone, and name Secrets."""
    pod["spec"]["serviceAccountName"] = one(rng, ("a", "default"))
    env = {"name": "S", "valueFrom": {"secretKeyRef": {"name": one(rng, ("a", "b.c")), "key": "k"}}}
    match one(rng, range(4)):
        case 0:
            pod["spec"]["containers"] = [{"name": "c", "image": "busybox", "env": [env]}]
        case 1:
            pod["spec"]["volumes"] = [{"name": "s", "secret": {"secretName": env["valueFrom"]["secretKeyRef"]["name"]}}]


def twisted(rng: Random, world: World, target: Target, namespace: str, obj: Object) -> Object:
    """Change here and there what an object says of itself: another name, namespace, uid, owner, label."""
    meta = obj["metadata"]
    for _ in range(one(rng, (0, 1, 1, 2))):
        match one(rng, range(11)):
            case 0:
                meta["name"] = one(rng, ("a", "b.c", "fresh", "../a", "a/b.c"))
            case 1:
                meta["namespace"] = one(rng, (*NAMESPACES, ""))
            case 2:
                other = world.object(target, "right" if target.namespaced else "", "b.c")
                meta["uid"] = (other or meta).get("metadata", {}).get("uid", "zq")
            case 3:
                blocks = one(rng, (True, False))
                owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "b.c", "uid": "u-1"}
                if some(rng, 3):
                    owner |= {"kind": "Node", "name": "n1"}
                meta["ownerReferences"] = [owner | ({"blockOwnerDeletion": True} if blocks else {})]
            case 4:
                meta["finalizers"] = ["example.com/held"]
            case 5:
                meta.setdefault("labels", {})["part-of"] = "all"
            case 6:
                meta["generateName"] = "made-"
                meta.pop("name", None)
            case 7:
                meta["resourceVersion"] = one(rng, ("1", "0", ""))
            case 8:
                meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            case _:
                meta.setdefault("labels", {})["touched"] = "yes"
    return obj


def changes_of(rng: Random, world: World, target: Target) -> Object:
    """Return a merge patch: labels, mostly, else what is another's or another part's."""
    match one(rng, range(12)):
        case 0:
            return {"metadata": {"name": one(rng, ("b.c", "fresh"))}}
        case 1:
            return {"metadata": {"namespace": one(rng, NAMESPACES)}}
        case 2:
            return {"metadata": {"uid": "u-9"}}
        case 3:
            return {"metadata": {"labels": {"part-of": "all"}}}
        case 4:
            owner = {"apiVersion": "v1", "kind": one(rng, ("ConfigMap", "Node")), "name": "n1", "uid": "u-1"}
            return {"metadata": {"ownerReferences": [owner | {"blockOwnerDeletion": some(rng, 2)}]}}
        case 5:
            return {"metadata": {"finalizers": ["example.com/held"]}}
        case 6:
            return {"status": status_of(target), "metadata": {"labels": {"touched": "yes"}}}
        case 7:
            return {"spec": {"replicas": 3, "paused": True, "crew": 3, "unschedulable": True}}
        case 8:
            return {"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["*"]}]}
        case 9:
            return {"subjects": [{"kind": "User", "name": "mallory", "apiGroup": "rbac.authorization.k8s.io"}]}
        case _:
            return {"metadata": {"labels": {"touched": "yes"}}, "data": {"k": "djI="}}


def status_of(target: Target) -> Object:
    match target.plural:
        case "resourceclaims":
            return {"reservedFor": [{"resource": "pods", "name": "a", "uid": "u-1"}], "allocation": {"devices": {}}}
        case "pods":
            return {"phase": "Failed", "message": "touched"}
        case "certificatesigningrequests":
            condition = {"type": "Failed", "status": "True", "reason": "touched", "message": "touched"}
            return {"conditions": [condition]}
        case _:
            return {"phase": "touched", "replicas": 7, "crew": 2}
