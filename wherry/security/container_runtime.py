"""The container runtime: a check of Wherry's own, which the benchmark does not have."""

from __future__ import annotations

import re

from kube.process import CommandError, run
from wherry import containerd
from wherry.security.facts import Containerd, Facts
from wherry.security.rows import Check, CheckResult, judge, not_here, passed
from wherry.settings import Settings

FIXED = {(1, 7): 33, (2, 0): 10, (2, 1): 9, (2, 2): 5, (2, 3): 2}
"""Series of containerd -> first release whose containers do not have the restart monitor's labels of images."""
_RELEASES = [f"{major}.{minor}.{patch}" for (major, minor), patch in FIXED.items()]
_DISABLED = ", ".join(f'"io.containerd.{name}"' for name in containerd.RESTART_MONITOR)


async def query(settings: Settings) -> Containerd | None:
    """Return the version and plugins of the agent's containerd; None if it is another runtime, or ctr is missing."""
    try:
        version = (await run([*containerd.ctr(settings), "version"])).stdout
        plugins = (await run([*containerd.ctr(settings), "plugins", "list"])).stdout
    except (CommandError, OSError):
        return None
    return Containerd(containerd.server_version(version), loads_restart_monitor(plugins))


def loads_restart_monitor(printed: str) -> bool:
    """Return whether the table of `ctr plugins list` has the restart monitor; its type differs by version."""
    rows = [line.split() for line in printed.splitlines()]
    return any(len(row) > 3 and row[1] == "restart" and row[3] == "ok" for row in rows)


def ignores_labels_of_images(version: str) -> bool:
    """Return whether a release of containerd has the fix of CVE-2026-53488."""
    found = re.match(r"v?([0-9]+)\.([0-9]+)\.([0-9]+)", version)
    if found is None:
        return False
    series, patch = (int(found[1]), int(found[2])), int(found[3])
    return patch >= FIXED[series] if series in FIXED else series > max(FIXED)


def _restart_monitor(facts: Facts) -> CheckResult:
    found = facts.containerd
    if found is None:
        return not_here("the container runtime is not containerd, or `ctr` cannot query it")
    if not found.restart_monitor:
        return passed("its restart monitor is disabled")
    if ignores_labels_of_images(found.version):
        return passed(f"containerd {found.version} ignores these labels")
    if facts.settings.own_containerd:
        return judge("it runs with an older configuration", "`wherry up` restarts it; containers keep running")
    return judge(
        f"containerd {found.version} may run commands as root for images (CVE-2026-53488): only pods that this version of "
        "Wherry started are safe",
        f"update it to {', '.join(_RELEASES[:-1])} or {_RELEASES[-1]}, or add to disabled_plugins: `{_DISABLED}`",
    )


CHECKS = (
    Check(
        "W.1",
        "containerd obeys no restart labels of images",
        _restart_monitor,
        "passes; with `--runtime-endpoint`, a warning unless that containerd is fixed or has its restart monitor disabled",
        for_worker=True,
    ),
)
