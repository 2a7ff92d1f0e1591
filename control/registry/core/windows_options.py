r"""Checks of what a security context says for Windows: credentials by group, and the user as DOMAIN\USER."""

from __future__ import annotations

import re

from control.registry.checks import Errors, each
from control.registry.strategy import Object
from kube import names
from kube.errors import invalid_value

_LONGEST_SPEC, _LONGEST_DOMAIN, _LONGEST_USER = 64 * 1024, 256, 104
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_NETBIOS = re.compile(r'[^\\/:*?"<>|.][^\\/:*?"<>|]{0,14}')
_DNS_LABEL = "[a-zA-Z0-9](?:[a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?"
_DNS = re.compile(rf"{_DNS_LABEL}(?:\.{_DNS_LABEL})*")
_NOT_IN_USER = re.compile(r'["/\\:;|=,+*?<>@\[\]]')


def validate_windows_options(options: Object | None, path: str) -> Errors:
    if not options:
        return []
    name, spec, user = (options.get(k) for k in ("gmsaCredentialSpecName", "gmsaCredentialSpec", "runAsUserName"))
    errors: Errors = []
    if name is not None:
        errors += each(f"{path}.gmsaCredentialSpecName", name, names.dns1123_subdomain(name))
    if spec == "":
        detail = "gmsaCredentialSpec cannot be an empty string"
        errors.append(invalid_value(f"{path}.gmsaCredentialSpec", spec, detail))
    elif spec is not None and len(spec) > _LONGEST_SPEC:
        errors.append(invalid_value(f"{path}.gmsaCredentialSpec", spec, "gmsaCredentialSpec size must be under 64 KiB"))
    return errors + (each(f"{path}.runAsUserName", user, _user_problems(user)) if user is not None else [])


def _user_problems(text: str) -> list[str]:
    if not text:
        return ["runAsUserName cannot be an empty string"]
    if _CONTROL.search(text):
        return ["runAsUserName cannot contain control characters"]
    if text.count("\\") > 1:
        return ["runAsUserName cannot contain more than one backslash"]
    domain, backslash, user = text.rpartition("\\")
    found = []
    if len(domain) >= _LONGEST_DOMAIN:
        found.append(f"runAsUserName's Domain length must be under {_LONGEST_DOMAIN} characters")
    if backslash and not (_NETBIOS.fullmatch(domain) or _DNS.fullmatch(domain)):
        found.append("runAsUserName's Domain doesn't match the NetBios nor the DNS format")
    if not user:
        found.append("runAsUserName's User cannot be empty")
    elif len(user) > _LONGEST_USER:
        found.append(f"runAsUserName's User length must not be longer than {_LONGEST_USER} characters")
    if user and not user.strip(". "):
        found.append("runAsUserName's User cannot contain only periods or spaces")
    if _NOT_IN_USER.search(user):
        found.append("runAsUserName's User cannot contain the following characters: \"/\\:;|=,+*?<>@[]")
    return found
