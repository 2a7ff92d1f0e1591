"""NetworkPolicies: allowed ingress and egress traffic of selected pods."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from control.registry.checks import FieldErrors, label_selector, one_of, port, port_or_name
from control.registry.defaults import Defaults, absent
from control.registry.field_values import field_values, values_in
from control.registry.ip_checks import cidr, cidr_warnings
from control.registry.strategy import Strategy
from control.registry.table_cells import AGE, NAME, Column, Field, selector_text
from kube.errors import FieldError, forbidden_field, invalid_value, required
from kube.ip_addresses import Cidr, lenient_cidr
from kube.json_object import Object

_BLOCKS = ("spec.ingress[*].from[*].ipBlock", "spec.egress[*].to[*].ipBlock")
_RANGES = tuple(f"{block}.{field}" for block in _BLOCKS for field in ("cidr", "except[*]"))


def _validate_port(item: Object, path: str) -> FieldErrors:
    yield from one_of(item.get("protocol"), ("TCP", "UDP", "SCTP"), f"{path}.protocol", needed=False)
    number, last = item.get("port"), item.get("endPort")
    if number is not None:
        yield from port_or_name(number, f"{path}.port")
        if last is not None:
            if isinstance(number, str):
                yield invalid_value(f"{path}.endPort", last, "may not be specified when `port` is non-numeric")
            elif last < number:
                yield invalid_value(f"{path}.endPort", number, "must be greater than or equal to `port`")
            if not isinstance(number, str):
                yield from port(last, f"{path}.endPort")
    elif last is not None:
        yield invalid_value(f"{path}.endPort", last, "may not be specified when `port` is not specified")


def _validate_peer(peer: Object, path: str, known: Collection[str]) -> list[FieldError]:
    found = [k for k in ("podSelector", "namespaceSelector", "ipBlock") if peer.get(k) is not None]
    if not found:
        return [required(path, "must specify a peer")]
    if "ipBlock" in found:
        if len(found) > 1:
            return [forbidden_field(path, "may not specify both ipBlock and another peer")]
        return _validate_block(peer["ipBlock"], f"{path}.ipBlock", known)
    return [e for k in found for e in label_selector(peer[k], f"{path}.{k}")]


def _validate_block(block: Object, path: str, known: Collection[str]) -> list[FieldError]:
    text = block.get("cidr") or ""
    if not text:
        return [required(f"{path}.cidr")]
    errors = cidr(text, f"{path}.cidr", known)
    whole = _read(text)
    for index, hole in enumerate(block.get("except") or ()):
        where = f"{path}.except[{index}]"
        errors += cidr(hole, where, known)
        part = _read(hole)
        if part is not None and whole is not None and not _is_inside(part, whole):
            errors.append(invalid_value(where, hole, "must be a strict subset of `cidr`"))
    return errors


def _read(text: str) -> Cidr | None:
    try:
        return lenient_cidr(text)
    except ValueError:
        return None


def _is_inside(part: Cidr, whole: Cidr) -> bool:
    return part.network.network_address in whole.network and part.length > whole.length


def _block_warnings(policy: Object, path: str) -> Iterator[str]:
    for where, block in field_values(policy, path):
        yield from cidr_warnings(block, "cidr", "except[*]", at=where)


def _policy_types(spec: Object) -> list[str]:
    return ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]


class NetworkPolicyStrategy(Strategy):
    columns = (
        NAME,
        Column("Pod-Selector", Field("spec.podSelector", show=selector_text), "The pods it is about."),
        AGE,
    )
    field_defaults = Defaults(
        ("spec", absent({})),
        ("spec.podSelector", absent({})),
        ("spec.policyTypes", _policy_types),
        ("spec.{ingress,egress}[*].ports[*].protocol", "TCP"),
    )

    def validate(self, obj: Object) -> list[FieldError]:
        return self._validate(obj, known=())

    def validate_update(self, obj: Object, old: Object) -> list[FieldError]:
        """Return what is wrong; a text that the stored policy has as a CIDR may stay anywhere in it, as upstream."""
        return self._validate(obj, known=values_in(old, *_RANGES))

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
            return [*errors, invalid_value("spec.policyTypes", kinds, "may not specify more than two policyTypes")]
        for index, kind in enumerate(kinds):
            errors += one_of(kind, ("Ingress", "Egress"), f"spec.policyTypes[{index}]")
        return errors

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        return [text for block in _BLOCKS for text in _block_warnings(obj, block)]
