"""Preflight: checks that this machine has what a node needs. Every finding comes with its fix."""

from __future__ import annotations

import importlib.util
import os
import platform
import shutil
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

from kube import interned_strings
from kube.clock import SYSTEM
from wherry import allocator, cni_plugins, firewall, other_network
from wherry.errors import WherryError
from wherry.finding import Finding
from wherry.settings import Settings
from wherry.terminal import errors, styled

MIN_DISK_BYTES = 2 << 30
MIN_MEMORY_BYTES = 700 << 20
ROOTS_FOLDERS = ("/usr/local/sbin", "/usr/sbin", "/sbin")


def findings(settings: Settings, *, running: bool) -> Iterator[Finding]:
    """Yield what was found, good and bad. Ports are not checked if Wherry's daemons run here (`running`): they hold them."""
    yield _ok("runs as root") if os.geteuid() == 0 else _error("not root", "run it with sudo")
    yield _interpreter()
    yield from _packages(settings)
    yield from _programs(settings)
    yield from _kernel()
    yield from other_network.findings(settings, running=running)
    yield from _proxy_mode(settings)
    if not running:
        yield from _ports(settings)
    yield from _room(settings)
    yield from _settings_file(settings)
    yield from _certificates(settings)
    for obstacle in firewall.obstacles(settings):
        yield Finding("warning", obstacle.what, obstacle.fix, is_command=True)


def require(settings: Settings, *, running: bool) -> None:
    """Print problems; raise WherryError if one keeps a node from working, such as a port that another program has."""
    _require(findings(settings, running=running))


async def prepare(settings: Settings) -> None:
    """Load the modules that the kernel has for the settings, before they are checked; a reset unloads none."""
    if settings.own_proxy and settings.proxy_mode == "ipvs":
        from netproxy import modes

        await modes.load_ipvs("rr")


def require_shared(settings: Settings) -> None:
    """Raise WherryError if this machine cannot run the proxy mode or the pod network of the cluster that it joins."""
    _require(_proxy_mode(settings))
    if not settings.own_pod_network:
        _require(other_network.findings(settings))


def _require(found: Iterable[Finding]) -> None:
    bad = [f for f in found if f.level != "ok"]
    for finding in bad:
        what = styled("  ", (finding.what, "yellow"), ":" if finding.is_command else f": {finding.fix}")
        errors.print(what)
        if finding.is_command:
            errors.print(f"    {finding.fix}", soft_wrap=True)
    if any(f.level == "error" for f in bad):
        raise WherryError("this machine lacks what is named above; nothing was started")


def _interpreter() -> Finding:
    if problem := interned_strings.problem():
        return _error(problem, interned_strings.FIX)
    return _ok(f"Python {platform.python_version()} frees interned strings")


NODE_PACKAGES = ("grpc", "google.protobuf", "pyroute2", "uvloop")
CONTROL_PACKAGES = ("uvloop", "nacl")
"""Modules of Python packages that only the extras install."""


def _packages(settings: Settings) -> Iterator[Finding]:
    """Find what an installation without extras lacks."""
    wanted = NODE_PACKAGES if settings.is_worker else dict.fromkeys((*NODE_PACKAGES, *CONTROL_PACKAGES))
    if missing := [name for name in wanted if not _installed(name)]:
        yield _error(f"no Python packages {', '.join(missing)}", "pip install 'wherry[all]'")


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of a parent
        return False


def _programs(settings: Settings) -> Iterator[Finding]:
    wanted = {"iptables-restore": "iptables", "nsenter": "util-linux", "mount": "mount"}
    if settings.own_containerd:
        wanted |= {"containerd": "containerd", "ctr": "containerd", "runc": "runc"}
    for program, package in wanted.items():
        path = _which(program)
        yield _ok(f"{program} is {path}") if path else _error(f"no {program}", f"apt-get install {package}")
    if cni_plugins.find():
        yield _ok("the CNI plugins are there")
    elif settings.own_pod_network:
        yield _error("no CNI plugins", "apt-get install containernetworking-plugins")
    if not settings.is_worker:
        yield _allocator()


def _which(program: str) -> str | None:
    """Return the path of a program, also of root's: the PATH of Debian's other users lacks their folders."""
    return shutil.which(program, path=os.pathsep.join([os.environ.get("PATH", os.defpath), *ROOTS_FOLDERS]))


def _proxy_mode(settings: Settings) -> Iterator[Finding]:
    """Check the mode of Wherry's proxy by the proxy's own rules."""
    if not settings.own_proxy:
        return
    from netproxy import modes
    from netproxy.errors import UnsupportedModeError

    try:
        modes.check(settings.proxy_mode)
    except UnsupportedModeError as error:
        what, _, others = str(error).partition(": use mode ")
        fix = f"choose another --proxy-mode: {others}" if others else "install it, or choose another --proxy-mode"
        yield _error(f"--proxy-mode {settings.proxy_mode}: {what.partition(': ')[2]}", fix)


def _allocator() -> Finding:
    path = allocator.library()
    if path is not None:
        return _ok(f"{allocator.LIBRARY} is {path}")
    what = f"no {allocator.LIBRARY}: after a load the control plane keeps twice the memory"
    return Finding("warning", what, f"apt-get install {allocator.PACKAGE}, and start it anew")


def _kernel() -> Iterator[Finding]:
    filesystems = Path("/proc/filesystems").read_text()
    if "overlay" in filesystems:
        yield _ok("overlayfs is there")
    else:
        yield _error("the kernel has no overlayfs", "modprobe overlay")
    mounts = Path("/proc/self/mountinfo").read_bytes()
    if b" - cgroup2 " in mounts or b" - cgroup " in mounts:
        yield _ok("cgroups are mounted")
    else:
        yield _error("no cgroups are mounted", "mount -t cgroup2 none /sys/fs/cgroup")
    if Path("/proc/sys/net/bridge/bridge-nf-call-iptables").exists():
        yield _ok("bridged packets can pass iptables (br_netfilter)")
    else:
        yield Finding(
            "warning",
            "br_netfilter is not loaded: pods on one node could not reach each other through a Service",
            "modprobe br_netfilter",
        )


def _ports(settings: Settings) -> Iterator[Finding]:
    ports = {} if settings.is_worker else {settings.api_port: ("the API server", "--api-port")}
    ports |= {
        settings.kubelet_port: ("the agent", "--kubelet-port"),
        settings.kubelet_healthz_port: ("the agent's health", "--kubelet-healthz-port"),
    }
    if not settings.is_worker:
        ports |= {
            settings.controller_manager_port: ("the controllers' metrics", "--controller-manager-port"),
            settings.scheduler_port: ("the scheduler's metrics", "--scheduler-port"),
        }
    if settings.own_proxy:
        ports[settings.proxy_healthz_port] = ("the proxy's health", "--proxy-healthz-port")
        ports[settings.proxy_metrics_port] = ("the proxy's metrics", "--proxy-metrics-port")
    if settings.runs_dns:
        ports[settings.dns_metrics_port] = ("cluster DNS' metrics", "--dns-metrics-port")
    ports.pop(0, None)
    for port, (use, option) in ports.items():
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("0.0.0.0", port))
            except OSError:
                yield _error(
                    f"port {port}, wanted for {use}, is taken",
                    f"see who has it with `ss -ltnp sport = :{port}` and stop it, or choose another with {option}",
                )
            else:
                yield _ok(f"port {port} is free for {use}")


def _room(settings: Settings) -> Iterator[Finding]:
    folder = settings.layout.state
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if free >= MIN_DISK_BYTES:
        yield _ok(f"{free >> 30} GiB are free under {settings.layout.state}")
    else:
        yield Finding(
            "warning", f"only {free >> 20} MiB are free under {settings.layout.state}", "make room: 2 GiB or more"
        )
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemTotal:"):
            total = int(line.split()[1]) << 10
            if total < MIN_MEMORY_BYTES:
                yield Finding("warning", f"only {total >> 20} MiB of memory", "give the machine 1 GiB or more")
            else:
                yield _ok(f"{total >> 20} MiB of memory")


def _settings_file(settings: Settings) -> Iterator[Finding]:
    path = settings.layout.settings
    if path.exists() and path.stat().st_mode & 0o007:
        yield Finding("warning", f"everybody may read {path}, whose URLs may have passwords", "type `wherry up` again")


def _certificates(settings: Settings) -> Iterator[Finding]:
    if not settings.layout.settings.exists():
        return
    from wherry import expiry

    found = [Finding("warning", end.what, end.fix) for end in expiry.ending(settings, SYSTEM.now())]
    yield from found or [_ok("no certificate ends within a month")]


def _ok(what: str) -> Finding:
    return Finding("ok", what)


def _error(what: str, fix: str) -> Finding:
    return Finding("error", what, fix)
