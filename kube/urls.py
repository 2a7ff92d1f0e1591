"""Parsing of URLs that users, pods and servers write.

urllib compares a host that is not ASCII with its normal form (NFKC). For combining characters that takes quadratic
time: 60 KB block the process for seconds. No host name is that long, so a longer one is rejected before. urllib also caches
recently parsed URLs of any length; here only short ones are cached.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from urllib.parse import SplitResult, urljoin, urlsplit

from kube.bounded_cache import bounded_cache

LONGEST_HOST = 253
"""Characters of a host's name (RFC 1035). To look one up that is not ASCII, Python forms its normal form, too."""
LONGEST_AUTHORITY = 512
"""Characters of user, host and port, if not all are ASCII."""
_REMOVED = re.compile("[\t\r\n]")
"""Characters that urllib removes first."""
NOT_PRINTED = re.compile("[\x00-\x20\x7f]")
"""Characters that Go's url.Parse rejects: control characters, and the space."""
_AUTHORITY = re.compile("[^/?#]*")
_split: Callable[[str], SplitResult] = inspect.unwrap(urlsplit)


def host_port(host: str, port: int) -> str:
    """Return host:port, with the brackets around an IPv6 address that URLs and addresses of connections need."""
    return f"{bracketed(host)}:{port}"


def bracketed(host: str) -> str:
    """Return a host as it stands in a URL: an IPv6 address within brackets."""
    return f"[{host}]" if ":" in host else host


@bounded_cache(256)
def split(url: str) -> SplitResult:
    """Parse a URL as urlsplit() does. Raise ValueError, also for a long authority that is not ASCII."""
    _check_authority(url)
    return _split(url)


def join(base: str, url: str) -> str:
    """Resolve a URL against another as urljoin() does. Raise ValueError as `split` does."""
    _check_authority(url)
    return urljoin(base, url)


def _check_authority(url: str) -> None:
    if url.isascii():
        return
    start = (text := _REMOVED.sub("", url)).find("//")
    found = _AUTHORITY.match(text, start + 2) if start >= 0 else None
    if found is not None and len(found[0]) > LONGEST_AUTHORITY and not found[0].isascii():
        raise ValueError(f"the host has more than {LONGEST_AUTHORITY} characters")
