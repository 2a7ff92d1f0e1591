"""x-kubernetes-validations: CEL rules of a schema's fields, evaluated for every value of the field.

The rules are a tree beside the schema's with only the branches that lead to one. A rule that names `oldSelf` is asked where
there is an old value to compare with; on an update, what a rule finds in a part that did not change is only a warning. All
rules of an object share a budget (apiextensions-apiserver's schema/cel).

They are compiled when the first object is validated. Whoever writes such an object waits for it, and nobody else: discovery and
OpenAPI, which everybody reads, need none of them.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import Any

from control.cel import BudgetExceeded, CompileError, Declarations, EvaluationError, Program
from control.cel import compile as compile_cel
from control.cel.types import Type, optional_of
from control.cel.values import NONE, Optional
from control.event_loop import inline
from control.schemas.celtypes import type_of
from control.schemas.schema import MISSING, Schema
from control.schemas.validation import NOWHERE, key_of
from kube import errors
from kube.errors import FieldError
from kube.field_path import bounded
from kube.json_object import Object, identical

BUDGET = 10_000_000
"""Cost limit of all rules of one object together (RuntimeCELCostBudget)."""
RETRY_SECONDS = 300.0
"""Time for which rules are not compiled again after that was stopped for taking too long."""
_LONGEST_MESSAGE = 5 * 1024


@dataclass(slots=True)
class Rule:
    """One compiled rule."""

    source: Object
    program: Program
    message: Program | None
    path: str
    """Path of the error, below the rule's own place."""
    transition: bool

    @property
    def shown(self) -> str:
        return str(self.source.get("message") or self.source.get("rule") or "").strip()


@dataclass(slots=True)
class _Place:
    schema: Schema
    rules: list[Rule]
    properties: dict[str, _Place]
    items: _Place | None
    additional: _Place | None


class Rules:
    """All rules of a version's schema."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema
        self._root: _Place | None = None
        self._compiled = False
        self._stopped_at: float | None = None
        """Time at which compiling them was stopped for taking too long."""

    def check(self, obj: Object, old: Object | None) -> tuple[list[FieldError], list[str]]:
        """Return (what the rules find wrong, warnings).

        Raises TooMuchHere if the rules are to be compiled elsewhere, and 500 for some minutes after that was stopped.
        """
        walk, root = _Walk(), self._ready()
        if root is not None:
            walk.visit(root, obj, MISSING if old is None else old, "", unchanged=identical(obj, old))
        return walk.found, walk.warnings

    def _ready(self) -> _Place | None:
        """Return the compiled rules."""
        if not self._compiled:
            if self._stopped_at is not None and time.monotonic() - self._stopped_at < RETRY_SECONDS:
                raise errors.internal("the validation rules of its definition could not be compiled in time")
            try:
                self._root = _place(self._schema, root=True)
            except inline.TooMuchHere:
                raise
            except BaseException:  # a limit of time (control/event_loop/time_limit.py, kube/step_limit.py)
                self._stopped_at = time.monotonic()
                raise
            self._compiled = True
        return self._root


def build(schema: Schema) -> Rules | None:
    """Return the rules of a whole schema; None if it has none. What does not compile has been refused before."""
    return Rules(schema) if schema.rules or schema.rules_below else None


def _place(schema: Schema | None, *, root: bool = False) -> _Place | None:
    """Compile the rules of a place and of all below it, None if there are none."""
    if schema is None or not (schema.rules or schema.rules_below):
        return None
    type_ = type_of(schema, root=root)
    if type_ is None:
        return None
    rules = [r for source in schema.rules if (r := compile_rule(source, type_)) is not None]
    properties = {name: below for name, part in schema.properties.items() if (below := _place(part)) is not None}
    items, additional = _place(schema.items), _place(schema.additional)
    if not (rules or properties or items or additional):
        return None
    return _Place(schema, rules, properties, items, additional)


def declarations(type_: Type, source: Object) -> Declarations:
    """Return what a rule may refer to."""
    old = optional_of(type_) if source.get("optionalOldSelf") else type_
    return Declarations({"self": type_, "oldSelf": old})


def compile_rule(source: Object, type_: Type) -> Rule | None:
    """Compile one rule, None if it does not (its definition was stored by a server that knew more)."""
    declared = declarations(type_, source)
    try:
        program = compile_cel(source.get("rule") or "", declared)
        text = source.get("messageExpression")
        message = compile_cel(text, declared) if text else None
    except CompileError:
        return None
    path = normalized_path(source.get("fieldPath") or "")
    return Rule(source, program, message, path, "oldSelf" in program.used)


_STEP = re.compile(r"\.([^.\[\]]+)|\['((?:\\.|[^'\\])*+)'\]")


def normalized_path(path: str) -> str:
    """Return a fieldPath (`.a['b.c']`) as field errors print it."""
    out = ""
    for name, quoted in _STEP.findall(path):
        out += ("." if out else "") + (name or re.sub(r"\\(.)", r"\1", quoted))
    return out


class _Walk:
    def __init__(self) -> None:
        self.found: list[FieldError] = []
        self.warnings: list[str] = []
        self.budget = BUDGET

    def visit(self, place: _Place, value: Any, old: Any, path: str, *, unchanged: bool) -> None:
        if value is None or self.budget < 0:
            return
        if place.rules:
            self._ask(place, value, old, path, unchanged=unchanged)
        if isinstance(value, dict):
            before = old if isinstance(old, dict) and place.schema.map_type != "atomic" else {}
            if place.additional is not None:
                for key, part in value.items():
                    if key not in place.schema.properties:
                        self._below(
                            place.additional,
                            part,
                            before.get(key, MISSING),
                            bounded(f"{path}[{key}]"),
                            unchanged=unchanged,
                        )
            for name, below in place.properties.items():
                if name in value:
                    where = f"{path}.{name}" if path else name
                    self._below(below, value[name], before.get(name, MISSING), where, unchanged=unchanged)
        elif isinstance(value, list) and place.items is not None:
            known: dict[bytes, Any] = {}
            if place.schema.list_type == "map" and isinstance(old, list):
                known = {key_of(part, place.schema): part for part in old if isinstance(part, dict)}
            for index, part in enumerate(value):
                before = known.get(key_of(part, place.schema), MISSING) if known and isinstance(part, dict) else MISSING
                self._below(place.items, part, before, f"{path}[{index}]", unchanged=unchanged)

    def _below(self, place: _Place, value: Any, old: Any, path: str, *, unchanged: bool) -> None:
        self.visit(place, value, old, path, unchanged=unchanged or (old is not MISSING and identical(value, old)))

    def _ask(self, place: _Place, value: Any, old: Any, path: str, *, unchanged: bool) -> None:
        there = old is not MISSING and old is not None
        for rule in place.rules:
            optional = bool(rule.source.get("optionalOldSelf"))
            if rule.transition and not there and not optional:
                continue
            variables = {"self": value}
            if optional:
                variables["oldSelf"] = Optional(old) if there else NONE
            elif there:
                variables["oldSelf"] = old
            problem = self._evaluate(rule, place, variables, path)
            if problem is not None:
                if unchanged and not rule.transition:
                    self.warnings.append(str(problem))
                else:
                    self.found.append(problem)
            if self.budget < 0:
                return

    def _evaluate(self, rule: Rule, place: _Place, variables: Object, path: str) -> FieldError | None:
        where, kind = path or NOWHERE, place.schema.type
        if self.budget <= 0:
            self.budget = -1
            return errors.invalid_value(where, kind, _OUT_OF_BUDGET)
        try:
            result = rule.program.evaluate(variables)
        except BudgetExceeded as error:
            self.budget = -1
            why = f"'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {rule.shown}"
            return errors.invalid_value(where, kind, why)
        except EvaluationError as error:
            if not self._spend(error.cost):
                return errors.invalid_value(where, kind, _OUT_OF_BUDGET)
            if str(error).startswith("no such overload"):
                why = (
                    f"'{error}': call arguments did not match a supported operator, function or macro signature for "
                    f"rule: {rule.shown}"
                )
                return errors.invalid_value(where, kind, why)
            return errors.invalid_value(where, kind, f"{error} evaluating rule: {rule.shown}")
        if not self._spend(result.cost):
            return errors.invalid_value(where, kind, _OUT_OF_BUDGET)
        if result.value is True:
            return None
        if rule.path:
            where = f"{path}.{rule.path}" if path else rule.path
        text = self._message(rule, variables)
        return _error(where, kind, text, rule.source.get("reason") or "")

    def _spend(self, cost: int) -> bool:
        self.budget -= cost
        if self.budget < 0:
            self.budget = -1
            return False
        return True

    def _message(self, rule: Rule, variables: Object) -> str:
        if rule.message is not None:
            try:
                result = rule.message.evaluate(variables)
                self.budget -= result.cost
                text = result.value.strip() if isinstance(result.value, str) else ""
                if text and "\n" not in text and len(text) <= _LONGEST_MESSAGE:
                    return text
            except EvaluationError as error:
                self.budget -= error.cost
        message = str(rule.source.get("message") or "").strip()
        return message or f"failed rule: {rule.shown}"


_OUT_OF_BUDGET = "validation failed due to running out of cost budget, no further validation rules will be run"


def _error(where: str, kind: str, text: str, reason: str) -> FieldError:
    if reason == "FieldValueForbidden":
        return errors.forbidden_field(where, text)
    if reason == "FieldValueRequired":
        return errors.required(where, text)
    if reason == "FieldValueDuplicate":
        return errors.duplicate(where, kind)
    return errors.invalid_value(where, kind, text)
