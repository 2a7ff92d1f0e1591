"""Bytes that an answer shows: of objects, by their own texts and names, and of backends.

`OTHERWISE` are the answers that show an object's bytes in upstream too without a question about that object.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from tests.support.authorised import canaries
from tests.support.authorised.concerning import concerns
from tests.support.authorised.recording import Question
from tests.support.authorised.targets import RBAC, Target
from tests.support.authorised.world import EXTENSION, Sent, World

_SHOWN_BY = frozenset({"get", "list", "watch", "update", "patch", "create", "delete", "deletecollection"})
_WHOLE = frozenset({"", "status", "ephemeralcontainers", "resize", "approval", "finalize"})
"""Subresources that show the whole object."""
_FORWARDING = ("proxy", "log", "exec", "attach", "portforward")
OTHERWISE: dict[str, tuple[str, Callable[[Sent, Question], bool]]] = {
    "customresourcedefinitions": (
        "the schemas of custom resources are in the OpenAPI documents, for all who may read these",
        lambda sent, q: q.path.startswith("/openapi/") and sent.status == 200,
    ),
    "roles": (
        "a refused binding names the rules that its writer does not hold (rbac/validation: ConfirmNoEscalation)",
        lambda sent, q: (q.group, q.resource) == (RBAC, "rolebindings") and _not_held(sent),
    ),
    "clusterroles": (
        "the same",
        lambda sent, q: q.group == RBAC and q.resource in ("rolebindings", "clusterrolebindings") and _not_held(sent),
    ),
}


def unauthorised(world: World, sent: Sent, request: bytes, yes: list[Question]) -> Iterator[str]:
    """Yield what was shown that no answer of yes allows."""
    for (target, namespace, name), content in _found(world, sent.everything, request).items():
        if any(OTHERWISE[target.plural][1](sent, q) for q in yes if target.plural in OTHERWISE):
            continue
        readable = yes if content else [*yes, *_measured(yes)]
        about = [q for q in readable if concerns(q, target, namespace, name)]
        if any(q.verb in _SHOWN_BY and q.subresource in _WHOLE for q in about):
            continue
        if content or not any(q.subresource for q in about):  # a Scale or a token names the object that it is of
            yield f"bytes of {target.plural}.{target.group} {namespace}/{name} were shown"
    for host in re.findall(rb"zqbackend-([0-9a-f.:]+)-", sent.everything):
        if not any(q.subresource in _FORWARDING for q in yes) and not any(
            q.group == EXTENSION or q.path.startswith(f"/apis/{EXTENSION}") for q in yes
        ):
            yield f"what {host.decode()} answered was shown"


def _not_held(sent: Sent) -> bool:
    return sent.status == 403 and b"is attempting to grant RBAC permissions not currently held" in sent.body


def _found(world: World, text: bytes, request: bytes) -> dict[tuple[Target, str, str], bool]:
    """Return the objects whose bytes are in an answer: True for their contents, False for their names and labels alone.

    What the client itself has sent does not count.
    """
    found = {}
    if b"zq" in text:
        for name in set(world.names.findall(text)):
            if name not in request:
                found |= {seed: False for seed in world.named[name]}
    for own in sorted(canaries.texts(text) - canaries.texts(request)):
        if own in world.owners:
            found[world.owners[own]] = not canaries.is_label(own)
    return found


def _measured(yes: list[Question]) -> list[Question]:
    """Return the questions about metrics as such about the pods and nodes whose names and labels these show."""
    return [q._replace(group="") for q in yes if q.group == "metrics.k8s.io"]
