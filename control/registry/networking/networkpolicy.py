"""NetworkPolicies: which traffic chosen pods take and send."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator

from control.registry.cells import AGE, NAME, Column, Field, selector_text
from control.registry.checks import cidr, label_selector, one_of, port, port_or_name
from control.registry.strategy import Object, Strategy
from kube.errors import FieldError, forbidden_field, invalid_value, required


def _validate_port(item: Object, path: str) -> list[FieldError]:
    errors = one_of(item.get("protocol"), ("TCP", "UDP", "SCTP"), f"{path}.protocol", needed=False)
    number, last = item.get("port"), item.get("endPort")
    if number is not None:
        errors += port_or_name(number, f"{path}.port")
        if last is not None:
            if isinstance(number, str):
                detail = "may not be specified when `port` is non-numeric"
                errors.append(invalid_value(f"{path}.endPort", last, detail))
            elif last < number:
                errors.append(invalid_value(f"{path}.endPort", last, "must be greater than or equal to `port`"))
            if not isinstance(number, str):
                errors += port(last, f"{path}.endPort")
    elif last is not None:
        errors.append(invalid_value(f"{path}.endPort", last, "may not be specified when `port` is not specified"))
    return errors


def _validate_peer(peer: Object, path: str, known: Collection[str]) -> list[FieldError]:
    found = [k for k in ("podSelector", "namespaceSelector", "ipBlock") if peer.get(k) is not None]
    if not found:
        return [required(path, "must specify a peer")]
    if "ipBlock" in found:
        if len(found) > 1:
            return [forbidden_field(path, "may not specify both ipBlock and another peer")]
        return _validate_block(peer["ipBlock"], f"{path}.ipBlock", known)
    return [e for k in found for e in label_selector(peer[k], f"{path}.{k}")]


def _validate_cidr(text: str, path: str, known: Collection[str]) -> list[FieldError]:
    return [] if text in known else cidr(text, path)


def _validate_block(block: Object, path: str, known: Collection[str]) -> list[FieldError]:
    text = block.get("cidr") or ""
    if not text:
        return [required(f"{path}.cidr")]
    errors = _validate_cidr(text, f"{path}.cidr", known)
    try:
        net = ipaddress.ip_network(text, strict=False)
    except ValueError:
        return errors
    for index, hole in enumerate(block.get("except") or ()):
        where = f"{path}.except[{index}]"
        errors += _validate_cidr(hole, where, known)
        try:
            part = ipaddress.ip_network(hole, strict=False)
        except ValueError:
            continue
        if (
            part.version != net.version
            or int(part.network_address) not in range(int(net.network_address), int(net.broadcast_address) + 1)
            or part.prefixlen <= net.prefixlen
        ):
            errors.append(invalid_value(where, hole, "must be a strict subset of `cidr`"))
    return errors


def _cidrs(policy: Object) -> Iterator[str]:
    spec = policy.get("spec") or {}
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for rule in spec.get(direction) or ():
            for peer in rule.get(peers) or ():
                block = peer.get("ipBlock") or {}
                yield from (block.get("cidr") or "", *(block.get("except") or ()))


class NetworkPolicyStrategy(Strategy):
    columns = (
        NAME,
        Column("Pod-Selector", Field("spec.podSelector", show=selector_text), "The pods it is about."),
        AGE,
    )

    def default(self, obj: Object) -> None:
        spec = obj.setdefault("spec", {})
        spec.setdefault("podSelector", {})
        if not spec.get("policyTypes"):
            spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
        for rule in [*(spec.get("ingress") or ()), *(spec.get("egress") or ())]:
            for item in rule.get("ports") or ():
                if not item.get("protocol"):
                    item["protocol"] = "TCP"

    def validate(self, obj: Object) -> list[FieldError]:
        return self._validate(obj, known=())

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        """Return what is wrong; a text that the stored policy has as a CIDR may stay anywhere in it, as upstream."""
        return self._validate(obj, known=set(_cidrs(old)))

    def _validate(self, obj: Object, known: Collection[str]) -> list[FieldError]:
        spec = obj.get("spec") or {}
        errors = label_selector(spec.get("podSelector"), "spec.podSelector")
        for direction, peers in (("ingress", "from"), ("egress", "to")):
            for index, rule in enumerate(spec.get(direction) or ()):
                path = f"spec.{direction}[{index}]"
                for number, item in enumerate(rule.get("ports") or ()):
                    errors += _validate_port(item, f"{path}.ports[{number}]")
                for number, peer in enumerate(rule.get(peers) or ()):
                    errors += _validate_peer(peer, f"{path}.{peers}[{number}]", known)
        kinds = spec.get("policyTypes") or []
        if len(kinds) > 2:
            detail = "may not specify more than two policyTypes"
            return [*errors, invalid_value("spec.policyTypes", kinds, detail)]
        for index, kind in enumerate(kinds):
            errors += one_of(kind, ("Ingress", "Egress"), f"spec.policyTypes[{index}]")
        return errors
