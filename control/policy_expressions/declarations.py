"""Declares the variables that expressions of policies and match conditions may refer to, with their types.

The object is `dyn`, as with upstream: one policy may concern many kinds. `request` has the fields of an AdmissionRequest
but the objects.
"""

from __future__ import annotations

from collections.abc import Mapping

from control.cel import Declarations
from control.cel.signatures import read as read_signatures
from control.cel.types import BOOL, DYN, STRING, Type, list_of, map_of, object_of
from control.policy_expressions.authorizer import AUTHORIZER, FUNCTIONS, SIGNATURES

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
