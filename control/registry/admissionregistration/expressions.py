"""Compiles the expressions of policies and of webhooks' match conditions, and checks their types."""

from __future__ import annotations

import re

from control.cel import CompileError, Declarations
from control.cel import compile as compile_cel
from control.policy_expressions.compiled import environment
from control.policy_expressions.declarations import declarations
from kube import names
from kube.errors import FieldError, duplicate, invalid_value, not_supported, required, too_many
from kube.json_object import Object

_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_PARTS = {"ApplyConfiguration": ("applyConfiguration", "Object"), "JSONPatch": ("jsonPatch", "list(JSONPatch)")}
"""Patch type of a mutation -> the field of its expression, and the expression's type."""
_MOST_CONDITIONS = 64
_MOST_NOTES = 20
_LONGEST_NOTE = 5 * 1024
_IDENTIFIER = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*")
_RESERVED = frozenset(
    "true false null in as break const continue else for function if import let loop package namespace return var void "
    "while".split()
)


def expressions(spec: Object, name: str) -> list[FieldError]:
    """Return what is wrong with the expressions of a policy's spec, and with what stands beside them."""
    declared, _, problems = environment(spec)
    texts = [variable.get("expression") or "" for variable in spec.get("variables") or ()]
    found = [_invalid(path, texts[int(path[15 : path.index("]")])], error) for path, error in problems]
    for index, variable in enumerate(spec.get("variables") or ()):
        found += _variable(variable, f"spec.variables[{index}]")
    found += match_conditions(spec.get("matchConditions"), "spec.matchConditions", declared)
    for index, rule in enumerate(spec.get("validations") or ()):
        path = f"spec.validations[{index}]"
        found += _check(rule.get("expression"), f"{path}.expression", declared, ("bool",))
        found += _message(rule, path, declared)
    found += _notes(spec.get("auditAnnotations") or [], name, declared)
    for index, mutation in enumerate(spec.get("mutations") or ()):
        found += _mutation(mutation, f"spec.mutations[{index}]", declared)
    return found


def _variable(variable: Object, path: str) -> list[FieldError]:
    name, found = variable.get("name") or "", []
    if not name.strip():
        found.append(required(f"{path}.name", "name is not specified"))
    elif not _IDENTIFIER.fullmatch(name) or name in _RESERVED:
        found.append(invalid_value(f"{path}.name", name, "must be a valid CEL identifier"))
    return found


def _message(rule: Object, path: str, declared: Declarations) -> list[FieldError]:
    found: list[FieldError] = []
    message, expression = rule.get("message") or "", rule.get("messageExpression") or ""
    if expression and not expression.strip():
        found.append(invalid_value(f"{path}.messageExpression", expression, "must be non-empty if specified"))
    elif expression:
        found += _check(expression, f"{path}.messageExpression", declared, ("string",))
    if message and not message.strip():
        found.append(invalid_value(f"{path}.message", message, "must be non-empty if specified"))
    elif "\n" in message.strip() or "\r" in message.strip():
        found.append(invalid_value(f"{path}.message", message, "must not contain line breaks"))
    if rule.get("reason") not in (None, *_REASONS):
        found.append(not_supported(f"{path}.reason", rule["reason"], _REASONS))
    return found


def _notes(notes: list[Object], name: str, declared: Declarations) -> list[FieldError]:
    """Check audit annotations: their keys stand in the audit log behind the policy's name."""
    found: list[FieldError] = []
    if len(notes) > _MOST_NOTES:
        detail = f"must not have more than {_MOST_NOTES} auditAnnotations"
        found.append(invalid_value("spec.auditAnnotations", notes, detail))
    keys: set[str] = set()
    for index, note in enumerate(notes):
        path, key, text = f"spec.auditAnnotations[{index}]", note.get("key") or "", note.get("valueExpression") or ""
        if not name:
            found.append(invalid_value(f"{path}.key", key, "requires metadata.name be non-empty"))
        else:
            whole = f"{name}/{key}"
            found += [invalid_value(f"{path}.key", whole, why) for why in names.qualified_name(whole)]
        if key in keys:
            found.append(duplicate(f"{path}.key", key))
        keys.add(key)
        if not text.strip():
            found.append(required(f"{path}.valueExpression", "valueExpression is not specified"))
        elif len(text.strip().encode()) > _LONGEST_NOTE:
            found.append(required(f"{path}.valueExpression", f"must not exceed {_LONGEST_NOTE} bytes in length"))
        else:
            found += _check(text.strip(), f"{path}.valueExpression", declared, ("string", "null_type"), text)
    return found


def match_conditions(
    conditions: list[Object] | None, path: str, declared: Declarations | None = None
) -> list[FieldError]:
    """Return what is wrong with match conditions; `declared` None: those of a webhook."""
    found: list[FieldError] = []
    if len(conditions or ()) > _MOST_CONDITIONS:
        found.append(too_many(path, len(conditions or ()), _MOST_CONDITIONS))
    seen: set[str] = set()
    for index, condition in enumerate(conditions or ()):
        where, name = f"{path}[{index}]", condition.get("name") or ""
        expression = (condition.get("expression") or "").strip()
        if expression:
            found += _check(expression, f"{where}.expression", declared or declarations(), ("bool",))
        else:
            found.append(required(f"{where}.expression"))
        if not name:
            found.append(required(f"{where}.name"))
        else:
            found += [invalid_value(f"{where}.name", name, why) for why in names.qualified_name(name)]
        if name and name in seen:
            found.append(duplicate(f"{where}.name", name))
        seen.add(name)
    return found


def _mutation(mutation: Object, path: str, declared: Declarations) -> list[FieldError]:
    kind = mutation.get("patchType") or ""
    if not kind:
        return [required(f"{path}.patchType")]
    if kind not in _PARTS:
        return [not_supported(f"{path}.patchType", kind, tuple(_PARTS))]
    part, wanted = _PARTS[kind]
    found: list[FieldError] = []
    if mutation.get(part) is None:
        found.append(required(f"{path}.{part}", f"must be specified when patchType is {kind}"))
    elif text := (mutation[part].get("expression") or "").strip():
        found += _check(text, f"{path}.{part}.expression", declared, (wanted,))
    else:
        found.append(required(f"{path}.{part}.expression"))
    for other, _ in _PARTS.values():
        if other != part and mutation.get(other) is not None:
            detail = f"must not be specified when patchType is {kind}"
            found.append(invalid_value(f"{path}.{other}", f"{{{other}}}", detail))
    return found


def _check(
    text: str | None, path: str, declared: Declarations, wanted: tuple[str, ...], shown: str | None = None
) -> list[FieldError]:
    """Check that an expression compiles to exactly one of the wanted types; `shown` is the value in errors."""
    if not (text or "").strip():
        return [required(path, "expression is not specified")]
    assert text is not None
    value = text if shown is None else shown
    try:
        result = compile_cel(text, declared).result
    except CompileError as error:
        return [_invalid(path, value, error)]
    found = "null_type" if result.kind == "null" else str(result)
    if found in wanted:
        return []
    types = wanted[0] if len(wanted) == 1 else f"one of [{' '.join(wanted)}]"
    return [invalid_value(path, value, f"must evaluate to {types} but got {found}")]


def _invalid(path: str, text: str, error: CompileError) -> FieldError:
    return invalid_value(path, text, f"compilation failed: {error}")
