"""Do the expressions of a policy, or of a webhook's match conditions, compile, and to what?"""

from __future__ import annotations

from typing import Any

from control.admission.policies.compiled import environment
from control.admission.policies.environment import declarations
from control.cel import CompileError, Declarations
from control.cel import compile as compile_cel
from kube.errors import FieldError, duplicate, invalid_value, not_supported, required

Object = dict[str, Any]
_OBJECT = ("object", "dyn", "map")


def expressions(spec: Object) -> list[FieldError]:
    """Return what is wrong with the expressions of a policy's spec."""
    declared, _, problems = environment(spec)
    texts = [variable.get("expression") or "" for variable in spec.get("variables") or ()]
    found = [_invalid(path, texts[int(path[15 : path.index("]")])], error) for path, error in problems]
    found += match_conditions(spec.get("matchConditions"), "spec.matchConditions", declared)
    for index, rule in enumerate(spec.get("validations") or ()):
        path = f"spec.validations[{index}]"
        found += _check(rule.get("expression"), f"{path}.expression", declared, ("bool",))
        if rule.get("messageExpression"):
            found += _check(rule["messageExpression"], f"{path}.messageExpression", declared, ("string",))
    for index, note in enumerate(spec.get("auditAnnotations") or ()):
        path = f"spec.auditAnnotations[{index}]"
        if not note.get("key"):
            found.append(required(f"{path}.key"))
        found += _check(note.get("valueExpression"), f"{path}.valueExpression", declared, ("string", "null"))
    for index, mutation in enumerate(spec.get("mutations") or ()):
        found += _mutation(mutation, f"spec.mutations[{index}]", declared)
    return found


def match_conditions(
    conditions: list[Object] | None, path: str, declared: Declarations | None = None
) -> list[FieldError]:
    """Return what is wrong with match conditions; `declared` None: those of a webhook."""
    found: list[FieldError] = []
    names: set[str] = set()
    for index, condition in enumerate(conditions or ()):
        where, name = f"{path}[{index}]", condition.get("name") or ""
        if not name:
            found.append(required(f"{where}.name"))
        elif name in names:
            found.append(duplicate(f"{where}.name", name))
        names.add(name)
        found += _check(condition.get("expression"), f"{where}.expression", declared or declarations(), ("bool",))
    return found


def _mutation(mutation: Object, path: str, declared: Declarations) -> list[FieldError]:
    kind = mutation.get("patchType") or ""
    if kind not in ("ApplyConfiguration", "JSONPatch"):
        return [not_supported(f"{path}.patchType", kind, ("ApplyConfiguration", "JSONPatch"))]
    part = "applyConfiguration" if kind == "ApplyConfiguration" else "jsonPatch"
    if not mutation.get(part):
        return [required(f"{path}.{part}", f"must be specified when patchType is {kind}")]
    wanted = ("object",) if kind == "ApplyConfiguration" else ("list",)
    return _check(mutation[part].get("expression"), f"{path}.{part}.expression", declared, wanted)


def _check(text: str | None, path: str, declared: Declarations, wanted: tuple[str, ...]) -> list[FieldError]:
    if not (text or "").strip():
        return [required(path, "expression is not specified")]
    assert text is not None
    try:
        result = compile_cel(text, declared).result
    except CompileError as error:
        return [_invalid(path, text, error)]
    if result.kind not in (*wanted, "dyn"):
        return [invalid_value(path, text, f"must evaluate to {' or '.join(wanted)}")]
    return []


def _invalid(path: str, text: str, error: CompileError) -> FieldError:
    return invalid_value(path, text, f"compilation failed: {error}")
