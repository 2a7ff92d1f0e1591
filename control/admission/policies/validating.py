"""ValidatingAdmissionPolicy: violations of its expressions are denied, warned of or audited, as its binding specifies."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import msgspec

from control.admission.matching import exempt
from control.admission.metrics import POLICY_CHECKS, POLICY_SECONDS
from control.admission.policies.binding import PolicyMatch, policy_matches
from control.admission.policies.environment import settled, values
from control.admission.policies.evaluation import Evaluation
from control.auth.user import Authorizer
from control.cel import CompileError, EvaluationError
from control.cel.errors import BudgetExceeded
from control.interfaces.admission import Attributes, Plugin
from control.interfaces.lookup import Lookup
from control.policy_expressions.compiled import Prepared
from control.policy_expressions.conditions import Unclear
from kube import errors
from kube.errors import StatusError

POLICIES = "validatingadmissionpolicies.admissionregistration.k8s.io"
BINDINGS = "validatingadmissionpolicybindings.admissionregistration.k8s.io"
_CODES = {"Unauthorized": 401, "Forbidden": 403, "RequestEntityTooLarge": 413}
"""By reason; every other is 422."""


class _Failure(msgspec.Struct, frozen=True):
    message: str
    reason: str
    index: int = 0
    error: str = "no_error"
    """Type of the expression's error, as a label of metrics."""
    seconds: float = 0.0
    ignored: bool = False
    """An error that the policy's failurePolicy ignores."""


class ValidatingAdmissionPolicy(Plugin):
    name = "ValidatingAdmissionPolicy"

    def __init__(self, lookup: Lookup, authorizer: Authorizer) -> None:
        self._lookup, self._authorizer = lookup, authorizer
        self._prepared = Prepared()

    async def validate(self, attributes: Attributes) -> None:
        if exempt(attributes) or not list(self._lookup.list(BINDINGS)):
            return
        denied: list[str] = []
        reason = policy = ""
        async for match in policy_matches(self._lookup, self._prepared, POLICIES, BINDINGS, attributes):
            failures = await self._failures(match, attributes)
            _count(match, failures)
            failures = [failure for failure in failures if not failure.ignored]
            for failure in failures:
                shown = f"ValidatingAdmissionPolicy '{match.policy.name}' with binding '{match.binding_name}'"
                actions = match.binding["spec"].get("validationActions") or ()
                if "Warn" in actions:
                    attributes.warnings.append(f"Validation failed for {shown}: {failure.message}")
                if "Deny" in actions:
                    reason, policy = reason or failure.reason, policy or match.policy.name
                    denied.append(f"{shown} denied request: {failure.message}")
            self._note(match, failures, attributes)
        if denied:
            error = _refusal(attributes, denied, reason)
            error.refused_by = f"{self.name} {policy}"
            raise error

    async def _failures(self, match: PolicyMatch, attributes: Attributes) -> list[_Failure]:
        """Return the violations of a policy; for failing expressions its failurePolicy applies."""
        strict = match.policy.spec.get("failurePolicy") != "Ignore"
        if match.problem is not None:
            return [_Failure(f"failed to configure binding: {match.problem}", "Invalid")] if strict else []
        given = await values(self._lookup, self._authorizer, attributes, match.resource)
        return await settled(
            attributes.user.name, given, lambda: self._found(match, attributes, given | {"params": match.params})
        )

    def _found(self, match: PolicyMatch, attributes: Attributes, given: dict[str, Any]) -> list[_Failure]:
        strict = match.policy.spec.get("failurePolicy") != "Ignore"
        evaluation = Evaluation(match.policy, given)
        try:
            if not evaluation.concerns():
                return []
        except Unclear as error:
            return [_Failure(str(error), "Invalid")] if strict else []
        found: list[_Failure] = []
        for index, rule in enumerate(match.policy.rules):
            began = perf_counter()
            try:
                if evaluation.value(rule.program) is not True:
                    seconds = perf_counter() - began
                    reason = rule.source.get("reason") or "Invalid"
                    found.append(_Failure(evaluation.failure(rule), reason, index, seconds=seconds))
            except (CompileError, EvaluationError) as error:
                text = f"expression '{rule.source['expression'].strip()}' resulted in error: {error}"
                seconds = perf_counter() - began
                found.append(_Failure(text, "Invalid", index, _error_type(error), seconds, ignored=not strict))
        self._annotate(match, evaluation, attributes)
        return found

    @staticmethod
    def _annotate(match: PolicyMatch, evaluation: Evaluation, attributes: Attributes) -> None:
        for key, program in match.policy.notes:
            try:
                text = evaluation.value(program)
            except (CompileError, EvaluationError) as error:
                text = f"error: {error}"
            if isinstance(text, str):
                attributes.annotations.setdefault(f"{match.policy.name}/{key}", text)

    @staticmethod
    def _note(match: PolicyMatch, failures: list[_Failure], attributes: Attributes) -> None:
        actions = match.binding["spec"].get("validationActions") or []
        if not failures or "Audit" not in actions:
            return
        notes = [
            {
                "message": failure.message,
                "policy": match.policy.name,
                "binding": match.binding_name,
                "expressionIndex": failure.index,
                "validationActions": actions,
            }
            for failure in failures
        ]
        key = "validation.policy.admission.k8s.io/validation_failure"
        before = msgspec.json.decode(attributes.annotations.get(key, "[]"))
        attributes.annotations[key] = msgspec.json.encode([*before, *notes]).decode()


def _error_type(error: Exception) -> str:
    if isinstance(error, CompileError):
        return "compile_error"
    return "out_of_budget" if isinstance(error, BudgetExceeded) else "invalid_error"


def _count(match: PolicyMatch, failures: list[_Failure]) -> None:
    """Count violations by the actions of the binding, and ignored errors as allowed, as upstream."""
    actions = match.binding["spec"].get("validationActions") or ()
    for failure in failures:
        for action in ("allow",) if failure.ignored else [str(action).lower() for action in actions]:
            labels = (match.policy.name, match.binding_name, failure.error, action)
            POLICY_CHECKS.add(*labels)
            POLICY_SECONDS.observe(*labels, failure.seconds)


def _refusal(attributes: Attributes, denied: list[str], reason: str) -> StatusError:
    resource = attributes.resource
    error = errors.forbidden(resource.group, resource.plural, attributes.name, denied[0])
    error.reason, error.code = reason, _CODES.get(reason, 422)
    error.details = {**error.details, "causes": [{"message": message} for message in denied]}
    return error
