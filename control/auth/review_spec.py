"""Converts authorization attributes (`AuthzAttributes`) to the spec of an access review, and back."""

from __future__ import annotations

import re

from control.auth.user import AuthzAttributes, UserInfo
from kube.json_object import Object
from kube.selectors import SelectorError, parse_fields, parse_labels

_FIELD = re.compile(r"[A-Za-z0-9_./\[\]-]+")
_LABEL = re.compile(r"[A-Za-z0-9_./-]*")
_LABEL_OPERATORS = {"in": "In", "notin": "NotIn", "exists": "Exists", "!": "DoesNotExist"}


def spec_of(a: AuthzAttributes) -> Object:
    """Write a question as the spec of a SubjectAccessReview (authorization.k8s.io/v1)."""
    spec: Object = {}
    if a.is_resource:
        names = ("namespace", "verb", "group", "version", "resource", "subresource", "name")
        asked: Object = {name: value for name in names if (value := getattr(a, name))}
        if fields := _fields(a.field_selector):
            asked["fieldSelector"] = {"requirements": fields}
        if labels := _labels(a.label_selector):
            asked["labelSelector"] = {"requirements": labels}
        spec["resourceAttributes"] = asked
    else:
        spec["nonResourceAttributes"] = {"path": a.path, "verb": a.verb}
    if a.user.name:
        spec["user"] = a.user.name
    if a.user.uid:
        spec["uid"] = a.user.uid
    if a.user.groups:
        spec["groups"] = list(a.user.groups)
    if a.user.extra:
        spec["extra"] = {key: list(values) for key, values in sorted(a.user.extra.items())}
    return spec


def shown_to_conditions(spec: Object) -> Object:
    """Return a spec as match conditions see it: every text is there, also where it is empty."""
    shown = {"user": "", "uid": "", "groups": [], "extra": {}} | spec
    asked = spec.get("resourceAttributes")
    if asked is not None:
        names = ("namespace", "verb", "group", "version", "resource", "subresource", "name")
        shown["resourceAttributes"] = dict.fromkeys(names, "") | asked
    return shown


def _fields(text: str) -> list[Object]:
    try:
        terms = parse_fields(text).terms if text else ()
    except SelectorError:
        return []  # the request is refused for it later; an authorizer gets what is valid
    return [{"key": key, "operator": "In" if equal else "NotIn", "values": [value]} for key, value, equal in terms]


def _labels(text: str) -> list[Object]:
    try:
        requirements = parse_labels(text).requirements if text else ()
    except SelectorError:
        return []
    found: list[Object] = []
    for requirement in requirements:
        operator = _LABEL_OPERATORS.get(requirement.operator)
        if operator is None:
            continue  # larger and smaller cannot be said in a review
        shown: Object = {"key": requirement.key, "operator": operator}
        if requirement.values:
            shown["values"] = sorted(requirement.values)
        found.append(shown)
    return found


def attributes_of(user: UserInfo, spec: Object) -> AuthzAttributes:
    """Parse the attributes of a review."""
    path = spec.get("nonResourceAttributes")
    if path is not None:
        return AuthzAttributes(user=user, verb=path.get("verb", ""), path=path.get("path", ""))
    r = spec["resourceAttributes"]
    return AuthzAttributes(
        user=user,
        verb=r.get("verb", ""),
        group=r.get("group", ""),
        version=r.get("version", ""),
        resource=r.get("resource", ""),
        subresource=r.get("subresource", ""),
        namespace=r.get("namespace", ""),
        name=r.get("name", ""),
        field_selector=_field_text(r.get("fieldSelector")),
        label_selector=_label_text(r.get("labelSelector")),
        unnamed_resource=not r.get("resource"),
    )


def _field_text(selector: Object | None) -> str:
    if not selector:
        return ""
    if selector.get("rawSelector"):
        return str(selector["rawSelector"])
    found = []
    for requirement in selector.get("requirements") or ():
        key, values = str(requirement.get("key", "")), list(requirement.get("values") or ())
        sign = {"In": "=", "NotIn": "!="}.get(str(requirement.get("operator")))
        # What a text cannot say is left out: authorizers take the request for a wider one.
        if sign is not None and len(values) == 1 and _FIELD.fullmatch(key):
            found.append(f"{key}{sign}{_escaped(str(values[0]))}")
    return ",".join(found)


def _escaped(value: str) -> str:
    return "".join(f"\\{c}" if c in "\\,=" else c for c in value)


def _label_text(selector: Object | None) -> str:
    if not selector:
        return ""
    if selector.get("rawSelector"):
        return str(selector["rawSelector"])
    return ",".join(filter(None, map(_label_term, selector.get("requirements") or ())))


def _label_term(r: Object) -> str:
    key, operator, given = str(r.get("key", "")), r.get("operator"), r.get("values") or ()
    if not key or not all(_LABEL.fullmatch(str(part)) for part in (key, *given)):
        return ""
    values = ",".join(given)
    forms = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key, "DoesNotExist": f"!{key}"}
    return forms.get(str(operator), "")
