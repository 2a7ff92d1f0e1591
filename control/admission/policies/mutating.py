"""MutatingAdmissionPolicy: expressions that build an apply configuration or a JSON patch, applied to the object one by one.

Each mutation sees the result of those before it. As with mutating webhooks, the chain runs once more if one changed the
object; then only policies with reinvocationPolicy IfNeeded are evaluated again.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from control.admission import object_work
from control.admission.matching import exempt
from control.admission.policies.binding import Misconfigured, PolicyMatch, policy_matches
from control.admission.policies.environment import settled, values
from control.admission.policies.evaluation import Evaluation
from control.admission.versions import keep_identity, shape_of, shown_as, taken_back
from control.auth.user import Authorizer
from control.cel import CompileError, EvaluationError
from control.cel.values import is_larger
from control.decoding import numbers
from control.interfaces.admission import Attributes, Plugin
from control.interfaces.lookup import Lookup
from control.patch.apply.merge import merge
from control.patch.json_patch import FailedTest, apply_json_patch
from control.policy_expressions.compiled import Mutation, Prepared
from control.policy_expressions.conditions import Unclear
from control.registry.served import Executor
from kube import errors
from kube.errors import StatusError
from kube.json_object import Object, copy_json
from kube.resources import Resource

POLICIES = "mutatingadmissionpolicies.admissionregistration.k8s.io"
BINDINGS = "mutatingadmissionpolicybindings.admissionregistration.k8s.io"


class MutatingAdmissionPolicy(Plugin):
    name = "MutatingAdmissionPolicy"

    def __init__(self, lookup: Lookup, authorizer: Authorizer) -> None:
        self._lookup, self._authorizer = lookup, authorizer
        self._prepared = Prepared()

    async def admit(self, attributes: Attributes) -> None:
        if exempt(attributes) or attributes.operation not in ("CREATE", "UPDATE"):
            return
        # The object comes last: that of a large creation is decoded by who looks at it.
        if not list(self._lookup.list(BINDINGS)) or await object_work.weighed(attributes) is None:
            return
        rounds = attributes.reinvocation
        async for match in policy_matches(self._lookup, self._prepared, POLICIES, BINDINGS, attributes):
            uid = f"policy/{match.policy.name}/{match.binding_name}"
            if rounds.second and uid not in rounds.required:
                continue
            if await self._carry_out(match, attributes):
                rounds.require_those_asked()
                rounds.wanted = True
            if match.policy.spec.get("reinvocationPolicy") == "IfNeeded":
                rounds.asked.add(uid)

    async def _carry_out(self, match: PolicyMatch, attributes: Attributes) -> bool:
        """Apply a policy's mutations, all or none; return whether they changed the object."""
        obj = await object_work.weighed(attributes)
        assert obj is not None
        before = await object_work.run(attributes, copy_json, obj)
        try:
            if match.problem is not None:
                raise Misconfigured(f"failed to configure binding: {match.problem}")
            for mutation in match.policy.mutations:
                given = await values(self._lookup, self._authorizer, attributes, match.resource)
                given["params"] = match.params
                result = await settled(attributes.user.name, given, partial(_result, match, mutation, given))
                if result is _NOT_CONCERNED:
                    return False
                made = await self._mutated(mutation, result, match.resource, attributes)
                if made is not obj:
                    obj.clear()
                    obj.update(made)
        except (CompileError, EvaluationError, Unclear, Misconfigured, StatusError, msgspec.ValidationError) as error:
            obj.clear()
            obj.update(before)
            if match.policy.spec.get("failurePolicy") == "Ignore":
                return False
            why = "; ".join((str(error), *getattr(error, "__notes__", ())))
            text = f"policy '{match.policy.name}' with binding '{match.binding_name}' denied request: {why}"
            resource = attributes.resource
            refused = errors.forbidden(resource.group, resource.plural, attributes.name, text)
            refused.refused_by = f"{self.name} {match.policy.name}"
            raise refused from error
        paths = await object_work.run(attributes, changed_paths, before, obj)
        attributes.changed(f"policy {match.policy.name}", *paths)
        return bool(paths)

    @staticmethod
    async def _mutated(mutation: Mutation, result: Any, version: Resource, attributes: Attributes) -> Object:
        """Return the changed object, or the object as it is if a test in a JSON patch fails."""
        on_path, obj = attributes.resource, attributes.obj
        run: Executor = partial(object_work.run, attributes)
        assert obj is not None
        shown = await shown_as(obj, on_path, version, run)
        if mutation.kind == "ApplyConfiguration":
            if not isinstance(result, dict):
                raise EvaluationError("an apply configuration must be an Object")
            patched = await run(merge, shape_of(obj, on_path, version), shown, result)
        else:
            if not isinstance(result, list):
                raise EvaluationError("a JSON patch must be a list of JSONPatch")
            try:
                patched = await run(apply_json_patch, shown, [_operation(each) for each in result])
            except FailedTest:
                return obj
        object_work.weigh(attributes, patched)
        made = await taken_back(patched, on_path, version, obj, run)
        return keep_identity(made, obj)


_ABSENT = object()


def changed_paths(before: Object, after: Object) -> list[str]:
    """Return the fields in which two objects differ, those in metadata and spec one by one; [] if they are equal."""
    found: list[str] = []
    for name in before.keys() | after.keys():
        old, new = before.get(name, _ABSENT), after.get(name, _ABSENT)
        if old == new:
            continue
        if isinstance(old, dict) and isinstance(new, dict):
            parts = old.keys() | new.keys()
            found += [f"{name}.{part}" for part in parts if old.get(part, _ABSENT) != new.get(part, _ABSENT)]
        else:
            found.append(name)
    return sorted(found)


_NOT_CONCERNED = object()
MOST = 3 * 1024 * 1024
"""Characters, items and entries of a result together: values may share their parts, so that it can be much larger than its
expression's cost. A request has so many bytes at most."""


def _result(match: PolicyMatch, mutation: Mutation, given: Object) -> Any:
    evaluation = Evaluation(match.policy, given)
    if not evaluation.concerns():
        return _NOT_CONCERNED
    result = evaluation.value(mutation.program)
    if is_larger(result, MOST):
        raise EvaluationError(f"the result has more than {MOST} characters")
    try:
        return numbers.converted(result)
    except numbers.NumberError as error:
        raise EvaluationError(str(error)) from error


def _operation(given: Any) -> Object:
    if not isinstance(given, dict):
        raise EvaluationError("a JSON patch must be a list of JSONPatch")
    return {key: value for key, value in given.items() if value is not None or key == "value"}
