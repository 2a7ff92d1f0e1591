"""Credentials for admission webhooks: the WebhookAdmissionConfiguration of the two plugins.

Its kubeconfig's users are named by where they are meant for, as upstream has it: `name.namespace.svc` (with `:port` unless
it is 443) or a URL's host, `*.namespace.svc` and such, `*`; else the user of the current context counts. Without any of
these the server is nobody.
"""

from __future__ import annotations

import base64
import ssl
import tempfile
from collections.abc import Iterable
from pathlib import Path

import msgspec
import yaml

from control.admission.configuration import of_kind
from control.auth.fields import ConfigurationError, known
from kube.json_object import Object
from kube.kubeconfig import yaml_problem
from kube.tls_files import FromFiles

GROUP, KIND = "apiserver.config.k8s.io", "WebhookAdmissionConfiguration"


class Credential(msgspec.Struct, frozen=True):
    """A bearer token or a name and password as the value of a header, and a certificate with its key (PEM)."""

    authorization: str = ""
    certificate: bytes = b""

    def show(self, context: ssl.SSLContext) -> None:
        """Have a TLS context show the certificate; raises ssl.SSLError."""
        if self.certificate:
            with tempfile.NamedTemporaryFile() as file:  # the ssl module loads keys from files alone
                file.write(self.certificate)
                file.flush()
                context.load_cert_chain(file.name)


NOBODY = Credential()


User = FromFiles[Credential]


class Credentials:
    """The users of some kubeconfigs by name; `usual` is for everybody else."""

    def __init__(self, by_name: dict[str, User] | None = None, usual: User | None = None) -> None:
        self._by_name, self._usual = by_name or {}, usual

    def of(self, target: str) -> Credential:
        """Return who to be to a host, as `host` or `host:port`; files are read again when they have changed."""
        found = self._user(target)
        return found.current() if found is not None else NOBODY

    def _user(self, target: str) -> User | None:
        found = self._by_name.get(target)
        labels = target.split(".")
        for index in range(1, len(labels)):
            found = found or self._by_name.get("*." + ".".join(labels[index:]))
        if found is None and target.endswith(":443"):
            return self._user(target.removesuffix(":443"))
        return found or self._by_name.get("*") or self._usual


def load(documents: Iterable[Object]) -> Credentials:
    """Read the configuration of plugins; raises ConfigurationError."""
    by_name: dict[str, User] = {}
    usual: User | None = None
    for document in documents:
        if not document:
            continue
        settings = of_kind(document, GROUP, KIND, ("v1", "v1alpha1"))
        known(settings, "", ("apiVersion", "kind", "kubeConfigFile"))
        path = Path(str(settings.get("kubeConfigFile") or ""))
        try:
            file = yaml.safe_load(path.read_bytes())
            users = {user["name"]: _user(user.get("user") or {}, path.parent) for user in file.get("users") or ()}
            contexts = {each["name"]: each["context"] for each in file.get("contexts") or ()}
            current = contexts.get(file.get("current-context"), {}).get("user")
            for user in users.values():
                user.current()
        except yaml.YAMLError as error:
            raise ConfigurationError(f"kubeConfigFile: {path}: {yaml_problem(error)}") from None
        except (OSError, ValueError, TypeError, AttributeError, KeyError) as error:
            raise ConfigurationError(f"kubeConfigFile: {path}: {error}") from error
        by_name |= users
        usual = users.get(current, usual)
    return Credentials(by_name, usual)


def _user(user: Object, folder: Path) -> User:
    names = ("client-certificate", "client-key", "tokenFile")
    files = [folder / str(user[name]) for name in names if user.get(name) and not user.get(f"{name}-data")]
    return User(lambda: _credential(user, folder), files)


def _credential(user: Object, folder: Path) -> Credential:
    """Read who a user is; raises OSError and ValueError, also where certificate and key do not fit together."""
    certificate = _part(user, "client-certificate", folder) + b"\n" + _part(user, "client-key", folder)
    token = str(user.get("token") or "")
    if user.get("tokenFile"):
        token = (folder / str(user["tokenFile"])).read_text().strip()
    authorization = f"Bearer {token}" if token else ""
    if not token and user.get("username"):
        pair = f"{user['username']}:{user.get('password') or ''}".encode()
        authorization = "Basic " + base64.b64encode(pair).decode()
    found = Credential(authorization, certificate.strip())
    found.show(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    return found


def _part(user: Object, name: str, folder: Path) -> bytes:
    if user.get(f"{name}-data"):
        return base64.b64decode(str(user[f"{name}-data"]))
    return (folder / str(user[name])).read_bytes() if user.get(name) else b""
