"""Bootstrap tokens: `<id>.<secret>`, the one thing a new machine and the cluster both know before they trust each other.

The id is public and names the Secret kube-system/bootstrap-token-<id>; the secret half proves the machine to the cluster (a
bearer token) and the cluster to the machine: the discovery document is signed with it, as a detached JSON web signature
(RFC 7515, appendix F) under HMAC-SHA256. The forms are upstream's (cluster-bootstrap/token).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import string
from dataclasses import dataclass, field

SECRET_TYPE = "bootstrap.kubernetes.io/token"
SECRET_PREFIX = "bootstrap-token-"
SECRET_NAMESPACE = "kube-system"
NODE_GROUP = "system:bootstrappers:wherry:default-node-token"
"""Group of the holders of node join tokens; the roles of joining are bound to it."""
CONTROL_PLANE_GROUP = "system:bootstrappers:wherry:control-plane"
"""Group of the holders of control-plane join tokens."""
CLUSTER_INFO, CLUSTER_INFO_NAMESPACE = "cluster-info", "kube-public"
KUBECONFIG_KEY, SIGNATURE_PREFIX = "kubeconfig", "jws-kubeconfig-"

_FORM = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")
_ID = re.compile(r"[a-z0-9]{6}")
_LETTERS = string.ascii_lowercase + string.digits


class TokenError(ValueError):
    """A text is no bootstrap token."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token in its two halves; the secret one is not shown in logs."""

    id: str
    secret: str = field(repr=False)

    def __str__(self) -> str:
        return f"{self.id}.{self.secret}"

    @property
    def secret_name(self) -> str:
        return SECRET_PREFIX + self.id


def parse(text: str) -> Token:
    """Read a token; raise TokenError if its form is wrong."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise TokenError(
            "a token is 6 letters or digits, a dot and 16 letters or digits, as in abcdef.0123456789abcdef"
        )
    return Token(*match.groups())


def is_id(text: str) -> bool:
    """Return whether a text is a token's public half."""
    return _ID.fullmatch(text) is not None


def new() -> Token:
    """Make a token from the system's randomness."""
    return Token(*("".join(secrets.choice(_LETTERS) for _ in range(count)) for count in (6, 16)))


def sign(content: str, token: Token) -> str:
    """Return the detached signature of a text: header and signature, with nothing between the two dots."""
    header = _unpadded(f'{{"alg":"HS256","kid":"{token.id}"}}'.encode())
    signed = header + b"." + _unpadded(content.encode())
    digest = hmac.new(token.secret.encode(), signed, hashlib.sha256).digest()
    return (header + b".." + _unpadded(digest)).decode()


def verify(content: str, signature: str, token: Token) -> bool:
    """Return whether a detached signature is this token's, of this text."""
    return hmac.compare_digest(sign(content, token).encode(), signature.encode())


def _unpadded(data: bytes) -> bytes:
    return base64.urlsafe_b64encode(data).rstrip(b"=")
