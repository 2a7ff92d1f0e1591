"""Options that a container is run with beyond its spec: cpuset, devices and what they need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cri.messages import Device, Mount


@dataclass(frozen=True, slots=True)
class RunOptions:
    """In CRI's terms; `cpus` and `mems` are lists for the cpuset controller, "" leaves it alone."""

    cpus: str = ""
    mems: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: Sequence[Mount] = ()
    devices: Sequence[Device] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    cdi_devices: Sequence[str] = ()
    """Qualified names (vendor.com/class=name) that the runtime resolves."""


NOTHING = RunOptions()
