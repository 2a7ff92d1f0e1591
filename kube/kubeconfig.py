"""Reads kubeconfig files (cluster address and credentials), and writes one for an administrator or a component."""

from __future__ import annotations

import base64
import contextlib
import logging
import os
import ssl
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from kube import base64_text, tls_settings
from kube.tls_files import TlsFiles

log = logging.getLogger(__name__)
_IGNORED = {
    "cluster": ("proxy-url",),
    "user": ("as", "as-uid", "as-groups", "as-user-extra", "username", "password", "auth-provider", "exec"),
}
"""Fields of client-go's that are not implemented, and change who sends a request or how."""
_RESTRICTING = frozenset({"proxy-url", "as", "as-uid", "as-groups", "as-user-extra"})
"""Those of them without which requests have other rights than kubectl's, or another way."""


class KubeconfigError(Exception):
    """A kubeconfig is missing, cannot be read or lacks a part; the message names the file and the problem."""


@dataclass(frozen=True, slots=True)
class Access:
    """One cluster seen as one user. PEM texts; a file is named instead where it is to be read again."""

    server: str
    ca: bytes | None = None
    certificate: bytes | None = None
    key: bytes | None = None
    certificate_file: str = ""
    key_file: str = ""
    token: str = ""
    token_file: str = ""
    insecure: bool = False
    server_name: str = ""
    """Name by which the server's certificate is verified, and that TLS asks for; "" for the host of the URL."""
    ca_file: str = ""
    """Path of the file with the CA, which is read again when it changes; "" if the kubeconfig contains the CA."""
    namespace: str = ""
    """The context's namespace."""

    def tls(self) -> TlsFiles:
        """Return the TLS settings for new connections; those of files follow their changes."""
        names = (self.ca_file, self.certificate_file, self.key_file)
        return TlsFiles(self.ssl_context, [Path(name) for name in names if name])

    def ssl_context(self) -> ssl.SSLContext:
        """Build the TLS settings; a bad certificate or key raises ssl.SSLError."""
        ca = Path(self.ca_file).read_bytes() if self.ca_file else self.ca
        context = tls_settings.verifying(cadata=ca.decode() if ca else None)
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if self.certificate_file:
            context.load_cert_chain(self.certificate_file, self.key_file or None)
        elif self.certificate and self.key:
            with _as_file(self.certificate + b"\n" + self.key) as path:
                context.load_cert_chain(path)
        return context


@contextlib.contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """The ssl module loads keys from files alone: lend it one of ours (0600, removed at once)."""
    handle, path = tempfile.mkstemp()
    try:
        os.write(handle, data)
        os.close(handle)
        yield path
    finally:
        os.unlink(path)


def yaml_problem(error: yaml.YAMLError) -> str:
    """Return an error of YAML without the text of the file, which may be a token or a key; errors are logged."""
    mark = getattr(error, "problem_mark", None)
    return f"invalid YAML in line {mark.line + 1}" if mark is not None else "invalid YAML"


class NoFile(KubeconfigError):
    """The file does not exist."""


def load(path: str | Path, context: str = "") -> Access:
    """Read a kubeconfig and return the access of a context (its current one by default)."""
    path = Path(path)
    document = read(path)
    try:
        return access_of(document, path, context)
    except (AttributeError, KeyError, TypeError):  # a part of another type
        raise KubeconfigError(f"{path}: not a kubeconfig") from None


def read(path: Path) -> dict[str, Any]:
    """Read the YAML of a kubeconfig. Raises KubeconfigError."""
    try:
        document: dict[str, Any] = yaml.safe_load(path.read_text()) or {}
    except FileNotFoundError as error:
        raise NoFile(f"{path}: no such file") from error
    except yaml.YAMLError as error:
        raise KubeconfigError(f"{path}: cannot be read: {yaml_problem(error)}") from None
    except OSError as error:
        raise KubeconfigError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise KubeconfigError(f"{path}: cannot be read: {error}") from error
    except (ValueError, RecursionError):  # a scalar that is no date or number, deep nesting
        raise KubeconfigError(f"{path}: cannot be read: invalid YAML") from None
    return document


def access_of(document: dict[str, Any], path: Path, context: str = "", *, exactly: bool = False) -> Access:
    """Return the access of a context of a kubeconfig that was read from `path`. Raises KubeconfigError and errors of types.

    `exactly`: with no other rights than kubectl's with the same file; impersonation and proxies are refused.
    """
    chosen = _named(document, "contexts", "context", context or document.get("current-context", ""), path)
    cluster = _named(document, "clusters", "cluster", chosen.get("cluster", ""), path)
    user = _named(document, "users", "user", chosen["user"], path) if chosen.get("user") else {}
    if not cluster.get("server"):
        raise KubeconfigError(f"{path}: cluster {chosen.get('cluster')!r} names no server")
    for part, fields in (("cluster", cluster), ("user", user)):
        ignored = [name for name in _IGNORED[part] if fields.get(name)]
        if exactly and (refused := [name for name in ignored if name in _RESTRICTING]):
            raise KubeconfigError(
                f"{path}: not supported for the {part}: {', '.join(refused)}: choose a context without, or use kubectl"
            )
        if ignored:
            log.warning("%s: not supported and ignored for the %s: %s", path, part, ", ".join(ignored))
    base = path.parent
    ca_file = (
        "" if cluster.get("certificate-authority-data") else _relative(base, cluster.get("certificate-authority", ""))
    )
    certificate_file, key_file = (_relative(base, user.get(k, "")) for k in ("client-certificate", "client-key"))
    return Access(
        server=cluster["server"].rstrip("/"),
        ca=_data(cluster, "certificate-authority", base, path),
        certificate=_data(user, "client-certificate", base, path) if not certificate_file else None,
        key=_data(user, "client-key", base, path) if not key_file else None,
        certificate_file=certificate_file,
        key_file=key_file,
        token=user.get("token", ""),
        token_file=_relative(base, user.get("tokenFile", "")),
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        server_name=_server_name(cluster, path),
        ca_file=ca_file,
        namespace=chosen.get("namespace") or "",
    )


def _named(document: dict[str, Any], part: str, inner: str, name: str, path: Path) -> dict[str, Any]:
    for entry in document.get(part) or ():
        if entry.get("name") == name:
            found: dict[str, Any] = entry.get(inner) or {}
            return found
    if not name and inner == "context":
        raise KubeconfigError(f"{path}: no context is chosen: `kubectl config use-context NAME` chooses one")
    raise KubeconfigError(f"{path}: no {inner} named {name!r}")


def _server_name(cluster: dict[str, Any], path: Path) -> str:
    name = cluster.get("tls-server-name") or ""
    try:
        if not isinstance(name, str) or "\0" in name or name.startswith("."):
            raise ValueError
        name.encode("idna")
    except ValueError:
        raise KubeconfigError(f"{path}: tls-server-name: {name!r} is no name or address of a server") from None
    return name


def _relative(base: Path, name: str) -> str:
    return str(base / name) if name else ""


def _data(part: dict[str, Any], name: str, base: Path, path: Path) -> bytes | None:
    try:
        if inline := part.get(name + "-data"):
            return base64_text.decode(inline)
        if file := part.get(name):
            return Path(base / file).read_bytes()
    except (OSError, ValueError) as error:
        raise KubeconfigError(f"{path}: {name}: {error}") from error
    return None


def render(access: Access, *, cluster: str = "wherry", user: str = "admin", context: str = "") -> str:
    """Return the YAML of a kubeconfig with one context (by default USER@CLUSTER), everything inline."""

    def inline(data: bytes | None) -> str:
        return base64.b64encode(data or b"").decode()

    who: dict[str, Any] = {}
    if access.certificate_file:
        who = {"client-certificate": access.certificate_file, "client-key": access.key_file}
    elif access.certificate:
        who = {"client-certificate-data": inline(access.certificate), "client-key-data": inline(access.key)}
    elif access.token:
        who = {"token": access.token}
    where: dict[str, Any] = {"server": access.server}
    if access.server_name:
        where["tls-server-name"] = access.server_name
    if access.ca:
        where["certificate-authority-data"] = inline(access.ca)
    name = context or f"{user}@{cluster}"
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": cluster, "cluster": where}],
            "users": [{"name": user, "user": who}],
            "contexts": [{"name": name, "context": {"cluster": cluster, "user": user}}],
            "current-context": name,
        },
        sort_keys=False,
    )


def render_cluster(access: Access) -> str:
    """Return the YAML of a kubeconfig with a cluster's address and CA, without a user (cluster-info)."""
    where = {"certificate-authority-data": base64.b64encode(access.ca or b"").decode(), "server": access.server}
    document = {
        "apiVersion": "v1",
        "clusters": [{"cluster": where, "name": ""}],
        "contexts": None,
        "current-context": "",
        "kind": "Config",
        "users": None,
    }
    return yaml.safe_dump(document)


def write(path: str | Path, text: str) -> None:
    """Write a kubeconfig (or any secret) whole or not at all, readable by its owner alone."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise
