"""A policy's expressions, compiled once for each of its generations.

A policy with an expression that does not compile is rejected; a policy that another server stored may still contain one,
which fails at each evaluation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from control.cel import CompileError, Declarations, Program
from control.cel import compile as compile_cel
from control.cel.types import DYN, STRING, Type, object_of
from control.policy_expressions.conditions import Compiled
from control.policy_expressions.conditions import prepare as compile_or_keep
from control.policy_expressions.declarations import declarations
from kube.json_object import Object


class Rule(msgspec.Struct, frozen=True):
    """One of `validations`."""

    source: Object
    program: Compiled
    message: Program | None


class Mutation(msgspec.Struct, frozen=True):
    """One of `mutations`; `kind` is ApplyConfiguration or JSONPatch."""

    kind: str
    program: Compiled


class Policy(msgspec.Struct, frozen=True):
    """A compiled policy."""

    source: Object
    conditions: tuple[tuple[str, Compiled], ...]
    """matchConditions: text and program."""
    variables: dict[str, Program]
    broken: CompileError | None
    """The first variable that does not compile."""
    rules: tuple[Rule, ...]
    mutations: tuple[Mutation, ...]
    notes: tuple[tuple[str, Compiled], ...]
    """auditAnnotations: key and expression."""

    @property
    def name(self) -> str:
        return str(self.source["metadata"]["name"])

    @property
    def spec(self) -> Object:
        spec: Object = self.source["spec"]
        return spec


class _AnyFields(dict[str, tuple[str, Type]]):
    """The fields of `Object`: any, because the object's kind is not known in advance."""

    def get(self, name: str, default: Any = None) -> Any:
        return (name, DYN)

    def __getitem__(self, name: str) -> tuple[str, Type]:
        return (name, DYN)

    def __contains__(self, name: object) -> bool:
        return True


class _MutationTypes(dict[str, Type]):
    """`Object`, `Object.spec` ... and `JSONPatch`: the types that expressions of mutations build."""

    def get(self, name: str, default: Any = None) -> Any:
        if name == "JSONPatch":
            return _JSON_PATCH
        if name == "Object" or name.startswith("Object."):
            return Type("object", name=name, fields=_AnyFields)
        return default


_JSON_PATCH = object_of({"op": STRING, "path": STRING, "from": STRING, "value": DYN}, "JSONPatch")


def environment(spec: Object) -> tuple[Declarations, dict[str, Program], list[tuple[str, CompileError]]]:
    """Return the environment of a policy's expressions, its variables, and (path, problem) of those that do not compile."""
    params = spec.get("paramKind") is not None
    types = _MutationTypes() if "mutations" in spec else None
    known: dict[str, Type] = {}
    programs: dict[str, Program] = {}
    problems: list[tuple[str, CompileError]] = []
    for index, variable in enumerate(spec.get("variables") or ()):
        name = variable.get("name") or ""
        try:
            # A variable sees those before it, which are all that are known when it is compiled.
            programs[name] = compile_cel(
                variable.get("expression") or "", declarations(params=params, variables=known, types=types)
            )
            known[name] = programs[name].result
        except CompileError as error:
            problems.append((f"spec.variables[{index}].expression", error))
            known[name] = DYN
    return declarations(params=params, variables=known, types=types), programs, problems


def prepare(source: Object) -> Policy:
    """Compile a stored policy."""
    spec = source["spec"]
    declared, variables, problems = environment(spec)

    def made(text: str | None) -> Compiled:
        return compile_or_keep(text or "", declared)

    def message(text: str | None) -> Program | None:
        found = made(text) if text else None
        return found if isinstance(found, Program) else None

    return Policy(
        source,
        tuple((text, made(text)) for text in (c.get("expression") or "" for c in spec.get("matchConditions") or ())),
        variables,
        problems[0][1] if problems else None,
        tuple(
            Rule(rule, made(rule.get("expression")), message(rule.get("messageExpression")))
            for rule in spec.get("validations") or ()
        ),
        tuple(_mutation(mutation, made) for mutation in spec.get("mutations") or ()),
        tuple(
            (note.get("key") or "", made(note.get("valueExpression"))) for note in spec.get("auditAnnotations") or ()
        ),
    )


def _mutation(source: Object, made: Callable[[str | None], Compiled]) -> Mutation:
    kind = str(source.get("patchType") or "")
    part = source.get(kind[:1].lower() + kind[1:]) if kind == "ApplyConfiguration" else source.get("jsonPatch")
    return Mutation(kind, made((part or {}).get("expression")))


class Prepared:
    """Cache of compiled policies, by UID and generation."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[int, Policy]] = {}

    def known(self, source: Object) -> Policy | None:
        """Return a compiled policy, None if it is to be compiled."""
        metadata = source["metadata"]
        known = self._known.get(metadata.get("uid", ""))
        return known[1] if known is not None and known[0] == metadata.get("generation", 0) else None

    def of(self, source: Object) -> Policy:
        """Return a policy, which is compiled unless it is known; raises TooMuchHere if that costs too much here."""
        known = self.known(source)
        if known is None:
            known = prepare(source)
            if len(self._known) > 4096:
                self._known.clear()
            self._known[source["metadata"].get("uid", "")] = source["metadata"].get("generation", 0), known
        return known
