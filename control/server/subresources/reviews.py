"""The kinds that are questions: a POST whose answer is the object with its status filled in; nothing is stored.

What they answer is `control.auth.reviews`; tokens for service accounts, a question too, are `control.auth.token_request`.
Anybody may ask some of them, so a question is small, and one of many values is checked and answered outside the event loop.
"""

from __future__ import annotations

import msgspec

from control.auth import review_validation, reviews
from control.auth.review_spec import attributes_of
from control.auth.setup import Auth
from control.auth.token_request import token_request
from control.auth.user import AuthzAttributes, UserInfo
from control.decoding.decode import Decoder
from control.event_loop import offload
from control.event_loop.weight import weight
from control.http.exchange import Answer, Request, typed_response
from control.registry import metadata
from control.server.lookup import BY_TARGET, StoredObjects
from control.server.subresources import created
from control.server.subresources.pods import assign, body_of
from control.server.verbs import Verbs
from kube import errors
from kube.api import authentication_v1
from kube.client_waits import WaitingRequest
from kube.clock import format_time
from kube.json_object import Object
from kube.owners import owner_of
from kube.resources import Resource

LARGEST_QUESTION = 64 * 1024
"""Bytes of a review or a token request. Upstream takes 3 MiB, as of every body."""
_TOKEN_REQUEST = Decoder(authentication_v1.TokenRequest, "authentication.k8s.io/v1", "TokenRequest")


async def _asked(server: Verbs, request: Request, resource: Resource) -> Object:
    """Return the review after admission; raises 413 for a large one and the errors of admission."""
    context = server.context(request, "CreateOptions")
    await request.document(LARGEST_QUESTION)
    obj = created.wiped(await server.decoded(request, resource))
    meta = obj["metadata"]
    if resource.namespaced:
        metadata.match_request(meta, request.info.namespace)
    attributes = await created.admit(server, request, resource, meta.get("name", ""), obj, context)
    await created.validate(server, attributes)
    return obj


def _weight(request: Request) -> int:
    return weight(request.sent, request.header(b"content-type"))


async def _answer(request: Request, resource: Resource, obj: Object, status: Object) -> Answer:
    answered = {**obj, "status": status}
    size = _weight(request) + weight(msgspec.json.encode(status))
    return await _shown(request, size, answered, resource.module, resource.kind)


async def _shown(request: Request, size: int, value: Object, module: str, kind: str) -> Answer:
    """Return the review with its status; YAML of 10 KB takes 10 ms."""
    return await offload.run(request.user.name, size, typed_response, request, value, module, kind, 201)


async def _asked_about(request: Request, resource: Resource, obj: Object, user: UserInfo | None) -> AuthzAttributes:
    """Return the attributes of an access review, by default for the user that it names; raises 422."""

    def read() -> AuthzAttributes:
        review_validation.check(resource.kind, obj)
        return attributes_of(user or reviews.subject(obj["spec"]), obj["spec"])

    return await offload.run(request.user.name, _weight(request), read)


def _waiting(request: Request) -> WaitingRequest:
    return WaitingRequest(owner_of(request.user.name), request.until_left)


async def self_subject(server: Verbs, request: Request, resource: Resource) -> Answer:
    """Return the request's own user (kubectl auth whoami)."""
    return await _answer(
        request, resource, await _asked(server, request, resource), reviews.self_subject_review(request.user)
    )


async def token(server: Verbs, auth: Auth, request: Request, resource: Resource) -> Answer:
    """Return the user of a token."""
    obj = await _asked(server, request, resource)
    return await _answer(
        request, resource, obj, await reviews.token_review(auth, obj.get("spec") or {}, _waiting(request))
    )


async def subject_access(server: Verbs, auth: Auth, request: Request, resource: Resource) -> Answer:
    """Return whether a user is authorized."""
    obj = await _asked(server, request, resource)
    if resource.namespaced:
        obj["metadata"]["namespace"] = request.info.namespace
    asked = await _asked_about(request, resource, obj, None)
    return await _answer(request, resource, obj, await reviews.access(auth, asked, _waiting(request)))


async def self_access(server: Verbs, auth: Auth, request: Request, resource: Resource) -> Answer:
    """May I do this (kubectl auth can-i)."""
    obj = await _asked(server, request, resource)
    asked = await _asked_about(request, resource, obj, request.user)
    return await _answer(request, resource, obj, await reviews.access(auth, asked, _waiting(request)))


async def self_rules(server: Verbs, auth: Auth, request: Request, resource: Resource) -> Answer:
    """Return the user's own permissions (kubectl auth can-i --list)."""
    obj = await _asked(server, request, resource)
    namespace = (obj.get("spec") or {}).get("namespace", "")
    status, size = await reviews.self_subject_rules_review(auth, request.user, namespace)
    answered = {**obj, "status": status}
    return await _shown(request, _weight(request) + size, answered, resource.module, resource.kind)


async def binding(server: Verbs, request: Request, resource: Resource) -> Answer:
    """The old way to bind a pod: a Binding in the namespace, named after the pod."""
    context = server.context(request, "CreateOptions")
    obj = await server.decoded(request, resource)
    metadata.match_request(obj.get("metadata") or {}, request.info.namespace)
    name = (obj.get("metadata") or {}).get("name")
    if not name:
        raise errors.invalid("", "Binding", "", [errors.required("metadata.name", "name or generateName is required")])
    return await assign(server, request, context, name, obj, resource, BY_TARGET["pods"])


async def service_account_token(server: Verbs, auth: Auth, request: Request, resource: Resource) -> Answer:
    """A new token for a service account (kubectl create token, and every kubelet)."""
    namespace, name = request.info.namespace, request.info.name
    context = server.context(request, "CreateOptions")
    await request.document(LARGEST_QUESTION)
    obj = await body_of(server, request, _TOKEN_REQUEST)
    given = (obj.get("metadata") or {}).get("name")
    if given not in (None, "", name):
        raise errors.bad_request(f"the name of the object ({given}) does not match the name on the URL ({name})")
    account = (await server.registry.get(resource, namespace, name)).obj
    attributes = await created.admit(server, request, resource, name, obj, context)
    meta = obj.setdefault("metadata", {})
    for part in ("name", "namespace", "uid"):
        meta[part] = meta.get(part) or account["metadata"][part]
    meta["creationTimestamp"] = format_time(server.registry.clock.now())
    await created.validate(server, attributes)
    lookup = StoredObjects(server.registry)
    clock = server.registry.clock
    accounts, signer = auth.service_accounts, auth.signer
    made = token_request(accounts, signer, lookup.get, clock, account, obj, extend=auth.extend_tokens)
    if context.dry_run:
        made["status"]["token"] = ""
    return await _shown(request, 2 * _weight(request), made, "authentication_v1", "TokenRequest")
