"""Tells which objects a question to the authorizer is about."""

from __future__ import annotations

from kube.journal import DENIED
from tests.support.authorised.recording import Question
from tests.support.authorised.targets import Target, same_storage


def concerns(q: Question, target: Target, namespace: str, name: str) -> bool:
    """Return whether a question is about an object, by itself or as one of those that it names by leaving their names out."""
    if not same_storage(q.group, q.resource, target):
        return False
    if target.plural == "namespaces":
        return q.name in ("", name)
    if (q.verb, q.namespace, q.name) == ("get", DENIED, f"{namespace}/{name}"):
        return True  # the journal's entries about denied requests
    many = q.verb in ("list", "watch", "deletecollection", "create")
    if target.namespaced and q.namespace != namespace and not (many and not q.namespace):
        return False
    return q.name == name or (many and not q.name)
