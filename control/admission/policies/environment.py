"""Values of the variables that expressions of policies and match conditions refer to, for one request.

`variables` holds a policy's own variables, each evaluated when it is first requested.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from control.admission.request import describe
from control.auth.authorizers import RetryingAuthorizer
from control.auth.user import Authorizer, AuthzAttributes
from control.cel import EvaluationError, Program
from control.event_loop import offload
from control.interfaces.admission import Attributes
from control.interfaces.lookup import Lookup, find
from control.policy_expressions.authorizer import AuthorizerValue
from kube.json_object import Object
from kube.resources import Resource

T = TypeVar("T")


async def values(lookup: Lookup, authorizer: Authorizer, attributes: Attributes, resource: Resource) -> dict[str, Any]:
    """Return the values for one request as a version of its resource shows it."""
    request, obj, old = await describe(resource, attributes)
    asked = AuthzAttributes(
        user=attributes.user,
        verb="",
        group=resource.group,
        version=resource.version,
        resource=resource.plural,
        subresource=attributes.subresource,
        namespace=attributes.namespace,
        name=attributes.name,
    )
    namespace: Object | None = None
    if attributes.namespace and attributes.resource.target != "namespaces":
        namespace = await find(lookup, "namespaces", "", attributes.namespace)
    return {
        "object": obj,
        "oldObject": old,
        "request": request,
        "authorizer": AuthorizerValue(RetryingAuthorizer(authorizer), attributes.user, asked),
        "namespaceObject": namespace,
    }


async def settled(user: str, values: Mapping[str, Any], work: Callable[[], T]) -> T:
    """Do work that evaluates expressions on `values`: outside the event loop, at the user's turn, where they cost much.

    It is done again where an authorizer had to be waited for in the middle.
    """
    authorizer: RetryingAuthorizer = values["authorizer"].authorizer
    return await authorizer.settled(lambda: offload.evaluate(user, 0, work))


class Lazy:
    """The value of `variables`: programs by name, each evaluated once, and only if it is requested."""

    def __init__(self, programs: Mapping[str, Program], evaluate: Callable[[Program], Any]) -> None:
        self._programs, self._evaluate = programs, evaluate
        self._known: dict[str, Any] = {}
        self._under_way: set[str] = set()

    def __contains__(self, name: object) -> bool:
        return name in self._programs

    def __getitem__(self, name: str) -> Any:
        if name not in self._known:
            if name in self._under_way:
                raise EvaluationError(f"variable {name} refers to itself")
            self._under_way.add(name)
            self._known[name] = self._evaluate(self._programs[name])
        return self._known[name]
