"""Bundle of keys and certificates for a second control-plane member, transported through the cluster, encrypted with a key.

`wherry token create --control-plane` puts the authorities, the key of service accounts, etcd's client certificate and
the encryption configuration into Secret kube-system/wherry-certs, each encrypted with AES-256-GCM under a key that is
printed and kept nowhere (kubeadm's upload-certs). The Secret belongs to a token of two hours, is deleted with it, and
can be read with such tokens only.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from kube.api import core_v1, meta_v1
from kube.bootstrap_tokens import SECRET_NAMESPACE, Token
from kube.client import Client
from kube.deletion import delete_if_present
from kube.errors import StatusError
from kube.files import write_file
from wherry.errors import WherryError
from wherry.layout import Layout
from wherry.settings import Settings

NAME = "wherry-certs"
LIFETIME = timedelta(hours=2)
KEY_BYTES, NONCE_BYTES = 32, 12
AUTHORITIES = ("ca.crt", "ca.key", "front-proxy-ca.crt", "front-proxy-ca.key", "sa.key", "sa.pub")
ETCD = {"etcd_cafile": "etcd-ca.crt", "etcd_certfile": "etcd-client.crt", "etcd_keyfile": "etcd-client.key"}
"""Setting -> name in the bundle."""
POLICIES = (
    "encryption.yaml",
    "audit-policy.yaml",
    "audit-webhook.kubeconfig",
    "authentication.yaml",
    "authentication-webhook.kubeconfig",
    "admission.yaml",
    "abac-policy.jsonl",
    "authorization-webhook.kubeconfig",
    "authorization.yaml",
    "tokens.csv",
    "apiserver.yaml",
    "controller-manager.yaml",
    "scheduler.yaml",
    "tracing.yaml",
)
"""Optional files of administrators in /etc/wherry for the API server and its embedded components."""
SETTINGS = "settings.json"
MIGRATE = (
    "this cluster is stored in SQLite, which one API server alone can use: `wherry store migrate --etcd-servers ...` on the "
    "first machine moves it to etcd, then join again"
)


@dataclass(frozen=True, slots=True)
class Bundle:
    """File name -> content, and the settings of storage."""

    files: Mapping[str, bytes]
    settings: Mapping[str, Any]


def new_key() -> str:
    """Make a key, in hexadecimal digits."""
    return os.urandom(KEY_BYTES).hex()


def read_key(text: str) -> bytes:
    """Read a key; WherryError where it is none."""
    try:
        key = binascii.unhexlify(text.strip())
    except (binascii.Error, ValueError):
        key = b""
    if len(key) != KEY_BYTES:
        raise WherryError(
            "--certificate-key is 64 hexadecimal digits, as `wherry token create --control-plane` printed it"
        )
    return key


def encrypt(content: bytes, key: bytes, name: str) -> bytes:
    """Encrypt a file's content; it opens under the same key and name alone."""
    nonce = os.urandom(NONCE_BYTES)
    return nonce + AESGCM(key).encrypt(nonce, content, name.encode())


def decrypt(data: bytes, key: bytes, name: str) -> bytes:
    """Decrypt a file's content; WherryError where the key is not the one."""
    try:
        return AESGCM(key).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], name.encode())
    except (InvalidTag, ValueError) as error:
        raise WherryError(
            "--certificate-key does not open the cluster's certificates: another was made since (`wherry token create "
            "--control-plane` prints the one in force)"
        ) from error


def collect(settings: Settings) -> Bundle:
    """Gather the files of this member; WherryError where the storage cannot be shared."""
    if settings.store != "etcd":
        raise WherryError(MIGRATE)
    layout = settings.layout
    files = {name: (layout.pki / name).read_bytes() for name in AUTHORITIES}
    for setting, name in ETCD.items():
        if path := getattr(settings, setting):
            files[name] = Path(path).read_bytes()
    for name in POLICIES:
        if (layout.etc / name).exists():
            files[name] = (layout.etc / name).read_bytes()
    return Bundle(files, {"etcd_servers": settings.etcd_servers, "etcd_prefix": settings.etcd_prefix})


async def upload(client: Client, bundle: Bundle, key: str, token: Token) -> None:
    """Put the bundle into the cluster, in the place of one that is there; it goes when the token goes."""
    owner = await client.get(core_v1.Secret, token.secret_name, SECRET_NAMESPACE)
    raw = read_key(key)
    files = {**bundle.files, SETTINGS: msgspec.json.encode(bundle.settings)}
    secret = core_v1.Secret(
        metadata=meta_v1.ObjectMeta(
            name=NAME,
            namespace=SECRET_NAMESPACE,
            owner_references=[
                meta_v1.OwnerReference(
                    api_version="v1",
                    kind="Secret",
                    name=token.secret_name,
                    uid=owner.metadata.uid or "",
                    controller=True,
                )
            ],
        ),
        type="Opaque",
        data={name: base64.b64encode(encrypt(content, raw, name)).decode() for name, content in files.items()},
    )
    await delete_if_present(client, core_v1.Secret, NAME, SECRET_NAMESPACE)
    await client.create(secret)


async def download(client: Client, key: str) -> Bundle:
    """Read and open the bundle; WherryError where there is none or the key is another's."""
    raw = read_key(key)
    try:
        secret = await client.get(core_v1.Secret, NAME, SECRET_NAMESPACE)
    except StatusError as error:
        if error.code in (403, 404):
            raise WherryError(
                "the cluster offers no certificates for another member: `wherry token create --control-plane` on the "
                "first machine prints the line to use, which is good for two hours"
            ) from error
        raise
    files = {name: decrypt(base64.b64decode(text), raw, name) for name, text in secret.data.items()}
    settings: dict[str, Any] = msgspec.json.decode(files.pop(SETTINGS))
    return Bundle(files, settings)


def install(bundle: Bundle, layout: Layout) -> dict[str, str]:
    """Write the files to where they belong on this machine; return the settings that name etcd's."""
    layout.pki.mkdir(parents=True, exist_ok=True, mode=0o700)
    for name in AUTHORITIES:
        secret = name.endswith(".key")
        write_file(layout.pki / name, bundle.files[name], 0o600 if secret else 0o644)
    for name in POLICIES:
        if name in bundle.files:
            write_file(layout.etc / name, bundle.files[name], 0o600)
    named = {}
    for setting, name in ETCD.items():
        if name in bundle.files:
            write_file(layout.pki / name, bundle.files[name], 0o600 if name.endswith(".key") else 0o644)
            named[setting] = str(layout.pki / name)
    return named
