"""Bearer tokens that are compared, not computed: the static token file and bootstrap tokens.

Both compare in constant time. A bootstrap token is a Secret `bootstrap-token-<id>` in kube-system; it is looked up at each
use, so that deleting or changing the Secret takes effect at once.
"""

from __future__ import annotations

import csv
import hashlib
import hmac
import io
import re
from collections.abc import Callable
from typing import Any

from control.auth.encoding import secret_text
from control.auth.user import Credentials, UserInfo
from kube.clock import Clock, parse_time

BOOTSTRAP_TYPE = "bootstrap.kubernetes.io/token"
BOOTSTRAP_GROUP = "system:bootstrappers"
_TOKEN = re.compile(r"([a-z0-9]{6})\.([a-z0-9]{16})")
_GROUP = re.compile(r"system:bootstrappers:[a-z0-9:-]{0,255}[a-z0-9]")


class StaticTokenAuthenticator:
    """Tokens from a file of lines `token,user,uid,"group1,group2"`."""

    def __init__(self, text: str) -> None:
        self._users: dict[bytes, UserInfo] = {}
        for row in csv.reader(io.StringIO(text), skipinitialspace=True):
            if not row:
                continue
            if len(row) < 3 or not row[0]:
                raise ValueError("token file must have at least 3 columns (token, user name, user uid)")
            groups = tuple(g.strip() for g in row[3].split(",") if g.strip()) if len(row) > 3 else ()
            self._users[_digest(row[0])] = UserInfo(row[1], row[2], groups)

    async def authenticate(self, credentials: Credentials) -> UserInfo | None:
        if credentials.token is None:
            return None
        # The digest is what is looked up: how long that takes tells nothing about the token.
        return self._users.get(_digest(credentials.token))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode()).digest()


class BootstrapTokenAuthenticator:
    """Tokens `<id>.<secret>` that new nodes join with; `get_secret(namespace, name)` looks in the watch cache."""

    def __init__(self, get_secret: Callable[[str, str], dict[str, Any] | None], clock: Clock) -> None:
        self._get_secret, self._clock = get_secret, clock

    async def authenticate(self, credentials: Credentials) -> UserInfo | None:
        match = _TOKEN.fullmatch(credentials.token or "")
        if match is None:
            return None
        token_id, token_secret = match.groups()
        secret = self._get_secret("kube-system", f"bootstrap-token-{token_id}")
        if secret is None or not self.valid_for(secret, token_id, token_secret):
            return None
        groups = bootstrap_groups(secret)
        return None if groups is None else UserInfo(f"system:bootstrap:{token_id}", "", groups)

    def valid_for(self, secret: dict[str, Any], token_id: str, token_secret: str) -> bool:
        """Return whether the Secret allows authentication with this token now."""
        return (
            secret.get("type") == BOOTSTRAP_TYPE
            and "deletionTimestamp" not in secret.get("metadata", {})
            and hmac.compare_digest(secret_text(secret, "token-secret").encode(), token_secret.encode())
            and hmac.compare_digest(secret_text(secret, "token-id").encode(), token_id.encode())
            and not self._expired(secret)
            and secret_text(secret, "usage-bootstrap-authentication") == "true"
        )

    def _expired(self, secret: dict[str, Any]) -> bool:
        text = secret_text(secret, "expiration")
        if not text:
            return False
        try:
            return parse_time(text) <= self._clock.now()
        except ValueError:
            return True  # what cannot be read counts as past, as upstream has it


def bootstrap_groups(secret: dict[str, Any]) -> tuple[str, ...] | None:
    """Return the token's groups, always with system:bootstrappers; None if one of them is not allowed."""
    groups = {g for g in secret_text(secret, "auth-extra-groups").split(",") if g}
    if any(_GROUP.fullmatch(g) is None for g in groups):
        return None
    return tuple(sorted({BOOTSTRAP_GROUP, *groups}))
