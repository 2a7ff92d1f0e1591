"""Variables of the expressions of policies and match conditions, and their values for one request.

The object is `dyn`, as with upstream: one policy may concern many kinds. `request` has the fields of an AdmissionRequest
but the objects; `variables` holds a policy's own variables, each evaluated when it is first requested.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from control import offload
from control.admission.lookup import Lookup, find
from control.admission.plugin import Attributes
from control.admission.policies.authorizer import AUTHORIZER, FUNCTIONS, SIGNATURES, AuthorizerValue
from control.admission.request import describe
from control.auth.authorizers import RetryingAuthorizer
from control.auth.user import Authorizer, AuthzAttributes
from control.cel import Declarations, EvaluationError, Program
from control.cel.signatures import read as read_signatures
from control.cel.types import BOOL, DYN, STRING, Type, list_of, map_of, object_of
from kube.json_object import Object
from kube.resources import Resource

T = TypeVar("T")
_KIND = object_of({"group": STRING, "version": STRING, "kind": STRING}, "kubernetes.GroupVersionKind")
_RESOURCE = object_of({"group": STRING, "version": STRING, "resource": STRING}, "kubernetes.GroupVersionResource")
_USER = object_of(
    {"username": STRING, "uid": STRING, "groups": list_of(STRING), "extra": map_of(STRING, list_of(STRING))},
    "kubernetes.UserInfo",
)
_REQUEST = object_of(
    {
        "kind": _KIND,
        "resource": _RESOURCE,
        "subResource": STRING,
        "requestKind": _KIND,
        "requestResource": _RESOURCE,
        "requestSubResource": STRING,
        "name": STRING,
        "namespace": STRING,
        "operation": STRING,
        "userInfo": _USER,
        "dryRun": BOOL,
        "options": DYN,
    },
    "kubernetes.AdmissionRequest",
)


_PATCH_SIGNATURES = read_signatures(["jsonpatch.escapeKey (string)string"])
_PATCH_FUNCTIONS = {"jsonpatch.escapeKey": lambda key: key.replace("~", "~0").replace("/", "~1")}


def declarations(
    *, params: bool = False, variables: Mapping[str, Type] | None = None, types: Mapping[str, Type] | None = None
) -> Declarations:
    """Return what may be referred to; `variables` None: there is no such variable (match conditions).

    `types` are what mutations build; None: nothing can be built.
    """
    known: dict[str, Type] = {"object": DYN, "oldObject": DYN, "request": _REQUEST, "authorizer": AUTHORIZER}
    known["namespaceObject"] = DYN
    if params:
        known["params"] = DYN
    if variables is not None:
        known["variables"] = object_of(variables, "kubernetes.variables")
    if types is None:
        return Declarations(known, SIGNATURES, FUNCTIONS)
    return Declarations(known, SIGNATURES | _PATCH_SIGNATURES, {**FUNCTIONS, **_PATCH_FUNCTIONS}, types)


async def values(lookup: Lookup, authorizer: Authorizer, attributes: Attributes, resource: Resource) -> dict[str, Any]:
    """Return the values for one request as a version of its resource shows it."""
    request, obj, old = await describe(resource, attributes)
    asked = AuthzAttributes(
        attributes.user,
        "",
        resource.group,
        resource.version,
        resource.plural,
        attributes.subresource,
        attributes.namespace,
        attributes.name,
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
