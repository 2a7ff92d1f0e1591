"""The kinds of faults that have a target, with what each may cause.

What none of them may cause: a lost acknowledged write, a restarted container of the steady pods, a pod in an earlier phase, or
anything left when all is over. The steady pods are critical, so that pressure on a disk never evicts them.
"""

from __future__ import annotations

from bench.soak_api import Unlistable
from bench.soak_disks import Disk
from bench.soak_faults import Fault
from bench.soak_forbidden import Forbidden
from bench.soak_preloaded import HOUR, TEN_YEARS, Preloaded
from bench.soak_pulls import Pulls
from bench.soak_second_agent import SecondAgent
from bench.soak_site import Site

FULL_SECONDS = (5.0, 40.0)
"""Time that a disk is full: the agent looks for pressure every 10 s."""
BROKEN_SECONDS = (20.0, 60.0)
"""Time that a custom resource cannot be listed: the garbage collector discovers new ones every 30 s."""
AGENT_SECONDS = (5.0, 30.0)
"""Time that a second agent runs: it needs some seconds to start."""


def of_site(site: Site) -> dict[str, Fault]:
    """Return the faults of the cluster's dependencies."""
    plugin = Fault("plugin", lambda: setattr(site.plugin, "away", True), lambda: setattr(site.plugin, "away", False))
    found = {
        "stop the key management plugin": plugin,
        "hang the file server": Fault("files", site.files.hang, site.files.answer),
    }
    for name, disk in site.disks.items():
        found |= of_disk("containerd's" if name == "containerd" else f"the {name}'s", disk)
    if site.preloaded is not None:
        found |= of_clock(site.preloaded)
        for name in ("store", "agent"):
            found |= of_fsync(name, site.disks[name], site.preloaded)
    return found


def of_disk(whose: str, disk: Disk) -> dict[str, Fault]:
    """Return the faults of a disk.

    A full disk of the agent or of containerd may evict pods that are not critical, and keeps new ones away.
    """
    target = str(disk.path)
    return {
        f"fill {whose} disk": Fault(target, disk.fill, disk.free, FULL_SECONDS),
        f"freeze {whose} disk": Fault(target, disk.freeze, disk.thaw),
        f"fail writes of {whose} disk": Fault(target, disk.fail, disk.heal),
    }


def of_fsync(name: str, disk: Disk, preloaded: Preloaded) -> dict[str, Fault]:
    """Return the fault of a disk on which fsync fails with EIO, in Python daemons."""
    begin, end = (lambda: preloaded.fail_fsync(disk.path)), (lambda: preloaded.fail_fsync(None))
    return {f"fail fsync on the {name}'s disk": Fault("fsync", begin, end)}


def of_clock(preloaded: Preloaded) -> dict[str, Fault]:
    """Return the steps of the wall clock, forward or back, and back to the machine's time some seconds later.

    A step of an hour is harmless. Ten years from now or ago no certificate and no token is valid: nobody is served until the
    clock is back, and bootstrap tokens and events have expired.
    """

    def step(seconds: int) -> Fault:
        return Fault("clock", lambda: preloaded.set_clock(seconds), lambda: preloaded.set_clock(0))

    return {
        "set the clock an hour forward": step(HOUR),
        "set the clock an hour back": step(-HOUR),
        "set the clock ten years forward": step(TEN_YEARS),
        "set the clock ten years back": step(-TEN_YEARS),
    }


def of_pulls(pulls: Pulls, disk: Disk) -> dict[str, Fault]:
    """Return the fault of a disk that is full while an image is pulled; the pod must run in the end."""
    return {
        "fill containerd's disk while an image is pulled": Fault(str(disk.path), pulls.start, disk.free, FULL_SECONDS)
    }


def of_unlistable(broken: Unlistable) -> dict[str, Fault]:
    """Return the fault of a kind that cannot be listed; what needs no object of that kind continues."""
    return {
        "break the conversion of a custom resource": Fault(
            "custom resource", broken.create, broken.delete, BROKEN_SECONDS, on_machine=False
        )
    }


def of_forbidden(forbidden: Forbidden) -> dict[str, Fault]:
    """Return the fault of a kind that informers of the controllers may not list, another one each time.

    What needs no object of that kind continues, and all else once it may be listed.
    """
    return {
        "forbid controllers to list a kind": Fault(
            "role", forbidden.begin, forbidden.end, BROKEN_SECONDS, on_machine=False
        )
    }


def of_second_agent(agent: SecondAgent) -> dict[str, Fault]:
    """Return the fault of a second agent with the node's name.

    Both report the node's pods, as upstream's would: phases of pods that exist meanwhile may go back.
    """
    return {"start a second agent": Fault("second agent", agent.start, agent.stop, AGENT_SECONDS)}
