"""Image registries of a machine: mirrors, authorities and credentials, for Wherry's containerd and for the agent.

Each registry has a folder with containerd's `hosts.toml` in /etc/wherry/registries. Folders that the administrator made
there are left alone. The credentials are in a docker configuration, which the agent reads for each pull.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
from pathlib import Path
from typing import Any

import msgspec
import yaml

from kube.files import write_file
from wherry import value_forms
from wherry.errors import WherryError
from wherry.yaml_values import key_text, line, scalar, texts

MARK = "# Written by wherry: see /etc/wherry/config.yaml."
HOSTS, CREDENTIALS, SETTINGS = "hosts.toml", "config.json", "settings.json"
_EARLIER = re.compile(r'server = "https://[^"\n]*"\n\n\[host\."[^"\n]*"\]\n  capabilities = \["pull", "resolve"\]\n')
_TYPES = {"mirrors": list, "ca": str, "insecure": bool, "plain-http": bool, "username": str, "password": str}
_HOST = re.compile(r"([A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")


class Registry(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    """Settings for pulling the images of one registry."""

    mirrors: list[str] = []
    """URLs that are asked first, in this order."""
    ca: str = ""
    """File with the authorities of its certificate."""
    insecure: bool = False
    """True if its certificate is not verified."""
    plain_http: bool = False
    username: str = ""
    password: str = ""

    @property
    def needs_hosts_toml(self) -> bool:
        """True if containerd must know of it; the agent has the credentials."""
        return bool(self.mirrors or self.ca or self.insecure or self.plain_http)


def read(node: yaml.Node) -> tuple[dict[str, Registry], list[tuple[int, str]]]:
    """Return the registries of a configuration file by host, and what is wrong with them, each with its line."""
    if not isinstance(node, yaml.MappingNode):
        example = "registry.example.com: {ca: /etc/ssl/registry.pem}"
        return {}, [(line(node), f"write hosts as keys, as in `{example}`")]
    found: dict[str, Registry] = {}
    problems: list[tuple[int, str]] = []
    for key, value in node.value:
        host = key_text(key)
        if not host:
            problems.append((line(key), "write hosts as keys"))
            continue
        if host in found:
            problems.append((line(key), f"{host} is there twice"))
            continue
        fields, wrong = _fields(value)
        found[host] = Registry(**fields)
        problems += [(where, f"{host}: {problem}") for where, problem in wrong]
        if not wrong and (problem := problem_of(host, found[host])):
            problems.append((line(key), f"{host}: {problem}"))
    return found, problems


def _fields(node: yaml.Node) -> tuple[dict[str, Any], list[tuple[int, str]]]:
    """Return the settings of one registry, and what is wrong with them."""
    if not isinstance(node, yaml.MappingNode):
        return {}, [(line(node), "write settings as keys, as in `{insecure: true}`")]
    found: dict[str, Any] = {}
    problems = []
    for key, value in node.value:
        name = key_text(key)
        kind = _TYPES.get(name)
        if kind is None:
            problems.append((line(key), f"there is no setting {name}; there are {', '.join(_TYPES)}"))
        elif (field := name.replace("-", "_")) in found:
            problems.append((line(key), f"{name} is there twice"))
        else:
            try:
                found[field] = texts(value, f"{name}: [a]") if kind is list else scalar(value, kind)
            except ValueError as error:
                problems.append((line(value), f"{name}: {error}"))
    return found, problems


def problem_of(host: str, registry: Registry) -> str:
    """Return what is wrong with a registry, "" if nothing is."""
    if not _is_host(host):
        return "this is no host; write it as in images' names, with its port if they have one"
    for url in registry.mirrors:
        if not _is_url(url):
            return f"{url} is no URL of a mirror; write http:// or https:// and its host"
    for name in ("ca", "username", "password"):
        if problem := value_forms.printable(getattr(registry, name)):
            return f"{name}: {problem}"
    if ":" in registry.username:
        return "a username has no colon"
    if bool(registry.username) != bool(registry.password):
        return "username and password go together"
    if registry.ca and not (registry.ca.startswith("/") and Path(registry.ca).is_file()):
        return f"there is no file {registry.ca}; write its path from /"
    if registry.plain_http and (registry.ca or registry.insecure):
        return "with plain-http there is no certificate for ca or insecure"
    return ""


def _is_host(text: str) -> bool:
    port = text.rpartition(":")[2] if re.search(r":[0-9]+$", text) else "1"
    return _HOST.fullmatch(text) is not None and 0 < int(port) < 65536 and text not in (CREDENTIALS, SETTINGS)


def _is_url(text: str) -> bool:
    return value_forms.is_url(text, path=True, user=True)


def write(folder: Path, registries: dict[str, Registry]) -> None:
    """Write the files of all registries to a folder, and remove those that are not wanted any more.

    Raise WherryError for a file that the administrator made.
    """
    wanted = {host: one for host, one in registries.items() if one.needs_hosts_toml}
    for host in wanted:
        if (made := folder / host / HOSTS).exists() and not _is_own(made):
            raise WherryError(f"{made} was not written by wherry: move its settings to `registries` or remove it")
    for made in folder.glob(f"*/{HOSTS}"):
        if made.parent.name not in wanted and _is_own(made):
            made.unlink()
            with contextlib.suppress(OSError):  # other files are the administrator's
                made.parent.rmdir()
    for host, registry in wanted.items():
        write_file(folder / host / HOSTS, hosts_file(host, registry).encode(), 0o600)  # URLs may have passwords
    auths = {
        host: {"auth": base64.b64encode(f"{one.username}:{one.password}".encode()).decode()}
        for host, one in registries.items()
        if one.username
    }
    if auths:
        write_file(folder / CREDENTIALS, json.dumps({"auths": auths}, indent=2).encode(), 0o600)
    else:
        (folder / CREDENTIALS).unlink(missing_ok=True)


def _is_own(file: Path) -> bool:
    """Return whether a file was written by this module, or by `--registry-mirror` of an earlier version."""
    text = file.read_text(errors="replace")
    return text.startswith(MARK) or _EARLIER.fullmatch(text) is not None


def hosts_file(host: str, registry: Registry) -> str:
    """Return containerd's file for a registry: its mirrors, then its own server.

    Without `server` containerd chooses the server as it does without a file (registry-1.docker.io, HTTP on this machine).
    containerd 1.6 reads `ca` and `skip_verify` in the part of a host only, so the server is among these then.
    """
    server = "registry-1.docker.io" if host == "docker.io" else host
    hosts: dict[str, list[str]] = {mirror: [] for mirror in registry.mirrors}
    if registry.ca or registry.insecure:
        settings = [f"ca = {json.dumps(registry.ca, ensure_ascii=False)}"] if registry.ca else []
        hosts[f"https://{server}"] = settings + (["skip_verify = true"] if registry.insecure else [])
    lines = [MARK, *([f'server = "http://{server}"'] if registry.plain_http else [])]
    for url, settings in hosts.items():
        lines += ["", f'[host."{url}"]', '  capabilities = ["pull", "resolve"]', *(f"  {line}" for line in settings)]
    return "\n".join(lines) + "\n"
