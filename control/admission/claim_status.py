"""The status of ResourceClaims: allocations are the scheduler's to write, the state of devices their drivers'.

Changing `allocation` or `reservedFor` needs the request's verb on `resourceclaims/binding` in all namespaces. Changing
`devices` needs `arbitrary-node:VERB` on `resourceclaims/driver` with each driver's name, or `associated-node:VERB` where the
user is a service account whose pod runs on the node that the claim is allocated on. Upstream asks while it validates
(pkg/registry/resource/utils.go, feature DRAResourceClaimGranularStatusAuthorization).
"""

from __future__ import annotations

import msgspec

from control.auth import denial
from control.auth.authorizers import decide
from control.auth.user import Authorizer, AuthzAttributes, Decision, UserInfo
from control.interfaces.admission import Attributes, Plugin
from kube import names
from kube.errors import FieldError, forbidden_field, invalid
from kube.json_object import Object, without_empty

_TARGET = "resourceclaims.resource.k8s.io"
_NODE_NAME = "authentication.kubernetes.io/node-name"
_ASSOCIATED, _ARBITRARY = "associated-node:", "arbitrary-node:"


class ClaimStatus(Plugin):
    name = "ClaimStatus"
    targets = (_TARGET,)

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    def handles(self, attributes: Attributes) -> bool:
        a = attributes
        return a.asked is not None and (a.resource.target, a.operation, a.subresource) == (_TARGET, "UPDATE", "status")

    async def validate(self, attributes: Attributes) -> None:
        new, old = (_parts(obj) for obj in (attributes.obj, attributes.old))
        problems = await self._binding(attributes, new, old)
        if new["allocation"] is not None:  # what is said of devices that are not allocated is dropped
            problems += await self._devices(attributes, new, old)
        if problems:
            raise invalid(attributes.resource.group, attributes.resource.kind, attributes.name, problems)

    async def _binding(self, attributes: Attributes, new: Object, old: Object) -> list[FieldError]:
        if all(new[part] == old[part] for part in ("allocation", "reservedFor")):
            return []
        assert attributes.asked is not None
        verb = attributes.asked.verb
        if not (why := await self._refusal(attributes, verb, "binding", "", "")):
            return []
        needed = f'resource="resourceclaims/binding", verb="{verb}" permission'
        why = f"changing status.allocation or status.reservedFor requires {needed}: {why}"
        return [forbidden_field("status.allocation", why)]

    async def _devices(self, attributes: Attributes, new: Object, old: Object) -> list[FieldError]:
        assert attributes.asked is not None
        verbs = [_ARBITRARY + attributes.asked.verb]
        if _runs_on(attributes.user, _node_of(new["allocation"])):
            verbs.insert(0, _ASSOCIATED + attributes.asked.verb)
        problems = []
        for driver in sorted(_changed_drivers(new, old)):
            reasons = []
            for verb in verbs:
                why = await self._refusal(attributes, verb, "driver", attributes.namespace, driver)
                if not why:
                    break
                reasons.append(why)
            else:
                needed = f'resource="resourceclaims/driver", verb="[{" ".join(verbs)}]" permission'
                why = f"changing status.devices requires {needed}: {reasons[0]}"
                problems.append(forbidden_field("status.devices", why))
        return problems

    async def _refusal(self, attributes: Attributes, verb: str, part: str, namespace: str, name: str) -> str:
        """Return why a user may not write a part of a status, "" where they may."""
        assert attributes.asked is not None
        asked: AuthzAttributes = msgspec.structs.replace(
            attributes.asked, verb=verb, subresource=part, namespace=namespace, name=name
        )
        decision, reason = await decide(self._authorizer, asked)
        return "" if decision is Decision.ALLOW else denial.denied(asked, reason).message


def _parts(obj: Object | None) -> Object:
    """Return the checked parts of a claim's status, without empty values."""
    status = (obj or {}).get("status") or {}
    lists: Object = {part: without_empty(status.get(part) or []) for part in ("reservedFor", "devices")}
    return {"allocation": without_empty(status.get("allocation")), **lists}


def _changed_drivers(new: Object, old: Object) -> set[str]:
    """Return the drivers of the devices whose state was added, changed or removed."""
    before, after = ({_device(each): each for each in status["devices"]} for status in (old, new))
    return {key[0] for key in before.keys() | after.keys() if before.get(key) != after.get(key)}


def _device(state: Object) -> tuple[str, str, str, str]:
    driver, pool, device, share = (state.get(part) or "" for part in ("driver", "pool", "device", "shareID"))
    return driver, pool, device, share


def _node_of(allocation: Object) -> str:
    """Return the one node that an allocation is for, "" where it is for others too."""
    terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or []
    if len(terms) != 1 or terms[0].get("matchExpressions") or len(terms[0].get("matchFields") or []) != 1:
        return ""
    field = terms[0]["matchFields"][0]
    values = field.get("values") or []
    one = field.get("key") == "metadata.name" and field.get("operator") == "In" and len(values) == 1
    return str(values[0]) if one else ""


def _runs_on(user: UserInfo, node: str) -> bool:
    """Return whether a user is a service account whose pod runs on a node."""
    account = user.name.startswith("system:serviceaccount:") and user.name.count(":") == 3
    return bool(node) and account and user.extra.get(_NODE_NAME) == (node,) and not names.dns1123_subdomain(node)
