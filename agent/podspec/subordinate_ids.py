"""Finds the user and group IDs for pods with user namespaces: those of the user `kubelet`, else all but the node's own.

An administrator who gives other programs IDs too (rootless containers) keeps them apart in /etc/subuid and /etc/subgid, with
one line for `kubelet` in each, the same in both. They are read with getsubids, which also asks other sources of such IDs
(nsswitch). Without that user or that program everything from the second block on is free to use. As with upstream's
getKubeletMappings and MakeUserNsManager, a range that is misaligned or too small for the node's pods keeps the agent from
starting: later, pods would fail that were promised a user namespace.
"""

from __future__ import annotations

import pwd
import shutil
from dataclasses import dataclass

from kube.process import CommandError, run

USER = "kubelet"
UNIT = 65536
ALL_IDS = 1 << 32


class SubordinateIdsError(Exception):
    """The IDs that the user has cannot be used; the message is upstream's."""


@dataclass(frozen=True, slots=True)
class IdRange:
    """Consecutive user IDs, and the group IDs of the same numbers."""

    first: int = UNIT
    count: int = ALL_IDS - UNIT


async def usable(ids_per_pod: int, max_pods: int, user: str = USER) -> IdRange:
    """Return the IDs for pods, enough for `max_pods` of `ids_per_pod` each. Raise SubordinateIdsError."""
    try:
        found = await _of(user)
    except SubordinateIdsError as error:
        raise SubordinateIdsError(f"kubelet mappings: {error}") from error
    if found is None:
        count = (ALL_IDS - ids_per_pod) // ids_per_pod * ids_per_pod
        found = IdRange(ids_per_pod, count)
    verify(found, ids_per_pod, max_pods)
    return found


async def _of(user: str) -> IdRange | None:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return None
    program = shutil.which("getsubids")
    if program is None:
        return None
    printed = []
    for what, options in (("ids", ()), ("gids", ("-g",))):
        try:
            printed.append((await run([program, *options, user])).stdout)
        except CommandError as error:
            raise SubordinateIdsError(f'error retrieving additional {what} for user "{user}"') from error
    if printed[0] != printed[1]:
        raise SubordinateIdsError(f'mismatched subuids and subgids for user "{user}"')
    return parse(printed[0])


def parse(printed: str) -> IdRange:
    """Read what getsubids prints: `0: kubelet 65536 7208960`, one line. Raise SubordinateIdsError."""
    lines = printed.strip("\n").split("\n")
    if len(lines) != 1:
        raise SubordinateIdsError(f'error parsing line "{printed}": it must contain only one line')
    parts = lines[0].split()
    if len(parts) != 4:
        raise SubordinateIdsError(f'invalid line "{printed}"')
    if not all(part.isdecimal() and int(part) < ALL_IDS for part in parts[2:]):
        raise SubordinateIdsError(f'error parsing line "{printed}": not two numbers below 2^32')
    return IdRange(int(parts[2]), int(parts[3]))


def verify(ids: IdRange, ids_per_pod: int, max_pods: int) -> None:
    """Refuse a range that does not fall into whole parts, begins with the node's, or is too small."""
    if ids.first % ids_per_pod:
        raise SubordinateIdsError(f"kubelet user assigned ID {ids.first} is not a multiple of {ids_per_pod}")
    if ids.first < ids_per_pod:
        raise SubordinateIdsError(
            f"kubelet user assigned ID {ids.first} must be greater or equal to {ids_per_pod}"  # 0 is the node's root
        )
    if ids.count % ids_per_pod:
        raise SubordinateIdsError(f"kubelet user assigned IDs length {ids.count} is not a multiple of {ids_per_pod}")
    if ids.count // ids_per_pod < max_pods:
        raise SubordinateIdsError(f"kubelet user assigned IDs are not enough to support {max_pods} pods")
