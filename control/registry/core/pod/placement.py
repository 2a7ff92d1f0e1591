"""Checks of scheduling constraints: affinity, tolerations, topology spread, gates."""

from __future__ import annotations

import re

import msgspec

from control.registry.checks import Errors, each, label_selector, one_of
from control.registry.ratcheting import gated_invalid, gated_unsupported
from kube import names
from kube.errors import duplicate, forbidden_field, invalid_value, required
from kube.json_object import Object

_HARD, _SOFT = "requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution"
_INTEGER = re.compile("0|-?[1-9][0-9]*")
_DIGITS = re.compile("[+-]?[0-9]+")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def validate_affinity(affinity: Object | None, path: str) -> Errors:
    if not affinity:
        return []
    errors: Errors = []
    node = affinity.get("nodeAffinity")
    if node is not None:
        errors += _node_affinity(node, f"{path}.nodeAffinity")
    for kind in ("podAffinity", "podAntiAffinity"):
        found = affinity.get(kind)
        if found is not None:
            errors += _pod_affinity(found, f"{path}.{kind}")
    return errors


def _node_affinity(affinity: Object, path: str) -> Errors:
    errors: Errors = []
    if affinity.get(_HARD) is not None:
        errors += validate_node_selector(affinity[_HARD], f"{path}.{_HARD}")
    for index, preference in enumerate(affinity.get(_SOFT) or ()):
        where = f"{path}.{_SOFT}[{index}]"
        errors += _weight(preference, where)
        errors += _node_term(preference.get("preference") or {}, f"{where}.preference", strict=False)
    return errors


def validate_node_selector(selector: Object, path: str) -> Errors:
    terms = selector.get("nodeSelectorTerms")
    if not terms:
        return [required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")]
    errors: Errors = []
    for index, term in enumerate(terms):
        errors += _node_term(term, f"{path}.nodeSelectorTerms[{index}]")
    return errors


def _node_term(term: Object, path: str, *, strict: bool = True) -> Errors:
    """Check a term; values that are no label values only match nothing, which a preference may."""
    errors: Errors = []
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        errors += _node_expression(expression, f"{path}.matchExpressions[{index}]", strict=strict)
    for index, expression in enumerate(term.get("matchFields") or ()):
        where = f"{path}.matchFields[{index}]"
        operator, values, key = (expression.get(k) for k in ("operator", "values", "key"))
        if operator not in ("In", "NotIn"):
            errors.append(invalid_value(f"{where}.operator", operator or "", "not a valid selector operator"))
        elif len(values or ()) != 1:
            detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
            errors.append(required(f"{where}.values", detail))
        if key != "metadata.name":
            errors.append(invalid_value(f"{where}.key", key or "", "not a valid field selector key"))
        else:
            for number, value in enumerate(values or ()):
                errors += each(f"{where}.values[{number}]", value, names.dns1123_subdomain(value))
    return errors


def _node_expression(expression: Object, path: str, *, strict: bool) -> Errors:
    operator, values = expression.get("operator") or "", expression.get("values") or []
    errors: Errors = []
    if operator in ("In", "NotIn"):
        if not values:
            errors.append(required(f"{path}.values", "must be specified when `operator` is 'In' or 'NotIn'"))
    elif operator in ("Exists", "DoesNotExist"):
        if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            errors.append(forbidden_field(f"{path}.values", detail))
    elif operator in ("Gt", "Lt"):
        if len(values) != 1:
            errors.append(required(f"{path}.values", "must be specified single value when `operator` is 'Lt' or 'Gt'"))
    else:
        errors.append(invalid_value(f"{path}.operator", operator, "not a valid selector operator"))
    key = expression.get("key") or ""
    errors += each(f"{path}.key", key, names.qualified_name(key))
    for index, value in enumerate(values if strict else ()):
        errors += each(f"{path}.values[{index}]", value, names.label_value(value))
    return errors


def _pod_affinity(affinity: Object, path: str) -> Errors:
    errors: Errors = []
    for index, term in enumerate(affinity.get(_HARD) or ()):
        errors += _pod_term(term, f"{path}.{_HARD}[{index}]")
    for index, preference in enumerate(affinity.get(_SOFT) or ()):
        where = f"{path}.{_SOFT}[{index}]"
        errors += _weight(preference, where)
        errors += _pod_term(preference.get("podAffinityTerm") or {}, f"{where}.podAffinityTerm")
    return errors


def _pod_term(term: Object, path: str) -> Errors:
    errors = label_selector(term.get("labelSelector"), f"{path}.labelSelector")
    errors += label_selector(term.get("namespaceSelector"), f"{path}.namespaceSelector")
    errors += _label_keys(term, path, path)
    for namespace in term.get("namespaces") or ():
        errors += each(f"{path}.namespace", namespace, names.dns1123_label(namespace))
    key = term.get("topologyKey") or ""
    if not key:
        errors.append(required(f"{path}.topologyKey", "can not be empty"))
    return errors + each(f"{path}.topologyKey", key, names.qualified_name(key))


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
    # The keys are in the selector already (label_keys.write_out): one that stands there twice was there before.
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


def _weight(preference: Object, path: str) -> Errors:
    weight = preference.get("weight", 0)
    return [] if 1 <= weight <= 100 else [invalid_value(f"{path}.weight", weight, "must be in the range 1-100")]


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


def validate_spread(constraints: list[Object] | None, path: str) -> Errors:
    errors: Errors = []
    pairs = [(c.get("topologyKey") or "", c.get("whenUnsatisfiable") or "") for c in constraints or ()]
    last = {pair: index for index, pair in enumerate(pairs)}
    for index, constraint in enumerate(constraints or ()):
        where = f"{path}[{index}]"
        skew, domains = constraint.get("maxSkew", 0), constraint.get("minDomains")
        key, action = constraint.get("topologyKey") or "", constraint.get("whenUnsatisfiable") or ""
        if skew <= 0:
            errors.append(invalid_value(f"{where}.maxSkew", skew, "must be greater than zero"))
        if not key:
            errors.append(required(f"{where}.topologyKey", "can not be empty"))
        errors += one_of(action, ("DoNotSchedule", "ScheduleAnyway"), f"{where}.whenUnsatisfiable")
        if last[key, action] > index:
            errors.append(duplicate(f"{where}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}"))
        if domains is not None:
            if domains <= 0:
                errors.append(invalid_value(f"{where}.minDomains", domains, "must be greater than zero"))
            if action != "DoNotSchedule":
                detail = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
                errors.append(invalid_value(f"{where}.minDomains", domains, detail))
        for policy in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if constraint.get(policy) is not None:
                errors += one_of(constraint[policy], ("Honor", "Ignore"), f"{where}.{policy}")
        errors += label_selector(constraint.get("labelSelector"), f"{where}.labelSelector")
        errors += _label_keys(constraint, where, f"{where}.matchLabelKeys")
    return errors


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
