"""Formats and names of the pull record files: the credentials that pulled an image (ImagePulledRecord, ImagePullIntent)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from agent.images.names import with_registry
from agent.images.registry_auth import ACCOUNT, SECRET, Credential, Source

API_VERSION = "kubelet.config.k8s.io/v1beta1"
MOST, MOST_NAMES = 100, 500
"""Secrets and service accounts that are recorded for a name of an image, the last of each, and names for an image. Below the
first number, a secret that matches a record is added to it (upstream's writeRecordWhileMatchingLimit)."""


class _Base(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    pass


class PullSecret(_Base):
    uid: str
    namespace: str
    name: str
    credential_hash: str = ""


class PullAccount(_Base):
    uid: str
    namespace: str
    name: str


class Pullers(_Base):
    """The credentials that pulled an image under one name; `node_pods_accessible`: all pods on the node may use it."""

    kubernetes_secrets: list[PullSecret] = []
    kubernetes_service_accounts: list[PullAccount] = []
    node_pods_accessible: bool = False


class PulledRecord(_Base):
    """The pull record of one image; the mapping is by its name without tag and digest."""

    kind: str
    api_version: str
    last_updated_time: str
    image_ref: str
    credential_mapping: dict[str, Pullers] = {}


class PullIntent(_Base):
    """The intent of a pull; upstream has no `preloaded_image_ref`, and ignores it."""

    kind: str
    api_version: str
    image: str
    preloaded_image_ref: str = ""


def corrected(record: PulledRecord) -> PulledRecord:
    """Return a record of version 0.2.0 without names that it opened by mistake.

    That version compared the spelling of Docker Hub's images in pods (`index.docker.io/team/app`, `docker.io/app`) with that in
    the runtime's list, and took the latter for a name that the image had before the pull.
    """
    mapping = dict(record.credential_mapping)
    for name, who in record.credential_mapping.items():
        listed = with_registry(name)
        if listed != name and name.startswith(("index.docker.io/", "docker.io/")):
            del mapping[name]
            mapping[listed] = who
    return msgspec.structs.replace(record, credential_mapping=mapping)


def pullers(credential: Credential | None) -> Pullers:
    if credential is not None and credential.source.kind == SECRET:
        return Pullers(kubernetes_secrets=[secret(credential)])
    if credential is not None and credential.source.kind == ACCOUNT:
        return Pullers(kubernetes_service_accounts=[account(credential.source)])
    return Pullers(node_pods_accessible=True)


def secret(credential: Credential) -> PullSecret:
    source = credential.source
    return PullSecret(uid=source.uid, namespace=source.namespace, name=source.name, credential_hash=credential.digest())


def account(source: Source) -> PullAccount:
    return PullAccount(uid=source.uid, namespace=source.namespace, name=source.name)


def matching(who: Pullers, credentials: Sequence[Credential]) -> Credential | None:
    """Return the first credential that has pulled: of the same account, or of a secret of the same place or contents."""
    places = {(known.uid, known.namespace, known.name) for known in who.kubernetes_secrets}
    hashes = {known.credential_hash for known in who.kubernetes_secrets} - {""}
    for credential in credentials:
        source = credential.source
        if source.kind == ACCOUNT and account(source) in who.kubernetes_service_accounts:
            return credential
        if source.kind == SECRET:
            mine = secret(credential)
            if (mine.uid, mine.namespace, mine.name) in places or mine.credential_hash in hashes:
                return credential
    return None


def merge(old: Pullers | None, new: Pullers) -> Pullers:
    if old is None or new.node_pods_accessible:
        return new
    if old.node_pods_accessible:
        return old
    where = {(s.uid, s.namespace, s.name) for s in new.kubernetes_secrets}
    kept = [s for s in old.kubernetes_secrets if (s.uid, s.namespace, s.name) not in where]
    accounts = [a for a in old.kubernetes_service_accounts if a not in new.kubernetes_service_accounts]
    return Pullers(
        kubernetes_secrets=(kept + new.kubernetes_secrets)[-MOST:],
        kubernetes_service_accounts=(accounts + new.kubernetes_service_accounts)[-MOST:],
    )


def file_name(name: str) -> str:
    """Return the name of the record file of an image's name or ID."""
    return f"sha256-{hashlib.sha256(name.encode()).hexdigest()}"


def record_files(folder: Path) -> list[Path]:
    """List a directory's records; upstream's unfinished files end with .tmp."""
    return [path for path in sorted(folder.glob("sha256-*")) if path.suffix != ".tmp"]
