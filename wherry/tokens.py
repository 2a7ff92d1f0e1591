"""Bootstrap tokens as the command makes, shows and deletes them: Secrets in upstream's form in kube-system."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from kube import bootstrap_tokens, pki
from kube.api import core_v1, meta_v1
from kube.bootstrap_tokens import NODE_GROUP, SECRET_NAMESPACE, SECRET_TYPE, Token
from kube.client import Client
from kube.clock import SYSTEM, format_time, parse_time
from kube.errors import StatusError
from wherry import published
from wherry.discovery import duration
from wherry.errors import UsageError, WherryError
from wherry.output import Column
from wherry.settings import Settings

LIFETIME = timedelta(hours=24)
SIGNED_SECONDS = 30.0
_TTL = re.compile(r"(?:([0-9]{1,99})h)?(?:([0-9]{1,99})m)?(?:([0-9]{1,99})s)?")
LONGEST = timedelta(days=36500)


@dataclass(frozen=True, slots=True)
class Known:
    """One token as it is stored; `expires` None: never."""

    token: Token
    expires: datetime | None
    usages: tuple[str, ...]
    groups: tuple[str, ...]
    description: str


def as_data(entry: Known) -> dict[str, object]:
    """Return a token as JSON data, in the form of kubeadm's BootstrapToken."""
    found: dict[str, object] = {"token": str(entry.token), "usages": list(entry.usages), "groups": list(entry.groups)}
    if entry.description:
        found["description"] = entry.description
    if entry.expires is not None:
        found["expires"] = format_time(entry.expires)
    return found


COLUMNS: Sequence[Column[Known]] = (
    Column("TOKEN", lambda entry: str(entry.token)),
    Column("TTL", lambda entry: "<forever>" if entry.expires is None else left(entry.expires, SYSTEM.now())),
    Column("EXPIRES", lambda entry: "<never>" if entry.expires is None else format_time(entry.expires)),
    Column("USAGES", lambda entry: ",".join(entry.usages), wide=True),
    Column("DESCRIPTION", lambda entry: entry.description or "<none>"),
    Column("EXTRA GROUPS", lambda entry: ",".join(entry.groups), wide=True),
)


def lifetime(text: str) -> timedelta:
    """Read a token's time to live (24h, 1h30m, 45s; 0: for ever)."""
    match = _TTL.fullmatch(text)
    if text != "0" and (match is None or not text):
        raise UsageError(f"--ttl {text}: write it as in 24h, 1h30m or 45s; 0 is for ever")
    hours, minutes, seconds = (int(part or 0) for part in match.groups()) if match else (0, 0, 0)
    if 3600 * hours + 60 * minutes + seconds > LONGEST.total_seconds():
        raise UsageError(f"--ttl {text}: at most {LONGEST.days * 24}h; 0 is for ever")
    return timedelta(hours=hours, minutes=minutes, seconds=seconds)


def secret(token: Token, expires: datetime | None, description: str, groups: tuple[str, ...]) -> core_v1.Secret:
    """Return the Secret that stands for a token."""
    data = {
        "token-id": token.id,
        "token-secret": token.secret,
        "usage-bootstrap-authentication": "true",
        "usage-bootstrap-signing": "true",
        "auth-extra-groups": ",".join(groups),
    }
    if description:
        data["description"] = description
    if expires is not None:
        data["expiration"] = format_time(expires)
    return core_v1.Secret(
        metadata=meta_v1.ObjectMeta(name=token.secret_name, namespace=SECRET_NAMESPACE),
        type=SECRET_TYPE,
        data={key: base64.b64encode(text.encode()).decode() for key, text in data.items()},
    )


def left(expires: datetime, now: datetime) -> str:
    """Say how long a token still lives."""
    seconds = (expires - now).total_seconds()
    return duration(seconds) if seconds > 0 else "<expired>"


async def create(
    client: Client,
    ttl: timedelta = LIFETIME,
    description: str = "",
    groups: tuple[str, ...] = (NODE_GROUP,),
    token: Token | None = None,
) -> Token:
    """Make a token and wait until machines can join with it; WherryError where its name is taken."""
    token = token or bootstrap_tokens.new()
    expires = SYSTEM.now() + ttl if ttl else None
    try:
        await client.create(secret(token, expires, description, groups))
    except StatusError as error:
        if error.already_exists:
            raise WherryError(f"there is a token {token.id} already: `wherry token delete {token.id}` first") from error
        raise
    await published.wait_signed(client, token.id, SIGNED_SECONDS)
    return token


async def known(client: Client) -> list[Known]:
    """Return all tokens that are stored, the one that expires first before the others."""
    secrets = await client.list(core_v1.Secret, SECRET_NAMESPACE, field_selector=f"type={SECRET_TYPE}")
    found = [entry for entry in map(_decoded, secrets.items) if entry is not None]
    return sorted(found, key=lambda entry: (entry.expires is None, entry.expires or SYSTEM.now(), entry.token.id))


async def delete(client: Client, text: str) -> str:
    """Delete a token by its id, or by the whole of it; return the id."""
    token_id = text.partition(".")[0]
    if not bootstrap_tokens.is_id(token_id):
        raise UsageError(f"{text} is neither a token nor a token's first half")
    try:
        await client.delete(core_v1.Secret, bootstrap_tokens.SECRET_PREFIX + token_id, SECRET_NAMESPACE)
    except StatusError as error:
        if error.not_found:
            raise WherryError(f"there is no token {token_id}: `wherry token list` shows those there are") from error
        raise
    return token_id


def join_command(settings: Settings, token: Token) -> str:
    """Return the line that makes another machine a node."""
    authority = pki.decode_certificate((settings.layout.pki / "ca.crt").read_bytes())
    pin = pki.ca_hash(authority)
    return f"wherry join {settings.server} --token {token} --discovery-token-ca-cert-hash {pin}"


def _decoded(stored: core_v1.Secret) -> Known | None:
    try:
        data = {key: base64.b64decode(text).decode() for key, text in stored.data.items()}
        token = bootstrap_tokens.parse(f"{data.get('token-id', '')}.{data.get('token-secret', '')}")
        expires = parse_time(data["expiration"]) if data.get("expiration") else None
    except (ValueError, binascii.Error):
        return None
    prefix = "usage-bootstrap-"
    usages = tuple(key.removeprefix(prefix) for key in sorted(data) if key.startswith(prefix) and data[key] == "true")
    groups = tuple(group for group in data.get("auth-extra-groups", "").split(",") if group)
    return Known(token, expires, usages, groups, data.get("description", ""))
