"""Forms of values that options have: names, addresses, URLs, images and paths.

Each function returns what is wrong with a text and how to write it, "" for a valid one. The rules are those of the programs
that read the value: kubeadm's for domains and names of certificates, the container runtime's for images.
"""

from __future__ import annotations

import ipaddress
import re
from pathlib import Path

from agent.images import names as image_names
from kube import names, urls

LONGEST_SOCKET_PATH = 107
"""Bytes of the path of a Unix socket in Linux (sun_path without its end)."""
LONGEST_PREFIX = 253
"""Characters of a prefix of etcd's keys."""
LONGEST_IMAGE = 255
"""Characters of an image's name, without tag and digest."""
_NOT_IN_URLS = frozenset(' "\\?#')
_CIDR = re.compile(r"[0-9A-Fa-f.:]{1,39}/[0-9]{1,3}")
_ETCD_PREFIX = re.compile(r"(?:/[A-Za-z0-9._-]+)+/?")

_CNI_NETWORK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def printable(text: str) -> str:
    """Check a text of any option: it is written to files that others read."""
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "it is not UTF-8"
    return "" if text.isprintable() else "it has characters that cannot be printed"


def address(text: str) -> Address:
    """Read an address as Go's net.ParseIP does, without a zone; raise ValueError."""
    found = ipaddress.ip_address(text.strip())
    if "%" in text or (found.version == 6 and found.ipv4_mapped is not None):
        raise ValueError(text)
    return found


def network(text: str) -> Network:
    """Read an address range; raise ValueError with the problem."""
    text = text.strip()
    try:
        found = ipaddress.ip_network(text, strict=False) if _CIDR.fullmatch(text) else None
    except ValueError:
        found = None
    if found is None or (found.version == 6 and found.network_address.ipv4_mapped is not None):
        raise ValueError("this is no address range, such as 10.244.0.0/16")
    if str(found.network_address) != str(ipaddress.ip_address(text.partition("/")[0])):
        raise ValueError(f"the range with this address is {found}")
    return found


def domain(text: str) -> str:
    return _first(names.dns1123_subdomain(text))


def certificate_name(text: str) -> str:
    """Check a name that the API server's certificate gets, as kubeadm checks its certSANs."""
    try:
        address(text)
    except ValueError:
        problem = _first(names.dns1123_subdomain(text.removeprefix("*.")))
        return f"it is neither an address nor a DNS name: {problem}" if problem else ""
    return ""


def image(text: str) -> str:
    """Check the reference of an image, as the agent checks those of containers."""
    try:
        image_names.with_default_tag(text)
    except image_names.InvalidImageName as error:
        return f"{error}; write it as registry.k8s.io/pause:3.10"
    long = len(image_names.without_tag(text)) > LONGEST_IMAGE
    return f"its name has more than {LONGEST_IMAGE} characters" if long else ""


def cni_network(text: str) -> str:
    """Check a pod network: Wherry's own, none, or the name of a CNI network as libcni accepts it."""
    if _CNI_NETWORK.fullmatch(text):
        return ""
    return (
        "it is wherry, none, or the name of a CNI network: a letter or digit, then letters, digits, dots, hyphens and "
        "underscores"
    )


def socket_endpoint(text: str) -> str:
    """Check the endpoint of a container runtime: the path of a Unix socket."""
    path = text.removeprefix("unix://")
    if not path.startswith("/") or path.endswith("/"):
        return "this is no socket; write it as unix:///run/containerd/containerd.sock"
    if len(path.encode()) > LONGEST_SOCKET_PATH:
        return f"the path of a socket has at most {LONGEST_SOCKET_PATH} bytes"
    return ""


def is_url(text: str, *, path: bool = False, user: bool = False) -> bool:
    """Return whether a text is the http or https URL of a host; with a `path` or a `user` where these have a meaning."""
    if not text.isascii() or not text.isprintable() or _NOT_IN_URLS & set(text):
        return False
    try:
        found = urls.split(text)
        port = found.port
    except ValueError:
        return False
    return (
        found.scheme in ("http", "https")
        and _is_host(found.hostname or "")
        and port != 0
        and not found.netloc.endswith(":")
        and (path or not found.path.strip("/"))
        and (user or found.username is None)
    )


def _is_host(host: str) -> bool:
    if ":" in host:
        try:
            return bool(address(host))
        except ValueError:
            return False
    return not names.dns1123_subdomain_with_underscore(host.lower().rstrip("."))


def etcd_prefix(text: str) -> str:
    if len(text) <= LONGEST_PREFIX and _ETCD_PREFIX.fullmatch(text):
        return ""
    return "it begins with /, and has letters, digits, '.', '_', '-' and '/'"


def file(text: str) -> str:
    """Check the path of a file that a daemon reads: it runs in another folder than the command."""
    if not text.startswith("/"):
        return "write its whole path, from /"
    return "" if Path(text).is_file() else "there is no such file"


def one_of(text: str, known: tuple[str, ...]) -> str:
    """Check a value of a few known ones."""
    if text in known:
        return ""
    return (
        f"it is either {known[0]} or {known[1]}"
        if len(known) == 2
        else f"it is one of {', '.join(known[:-1])} and {known[-1]}"
    )


def within(number: int, least: int, most: int) -> str:
    """Check a number."""
    if number < least:
        return f"it is at least {least}"
    return "" if number <= most else f"it is at most {most}"


def _first(problems: list[str]) -> str:
    return problems[0] if problems else ""
