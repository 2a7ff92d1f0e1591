"""Checks of scheduling constraints: affinity, tolerations, topology spread, gates."""

from __future__ import annotations

import re

import msgspec

from control.registry.checks import Errors, FieldErrors, each, label_selector, one_of
from control.registry.ratcheting import gated_invalid, gated_unsupported
from control.registry.rows import Rows
from control.registry.rules import Test, form, positive, require, require_enum
from kube import names
from kube.errors import duplicate, forbidden_field, invalid_value, required
from kube.json_object import Object

HARD, SOFT = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
_INTEGER = re.compile("0|-?[1-9][0-9]*")
_DIGITS = re.compile("[+-]?[0-9]+")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def _node_expression(expression: Object, path: str) -> FieldErrors:
    operator, values = expression.get("operator") or "", expression.get("values") or []
    if operator in ("In", "NotIn"):
        if not values:
            yield required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            yield forbidden_field(f"{path}.values", detail)
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            yield required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'")
    else:
        yield invalid_value(f"{path}.operator", operator, "not a valid selector operator")
    key = expression.get("key") or ""
    yield from each(f"{path}.key", key, names.qualified_name(key))


def _node_field(expression: Object, path: str) -> FieldErrors:
    operator, values, key = (expression.get(k) for k in ("operator", "values", "key"))
    if operator not in ("In", "NotIn"):
        yield invalid_value(f"{path}.operator", operator or "", "not a valid selector operator")
    elif len(values or ()) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield required(f"{path}.values", detail)
    if key != "metadata.name":
        yield invalid_value(f"{path}.key", key or "", "not a valid field selector key")
        return
    for number, value in enumerate(values or ()):
        yield from each(f"{path}.values[{number}]", value, names.dns1123_subdomain(value))


_FIELDS = Rows(("matchFields[*]", _node_field))
_VALUES = Rows(("values[*]", form(names.label_value)))
_TERM = Rows(("matchExpressions[*]", _node_expression, _VALUES), ("", _FIELDS))
_PREFERENCE = Rows(("matchExpressions[*]", _node_expression), ("", _FIELDS))
"""A preference may have values that are no label values, which only match nothing."""
NODE_SELECTOR = Rows(
    ("nodeSelectorTerms", require("must have at least one node selector term")),
    ("nodeSelectorTerms[*]", _TERM),
)


def _label_keys(term: Object, path: str, place: str) -> Errors:
    """Check the keys whose values are taken from the pod's own labels; errors name `place` for those that are chosen twice."""
    errors: Errors = []
    other = set(term.get("mismatchLabelKeys") or ())
    for field in ("matchLabelKeys", "mismatchLabelKeys"):
        keys = term.get(field) or ()
        if keys and term.get("labelSelector") is None:
            errors.append(forbidden_field(f"{path}.{field}", "must not be specified when labelSelector is not set"))
        for index, key in enumerate(keys):
            errors += each(f"{path}.{field}[{index}]", key, names.qualified_name(key))
            if field == "matchLabelKeys" and key in other:
                detail = "exists in both matchLabelKeys and mismatchLabelKeys"
                errors.append(invalid_value(f"{path}.{field}[{index}]", key, detail))
    # The keys are in the selector already (write_label_keys): one that stands there twice was there before.
    selector = term.get("labelSelector") or {}
    places = {key: index for index, key in reversed([*enumerate(term.get("matchLabelKeys") or ())])}
    there = set(selector.get("matchLabels") or ())
    for expression in selector.get("matchExpressions") or ():
        key = expression.get("key")
        if key in places and key in there:
            errors.append(
                invalid_value(f"{place}[{places[key]}]", key, "exists in both matchLabelKeys and labelSelector")
            )
        there.add(key)
    return errors


def _pod_namespaces(namespaces: list[str] | None, path: str) -> FieldErrors:
    for namespace in namespaces or ():
        yield from each(path.removesuffix("s"), namespace, names.dns1123_label(namespace))


_WEIGHT = Test(
    "not 1 <= ({value} or 0) <= 100",
    None,
    lambda value, path: [invalid_value(path, value or 0, "must be in the range 1-100")],
)
_POD_TERM = Rows(
    ("{labelSelector,namespaceSelector}", label_selector),
    ("", lambda term, path: _label_keys(term, path, path)),
    ("namespaces", _pod_namespaces),
    ("topologyKey", require("can not be empty"), form(names.qualified_name)),
)
_POD_AFFINITY = Rows(
    (f"{HARD}[*]", _POD_TERM),
    (f"{SOFT}[*].weight", _WEIGHT),
    (f"{SOFT}[*].podAffinityTerm", _POD_TERM),
)
AFFINITY = Rows(
    (f"nodeAffinity.{HARD}?", NODE_SELECTOR),
    (f"nodeAffinity.{SOFT}[*].weight", _WEIGHT),
    (f"nodeAffinity.{SOFT}[*].preference", _PREFERENCE),
    ("{podAffinity,podAntiAffinity}", _POD_AFFINITY),
)


def validate_tolerations(tolerations: list[Object] | None, path: str) -> Errors:
    errors: Errors = []
    for index, toleration in enumerate(tolerations or ()):
        where = f"{path}[{index}]"
        key, operator, value, effect = (toleration.get(k) or "" for k in ("key", "operator", "value", "effect"))
        if key:
            errors += each(f"{where}.key", key, names.qualified_name(key))
        elif operator != "Exists":
            detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            errors.append(invalid_value(f"{where}.operator", operator, detail))
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            errors.append(invalid_value(f"{where}.effect", effect, detail))
        if operator in ("", "Equal"):
            problems = names.label_value(value)
            if problems:
                errors.append(invalid_value(f"{where}.operator", value, ";".join(problems)))
        elif operator == "Exists":
            if value:
                detail = "value must be empty when `operator` is 'Exists'"
                errors.append(invalid_value(f"{where}.operator", value, detail))
        elif operator in ("Lt", "Gt"):
            errors += _comparison(operator, value, where)
        else:
            errors += one_of(operator, ("Equal", "Exists"), f"{where}.operator")
        if effect:
            errors += one_of(effect, _EFFECTS, f"{where}.effect")
    return errors


def _comparison(operator: str, value: str, path: str) -> Errors:
    """Check a comparison of numbers; without the feature gate its operator is not supported."""
    gate = "TaintTolerationComparisonOperators"
    errors = [gated_unsupported(f"{path}.operator", operator, ("Equal", "Exists", "Lt", "Gt"), gate)]
    problems = []
    if not _INTEGER.fullmatch(value):
        problems.append("must be a valid decimal integer in canonical form" if value else "must be non-empty")
    problems += _int64(value)
    return errors + [gated_invalid(f"{path}.value", value, problem, gate) for problem in problems]


def _int64(text: str) -> list[str]:
    """Return what upstream's parser says of a text that is no integer of 64 bits."""
    problem = "invalid syntax"
    if _DIGITS.fullmatch(text):
        digits = text.lstrip("+-").lstrip("0")
        if len(digits) < 20 and -(2**63) <= int(text) < 2**63:
            return []
        problem = "value out of range"
    return [f"strconv.ParseInt: parsing {msgspec.json.encode(text).decode()}: {problem}"]


def _min_domains(constraint: Object, path: str) -> FieldErrors:
    domains, action = constraint.get("minDomains"), constraint.get("whenUnsatisfiable") or ""
    if domains is not None and action != "DoNotSchedule":
        detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
        yield invalid_value(f"{path}.minDomains", domains, detail)


_SPREAD = Rows(
    ("maxSkew", positive("must be greater than zero")),
    ("topologyKey", require("can not be empty")),
    ("whenUnsatisfiable", require_enum("DoNotSchedule", "ScheduleAnyway")),
)
_SPREAD_PODS = Rows(
    ("minDomains?", positive("must be greater than zero")),
    ("", _min_domains),
    ("{nodeAffinityPolicy,nodeTaintsPolicy}?", require_enum("Honor", "Ignore")),
    ("labelSelector", label_selector),
    ("", lambda constraint, path: _label_keys(constraint, path, f"{path}.matchLabelKeys")),
)


def validate_spread(constraints: list[Object] | None, path: str) -> FieldErrors:
    pairs = [(c.get("topologyKey") or "", c.get("whenUnsatisfiable") or "") for c in constraints or ()]
    last = {pair: index for index, pair in enumerate(pairs)}
    for index, (constraint, pair) in enumerate(zip(constraints or (), pairs, strict=True)):
        where = f"{path}[{index}]"
        yield from _SPREAD(constraint, where)
        if last[pair] > index:
            yield duplicate(f"{where}.{{topologyKey, whenUnsatisfiable}}", f"{{{', '.join(pair)}}}")
        yield from _SPREAD_PODS(constraint, where)


def validate_gates(gates: list[Object] | None, path: str) -> Errors:
    errors: Errors = []
    seen: set[str] = set()
    for index, gate in enumerate(gates or ()):
        name = gate.get("name") or ""
        errors += each(f"{path}[{index}]", name, names.qualified_name(name))
        if name in seen:
            errors.append(duplicate(f"{path}[{index}]", name))
        seen.add(name)
    return errors
