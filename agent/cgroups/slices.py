"""Sets the limits of pods' systemd slices, where systemd manages the cgroup tree.

systemd overwrites values that were written straight into a slice's cgroup. So they are set through systemd: in a drop-in below
/run that it reads whenever the slice starts, which the first container in it brings about. An empty slice stays; it is stopped
and its drop-ins are removed when its pod is gone.
"""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from agent.cgroups import qos
from kube.process import run

log = logging.getLogger(__name__)

DROP_INS = Path("/run/systemd/system.control")
_SECONDS = 30.0


def properties(*, cpu_shares: int, cpu_quota: int, cpu_period: int, memory: int, pids: int) -> list[str]:
    """Return the unit properties for limits as agent.cgroups has them; 0 is no limit."""
    found = [f"CPUWeight={qos.cpu_weight(cpu_shares or qos.MIN_SHARES)}"]
    # systemd takes hundredths of a percent of one CPU.
    quota = f"{max(cpu_quota * 10_000 // cpu_period, 1) / 100:g}%" if cpu_quota else ""
    found.append(f"CPUQuota={quota}")
    found.append(f"CPUQuotaPeriodSec={cpu_period}us" if quota else "CPUQuotaPeriodSec=")
    found.append(f"MemoryMax={memory or 'infinity'}")
    found.append(f"TasksMax={pids or 'infinity'}")
    return found


def given(*, cpu_shares: int, cpu_quota: int, cpu_period: int, memory: int, pids: int) -> list[str]:
    """Return the unit properties for those limits that are not 0; the others stay as they are."""
    found = properties(cpu_shares=cpu_shares, cpu_quota=cpu_quota, cpu_period=cpu_period, memory=memory, pids=pids)
    limits = (cpu_shares, cpu_quota, cpu_quota, memory, pids)
    return [text for text, limit in zip(found, limits, strict=True) if limit]


def path_of(name: str) -> str:
    """Return a slice's path below the mount: a-b.slice is in a.slice. Its directory may be given or left out."""
    parts = name.strip("/").rpartition("/")[2].removesuffix(".slice").split("-")
    return "/".join("-".join(parts[: depth + 1]) + ".slice" for depth in range(len(parts)))


async def set_properties(name: str, wanted: list[str], *, strict: bool = False) -> None:
    """Have systemd give a slice its limits, now if it runs, else when it starts; failure is logged, or raised if `strict`."""
    result = await run(["systemctl", "set-property", "--runtime", name, *wanted], timeout=_SECONDS, check=False)
    if result.returncode != 0 and strict:
        raise OSError(f"slice {name}: {result.stderr.strip()}")
    if result.returncode != 0:
        log.warning("slice %s: %s", name, result.stderr.strip())


async def stop(name: str) -> bool:
    """Stop a slice with all that runs in it and forget its limits; False if systemd could not."""
    result = await run(["systemctl", "stop", name], timeout=_SECONDS, check=False)
    shutil.rmtree(DROP_INS / f"{name}.d", ignore_errors=True)
    if result.returncode != 0:
        log.warning("slice %s: %s", name, result.stderr.strip())
    return result.returncode == 0
