"""Finds why a user may not do something: the answer of the API server, and the role that is missing."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from datetime import datetime

import msgspec

from kube import resources
from kube.api import authorization_v1, rbac_v1
from kube.client import Client
from kube.errors import StatusError
from kube.object_names import name_of
from wherry.errors import UsageError, WherryError
from wherry.why import commands
from wherry.why.model import Cause, Reference, Story
from wherry.why.reading import Reader
from wherry.why.subject import kind_named

SERVICE_ACCOUNT = "system:serviceaccount:"
VERBS = frozenset(
    "get list watch create update patch delete deletecollection bind escalate impersonate approve sign use attest proxy".split()
)


POWERFUL_VERBS = frozenset({"bind", "escalate", "impersonate", "approve", "sign"})
POWERFUL = frozenset(
    "secrets pods/exec pods/attach pods/portforward pods/proxy services/proxy nodes/proxy serviceaccounts/token"
    " pods/ephemeralcontainers rolebindings clusterrolebindings roles clusterroles certificatesigningrequests/approval".split()
)
"""Verbs and resources that give a user the permissions of others."""


class Request(msgspec.Struct, frozen=True):
    """A request of a user. `resource` is a plural name, with a subresource after a slash if it has one."""

    user: str
    groups: tuple[str, ...]
    verb: str
    group: str
    resource: str
    name: str
    namespace: str

    def __str__(self) -> str:
        target = f"{self.resource}.{self.group}" if self.group else self.resource
        named = f" {self.name}" if self.name else ""
        return f"{self.user} {self.verb} {target}{named}{f' in {self.namespace}' if self.namespace else ''}"


async def request(client: Client, words: Sequence[str], namespace: str, groups: Sequence[str]) -> Request:
    """Return the request of the arguments USER VERB RESOURCE[/NAME]; a service account is NAMESPACE:NAME too."""
    if len(words) != 3:
        raise WherryError(
            "write: wherry why denied USER VERB RESOURCE, such as jane get pods, or shop:robot delete pods/web-1"
        )
    user, verb, target = words
    if verb not in VERBS:
        raise UsageError(f"there is no verb {verb}: use {', '.join(sorted(VERBS - {'attest', 'proxy'}))}")
    kind, _, name = target.partition("/")
    struct = await kind_named(client, kind)
    resource = resources.of(struct)
    plural = resource.plural
    if name in resource.subresources:
        plural, name = f"{plural}/{name}", ""
    if user.count(":") == 1:
        user = SERVICE_ACCOUNT + user
    return Request(user, tuple(groups), verb, resource.group, plural, name, namespace if resource.namespaced else "")


async def explained(client: Client, wanted: Request, now: datetime) -> Story:
    """Return whether a user may do something, and if not, the role that would allow it. Raises WherryError."""
    reader = Reader(client, now)
    subject = Reference("Request", str(wanted))
    allowed, reason = await _review(client, wanted)
    if allowed:
        return Story(subject, f"it is allowed{f': {reason}' if reason else ''}", [], [], reader.unknown)
    causes = [await _missing(reader, wanted, reason)]
    return Story(subject, "it is denied", [], causes, reader.unknown)


async def _review(client: Client, wanted: Request) -> tuple[bool, str]:
    plural, _, subresource = wanted.resource.partition("/")
    attributes = authorization_v1.ResourceAttributes(
        verb=wanted.verb,
        group=wanted.group,
        resource=plural,
        subresource=subresource or None,
        name=wanted.name or None,
        namespace=wanted.namespace or None,
    )
    groups = [*wanted.groups, "system:authenticated"]
    if wanted.user.startswith(SERVICE_ACCOUNT):
        namespace = wanted.user.split(":")[2]
        groups += ["system:serviceaccounts", f"system:serviceaccounts:{namespace}"]
    spec = authorization_v1.SubjectAccessReviewSpec(resource_attributes=attributes, user=wanted.user, groups=groups)
    try:
        answer = await client.create(authorization_v1.SubjectAccessReview(spec=spec))
    except StatusError as error:
        raise WherryError(f"the API server does not answer what {wanted.user} may do: {error}") from error
    status = answer.status or authorization_v1.SubjectAccessReviewStatus()
    return status.allowed, status.reason or status.evaluation_error or ""


async def _missing(reader: Reader, wanted: Request, reason: str) -> Cause:
    """Return the cause with the smallest existing role that would allow a request, or a new one."""
    said = f" ({reason})" if reason else ""
    roles: list[rbac_v1.ClusterRole | rbac_v1.Role] = [
        role for role in await reader.all(rbac_v1.ClusterRole) if _usable(name_of(role)) and _allows(role, wanted)
    ]
    if wanted.namespace:
        roles += [role for role in await reader.all(rbac_v1.Role, wanted.namespace) if _allows(role, wanted)]
    role = min((each for each in roles if not _wide(each, wanted)), key=_size, default=None)
    where = f" in {wanted.namespace}" if wanted.namespace else ""
    if role is None:
        other = (
            "there is no role that would without allowing everything else, secrets, commands in pods or impersonation"
        )
        text = f"no role that {wanted.user} has allows it{said}, and {other}"
        return Cause(text, _new_role(wanted))
    kind = type(role).__name__
    text = f"no role that {wanted.user} has allows it{said}; the {kind} {name_of(role)} would{where}"
    return Cause(text, _binding(wanted, kind.lower(), name_of(role)))


def _usable(name: str) -> bool:
    """Return whether a ClusterRole is for people and programs: the system's own are for its components."""
    return not name.startswith(("system:", "wherry:"))


def _wide(role: rbac_v1.ClusterRole | rbac_v1.Role, wanted: Request) -> bool:
    """Return whether a role allows what leads to other permissions: nobody should get that for another request."""
    return any(
        "*" in rule.verbs
        or any(each.startswith("*") for each in rule.resources)
        or POWERFUL_VERBS & set(rule.verbs) - {wanted.verb}
        or POWERFUL & set(rule.resources) - {wanted.resource}
        for rule in role.rules
    )


def _size(role: rbac_v1.ClusterRole | rbac_v1.Role) -> tuple[int, int, str]:
    """Order roles by how much they allow: all groups, the number of verbs and resources, the name."""
    wide = sum("*" in rule.api_groups for rule in role.rules)
    return wide, sum(len(rule.verbs) * len(rule.resources) for rule in role.rules), name_of(role)


def _allows(role: rbac_v1.ClusterRole | rbac_v1.Role, wanted: Request) -> bool:
    return any(_rule_allows(rule, wanted) for rule in role.rules)


def _rule_allows(rule: rbac_v1.PolicyRule, wanted: Request) -> bool:
    """Return whether one rule allows a request (upstream: pkg/registry/rbac/validation)."""
    _, _, subresource = wanted.resource.partition("/")
    named = (
        wanted.resource in rule.resources
        or "*" in rule.resources
        or (subresource and f"*/{subresource}" in rule.resources)
    )
    return bool(
        {wanted.verb, "*"} & set(rule.verbs)
        and {wanted.group, "*"} & set(rule.api_groups)
        and named
        and (not rule.resource_names or wanted.name in rule.resource_names)
    )


def _subject(wanted: Request) -> str:
    if wanted.user.startswith(SERVICE_ACCOUNT):
        return f"--serviceaccount={wanted.user.removeprefix(SERVICE_ACCOUNT)}"
    return f"--user={wanted.user}"


def _binding(wanted: Request, kind: str, role: str) -> str:
    binding = re.sub(r"[/%]", "-", f"{wanted.user.rpartition(':')[2]}-{role}")
    if wanted.namespace:
        words = ["rolebinding", binding, f"--{kind}={role}", _subject(wanted), *commands.namespaced(wanted.namespace)]
    else:
        words = ["clusterrolebinding", binding, f"--clusterrole={role}", _subject(wanted)]
    return shlex.join(["kubectl", "create", *words])


def _new_role(wanted: Request) -> str:
    kind = "role" if wanted.namespace else "clusterrole"
    name = f"{wanted.verb}-{wanted.resource.replace('/', '-')}"
    plural, _, subresource = wanted.resource.partition("/")
    target = f"{plural}.{wanted.group}" if wanted.group else plural
    words = [kind, name, f"--verb={wanted.verb}", f"--resource={target}{f'/{subresource}' if subresource else ''}"]
    words += [f"--resource-name={wanted.name}"] if wanted.name else []
    create = shlex.join(["kubectl", "create", *words, *commands.namespaced(wanted.namespace)])
    return f"{create} && {_binding(wanted, kind, name)}"
