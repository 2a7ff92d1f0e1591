"""Type-checks a policy's expressions against the kinds that it names: errors are reported in its status only.

Every generation of a ValidatingAdmissionPolicy is looked at once: validations and their messages, against each kind that
`matchConstraints` names without a wildcard (apiserver's validating/typechecking.go). A server that finds the generation
observed has nothing to do, so all of them may look. MutatingAdmissionPolicies have no status.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import ParamSpec, TypeVar

import msgspec

from control.admission.policies import typing
from control.cel import CompileError, Declarations
from control.cel import compile as compile_cel
from control.cel.types import DYN, Type
from control.custom.definitions import Definitions
from control.event_loop import offload
from control.event_loop.pacing import TimeSlice
from control.policy_expressions.declarations import declarations
from control.registry import controller_support
from control.registry.context import SERVER
from control.registry.registry import Registry
from kube import cancellation
from kube.client import Client
from kube.errors import StatusError, timeout
from kube.json_object import Object
from kube.resources import RESOURCES, Resource, by_path
from kube.step_limit import Limit, StepTooLong, limited
from kube.step_shares import Shares

P = ParamSpec("P")
T = TypeVar("T")
ByGroupVersion = list[tuple[tuple[str, str], dict[str, Resource]]]
log = logging.getLogger(__name__)
RETRY_SECONDS = 1.0
"""Delay after a write that failed for another reason than a conflict."""
MOST_TYPES = 10
"""Kinds that a rule's expressions are checked against (maxTypesToCheck). After a rule with so many no other is looked at."""
CHECK_SECONDS = 60.0
"""Time after which no further expression of a policy is checked: each is checked against each kind."""
STEP_SECONDS, SHARE, PAUSE = 1.0, 0.5, 60.0
_shares = Shares("checking policies", STEP_SECONDS, SHARE, PAUSE)
_found = by_path("admissionregistration.k8s.io", "v1", "validatingadmissionpolicies")
assert _found is not None
POLICIES: Resource = _found


class TypeChecking:
    """Keeps the status of policies."""

    def __init__(self, registry: Registry, custom: Definitions, client: Client) -> None:
        self.registry, self.custom, self._client = registry, custom, client
        self._waiting: set[str] = set()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled."""
        async with asyncio.TaskGroup() as group:
            follow = functools.partial(controller_support.follow, self.registry, POLICIES, self._handle_change)
            cancellation.start(group, follow, "type-checking-follows")
            cancellation.start(group, self._work, "type-checking")

    def _handle_change(self, policy: Object) -> None:
        if not _is_checked(policy):
            self._waiting.add(policy["metadata"]["name"])
            self._changed.set()

    async def _work(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._waiting:
                await self._check_policy(self._waiting.pop())

    async def _check_policy(self, name: str) -> None:
        entry = self.registry.cached(POLICIES).get(POLICIES.key("", name))
        if entry is None:
            return
        policy = entry.obj
        if _is_checked(policy):
            return
        status: Object = {**(policy.get("status") or {}), "observedGeneration": policy["metadata"].get("generation", 0)}
        try:
            warnings = await limited(self.warnings(policy["spec"]), Limit(_shares, name))
        except (StatusError, StepTooLong) as error:
            log.error("policy %s is not type-checked: %s", name, error)
            warnings = []
        status["typeChecking"] = {"expressionWarnings": warnings} if warnings else {}
        try:
            path = POLICIES.path(name=name, subresource="status")
            await self._client.call("PUT", path, body=msgspec.json.encode({**policy, "status": status}))
        except StatusError as error:
            log.debug("the types of policy %s were not written: %s", name, error)
            if error.not_found or error.code == 409:
                return  # somebody else wrote or removed the policy meanwhile, which its watch tells
            await self.registry.clock.sleep(RETRY_SECONDS)
            self._handle_change(policy)

    async def warnings(self, spec: Object) -> list[Object]:
        """Return the status' expressionWarnings for a policy's spec; raises 504 if that takes too long."""
        until = time.monotonic() + CHECK_SECONDS
        await self.custom.prepare()
        kinds = await self._kinds(spec)
        environments = []
        params = await self._params(spec)
        for shown, kind in kinds:
            environments.append((shown, await _evaluated(until, _environment, spec, kind, params)))
        found = []
        for index, rule in enumerate(spec.get("validations") or ()):
            for part in ("expression", "messageExpression"):
                warning = await _evaluated(until, _warning, rule[part], environments) if rule.get(part) else ""
                if warning:
                    found.append({"fieldRef": f"spec.validations[{index}].{part}", "warning": warning})
            await asyncio.sleep(0)
        return found

    async def _kinds(self, spec: Object) -> list[tuple[str, Type]]:
        """Return the kinds that the rules name, of those that are served: the lists of a rule may name millions together."""
        served, time_slice = by_group_version((*RESOURCES, *self.custom.every())), TimeSlice()
        found: dict[tuple[str, str, str], Resource] = {}
        for rule in (spec.get("matchConstraints") or {}).get("resourceRules") or ():
            await time_slice.step()
            kinds = list(itertools.islice(named(rule, served), MOST_TYPES))
            found |= {(resource.group, resource.version, resource.kind): resource for resource in kinds}
            if len(kinds) == MOST_TYPES:
                break
        return [(f"{g}/{v}, Kind={k}", await self._type(found[g, v, k])) for g, v, k in sorted(found)]

    async def _params(self, spec: Object) -> Type:
        wanted = spec.get("paramKind")
        for resource in (*RESOURCES, *self.custom.every()):
            if wanted and (resource.api_version, resource.kind) == (wanted.get("apiVersion"), wanted.get("kind")):
                return await self._type(resource)
        return DYN

    async def _type(self, resource: Resource) -> Type:
        await self.custom.ready(resource)
        return typing.of_resource(resource)


def by_group_version(resources: Iterable[Resource]) -> ByGroupVersion:
    """Return resources by group and version, sorted, and then by their plural names."""
    found: dict[tuple[str, str], dict[str, Resource]] = {}
    for resource in resources:
        found.setdefault((resource.group, resource.version), {}).setdefault(resource.plural, resource)
    return sorted(found.items())


def named(rule: Object, served: ByGroupVersion) -> Iterator[Resource]:
    """Yield the resources that a rule names without a wildcard."""
    groups, versions = frozenset(rule.get("apiGroups") or ()), frozenset(rule.get("apiVersions") or ())
    if any("*" in text for text in (*groups, *versions)):
        return
    plurals = {name for name in rule.get("resources") or () if not set("*/") & set(name)}
    for (group, version), resources in served:
        if group in groups and version in versions:
            for plural in sorted(plurals & resources.keys()):
                yield resources[plural]


def _is_checked(policy: Object) -> bool:
    generation: int = policy["metadata"].get("generation", 0)
    return bool(generation <= (policy.get("status") or {}).get("observedGeneration", -1))


def _environment(spec: Object, kind: Type, params: Type) -> Declarations:
    """Return what expressions may refer to, with object and oldObject of this kind."""
    typed = {"object": kind, "oldObject": kind} | ({"params": params} if spec.get("paramKind") else {})
    known: dict[str, Type] = {}
    for variable in spec.get("variables") or ():
        base = declarations(params=bool(spec.get("paramKind")), variables=dict(known))
        try:
            program = compile_cel(variable.get("expression") or "", _with(base, typed))
            known[variable.get("name") or ""] = program.result
        except CompileError:
            known[variable.get("name") or ""] = DYN
    return _with(declarations(params=bool(spec.get("paramKind")), variables=known), typed)


def _with(base: Declarations, typed: dict[str, Type]) -> Declarations:
    return Declarations({**base.variables, **typed}, base.signatures, base.functions, base.types)


async def _evaluated(until: float, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what work that compiles expressions returns: done outside of the event loop if they are long.

    Raises 504 after a time, and where it takes too long.
    """
    if time.monotonic() > until:
        raise timeout("its expressions and kinds are too many")
    return await offload.evaluate(SERVER.name, 0, work, *args, **kwargs)


def _warning(expression: str, environments: list[tuple[str, Declarations]]) -> str:
    return "\n".join(_warnings(expression, environments))


def _warnings(expression: str, environments: list[tuple[str, Declarations]]) -> Iterator[str]:
    for shown, declared in environments:
        try:
            compile_cel(expression, declared)
        except CompileError as error:
            yield f"{shown}: {error}\n"
