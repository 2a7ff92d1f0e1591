"""Turns what is written with IPv4 addresses into the same with IPv6: each number of an address becomes a group of its own.

10.244.1.2 becomes fd00::a:f4:1:2, 10.244.0.0/16 becomes fd00::a:f4:0:0/96, so ranges hold what they held. Addresses with a
meaning of their own become those of the same meaning.
"""

import dataclasses
import ipaddress
import re
from typing import Any

import msgspec

SPECIAL = {
    "127.0.0.1": "::1",
    "169.254.169.254": "fe80::1",
    "224.0.0.1": "ff02::1",
    "255.255.255.255": "ff02::1",
    "0.0.0.0": "::",
}


def address(text: str) -> str:
    """Return an address's, a range's or an "address:port"'s likeness; what is none of these as it is."""
    found = re.fullmatch(r"(\d+)\.(\d+)\.(\d+)\.(\d+)(/\d+|:\d+)?", text)
    if not found:
        return text
    *numbers, rest = found.groups()
    ip = SPECIAL.get(".".join(numbers)) or "fd00::" + ":".join(f"{int(each):x}" for each in numbers)
    if rest and rest.startswith("/"):
        length = int(rest[1:])
        if not length:
            return "::/0"
        return str(ipaddress.ip_network(f"{ip}/{64 + length // 8 * 16 + (8 + length % 8 if length % 8 else 0)}"))
    return str(ipaddress.ip_address(ip)) + (rest or "")


def likeness(value: Any) -> Any:
    """Return a value of the same shape with IPv6 addresses in place of IPv4's."""
    match value:
        case str():
            return {"IPv4": "IPv6"}.get(value) or address(value)
        case dict():
            return {likeness(key): likeness(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset():
            return type(value)(likeness(item) for item in value)
        case msgspec.Struct():
            return msgspec.structs.replace(
                value, **{name: likeness(getattr(value, name)) for name in value.__struct_fields__}
            )
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changed = {field.name: likeness(getattr(value, field.name)) for field in dataclasses.fields(value)}
        return dataclasses.replace(value, **({**changed, "family": 6} if "family" in changed else changed))
    return value
