"""serviceaccounts/token: issues a token for an account, bound to the object that the request names.

A kubelet requests tokens for pods with 3607 s; such a token, if it is only for the API server, is valid for a year and has the
claim `warnafter`, for clients that never read the file again (KEP-1205), unless --service-account-extend-token-expiration is
false.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta

from control.auth.service_account_tokens import ServiceAccountAuthenticator
from control.auth.token_claims import Bound, make_claims
from control.auth.token_signer import TokenSigner
from kube.clock import Clock, format_time
from kube.errors import FieldError, bad_request, conflict, invalid, invalid_value, not_found, too_long, too_many
from kube.json_object import Object

DEFAULT_SECONDS = 3600
MIN_SECONDS = 600
MAX_SECONDS = 1 << 32
WARN_ONLY_SECONDS = 3607
EXTENDED_SECONDS = 365 * 24 * 3600
MOST_AUDIENCES = 64
LONGEST_AUDIENCES = 8192
"""Bytes of all audiences in the token's JSON. There is no limit upstream; here a token has to be shorter than
`unverified_token.LONGEST`."""
_GROUP = "authentication.k8s.io"
_BINDABLE = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}

Lookup = Callable[[str, str, str], Object | None]


def token_request(
    accounts: ServiceAccountAuthenticator,
    signer: TokenSigner,
    lookup: Lookup,
    clock: Clock,
    account: Object,
    obj: Object,
    *,
    extend: bool,
) -> Object:
    """Return the TokenRequest with its defaults and its status filled in, to be answered with 201.

    `extend`: tokens that kubelets request for pods are valid for a year.
    Raises 422 for a bad life time and for too many or too long audiences, 404 and 409 where the bound object is not there or
    is another, 400 where it cannot be bound to.
    """
    spec: Object = {"expirationSeconds": DEFAULT_SECONDS} | {
        k: v for k, v in (obj.get("spec") or {}).items() if v is not None
    }
    seconds = spec["expirationSeconds"]
    errors = _audience_errors(spec.get("audiences") or [])
    spec["audiences"] = spec.get("audiences") or list(accounts.audiences)
    if seconds < MIN_SECONDS:
        detail = "may not specify a duration less than 10 minutes"
        errors.append(invalid_value("spec.expirationSeconds", seconds, detail))
    if seconds > MAX_SECONDS:
        detail = "may not specify a duration larger than 2^32 seconds"
        errors.append(invalid_value("spec.expirationSeconds", seconds, detail))
    if errors:
        raise invalid(_GROUP, "TokenRequest", "", errors)
    metadata = account["metadata"]
    uid = (obj.get("metadata") or {}).get("uid")
    if uid and uid != metadata["uid"]:
        why = f"the UID in the token request ({uid}) does not match the UID of the service account ({metadata['uid']})"
        raise conflict("", "serviceaccounts", metadata["name"], why)
    bound = _bound(lookup, account, spec.get("boundObjectRef") or {})
    for_pod = seconds == WARN_ONLY_SECONDS and "pod" in bound and set(spec["audiences"]) <= set(accounts.audiences)
    now = clock.now()
    life, warn = (EXTENDED_SECONDS, WARN_ONLY_SECONDS) if extend and for_pod else (seconds, 0)
    token = signer.sign(make_claims(signer.issuer, account, spec["audiences"], now, life, warn_after=warn, **bound))
    status = {"token": token, "expirationTimestamp": format_time(now + timedelta(seconds=seconds))}
    created = {
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "creationTimestamp": format_time(now),
    }
    return {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "TokenRequest",
        "metadata": created,
        "spec": spec,
        "status": status,
    }


def _audience_errors(audiences: list[str]) -> list[FieldError]:
    if len(audiences) > MOST_AUDIENCES:
        return [too_many("spec.audiences", len(audiences), MOST_AUDIENCES)]
    if len(json.dumps(audiences)) > LONGEST_AUDIENCES:
        return [too_long("spec.audiences", LONGEST_AUDIENCES)]
    return []


def _bound(lookup: Lookup, account: Object, ref: Object) -> dict[str, Bound]:
    if not ref:
        return {}
    kind, name = ref.get("kind", ""), ref.get("name", "")
    plural = _BINDABLE.get(kind) if ref.get("apiVersion", "v1") == "v1" else None
    if plural is None:
        group, _, version = ref.get("apiVersion", "").rpartition("/")
        raise bad_request(f"cannot bind token to object of type {group}/{version}, Kind={kind}")
    namespace = "" if kind == "Node" else account["metadata"]["namespace"]
    found = lookup(plural, namespace, name)
    if found is None:
        raise not_found("", plural, name)
    uid = found["metadata"]["uid"]
    if ref.get("uid") and ref["uid"] != uid:
        why = (
            f"the UID in the bound object reference ({ref['uid']}) does not match the UID in record. "
            "The object might have been deleted and then recreated"
        )
        raise conflict("", plural, name, why)
    bound = {kind.lower(): Bound(kind, name, uid)}
    if kind == "Pod":
        runs_as = found["spec"].get("serviceAccountName", "")
        if runs_as != account["metadata"]["name"]:
            wanted = account["metadata"]["name"]
            raise bad_request(
                f'cannot bind token for serviceaccount "{wanted}" to pod running with different serviceaccount name.'
            )
        node = found["spec"].get("nodeName", "")
        if node:
            record = lookup("nodes", "", node)
            bound["node"] = Bound("Node", node, record["metadata"]["uid"] if record else "")
    return bound
