"""`wherry support-bundle`: one archive with what a bug report needs, without secrets.

Everything is collected within limits of time and size. What cannot be collected has its error in its place, so that a bundle
of a broken machine is made, too.
"""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from kube.clock import SYSTEM, Clock
from kube.errors import StatusError
from kube.process import CommandError, run
from wherry import check, cluster, containerd, daemon_logs, daemons, output, status, versions, wanted
from wherry.command_options import Option
from wherry.errors import WherryError
from wherry.redaction import redacted, without_values
from wherry.settings import Settings
from wherry.snapshot_files import private_folder, publish, require_new

SECONDS = 30.0
"""Limit for each item."""
MOST_BYTES = 16 << 20
"""Size of an item; the beginning of a larger one is left out."""
LOG_LINES = 20_000
PATHS = {
    "nodes": "/api/v1/nodes",
    "namespaces": "/api/v1/namespaces",
    "pods": "/api/v1/pods",
    "services": "/api/v1/services",
    "endpointslices": "/apis/discovery.k8s.io/v1/endpointslices",
    "events": "/api/v1/events",
    "persistentvolumes": "/api/v1/persistentvolumes",
    "persistentvolumeclaims": "/api/v1/persistentvolumeclaims",
    "deployments": "/apis/apps/v1/deployments",
    "daemonsets": "/apis/apps/v1/daemonsets",
    "statefulsets": "/apis/apps/v1/statefulsets",
    "jobs": "/apis/batch/v1/jobs",
    "networkpolicies": "/apis/networking.k8s.io/v1/networkpolicies",
    "apiservices": "/apis/apiregistration.k8s.io/v1/apiservices",
    "leases": "/apis/coordination.k8s.io/v1/leases",
}
"""Lists of the cluster; never Secrets or ConfigMaps."""
COMMANDS = {
    "uname": ["uname", "-a"],
    "os-release": ["cat", "/etc/os-release"],
    "memory": ["cat", "/proc/meminfo"],
    "pressure": ["sh", "-c", "head /proc/pressure/*"],
    "disks": ["df", "-h"],
    "mounts": ["cat", "/proc/mounts"],
    "processes": ["ps", "-eo", "pid,ppid,user,stat,etime,rss,comm"],
    "addresses": ["ip", "-d", "address"],
    "routes": ["ip", "route", "show", "table", "all"],
    "routes6": ["ip", "-6", "route", "show", "table", "all"],
    "neighbours": ["ip", "neighbour"],
    "sockets": ["ss", "-lntup"],
    "iptables": ["iptables-save"],
    "ip6tables": ["ip6tables-save"],
    "nftables": ["nft", "list", "ruleset"],
    "sysctls": ["sysctl", "-a", "--pattern", "^(net\\.(ipv4|ipv6|bridge|netfilter)|vm|fs\\.(file|inotify))"],
}
Item = Callable[[], Awaitable[str]]


async def create(settings: Settings, path: Path | None, options: dict[str, Option], clock: Clock = SYSTEM) -> Path:
    """Write the archive, by default in a folder for root alone, and return its path; raises WherryError, OSError."""
    if path is not None:
        require_new(path)
    folder = settings.layout.state / "support"
    name = f"wherry-support-{settings.node_name}-{clock.now():%Y%m%d-%H%M%S}"
    target = folder / f"{name}.tar.gz"
    with private_folder(folder) as private:
        made = private / "bundle.tar.gz"
        with tarfile.open(made, "w:gz") as archive:
            for item, text in (await _collected(settings, options)).items():
                data = text.encode(errors="replace")[-MOST_BYTES:]
                info = tarfile.TarInfo(f"{name}/{item}")
                info.size, info.mode, info.mtime = len(data), 0o600, int(clock.now().timestamp())
                archive.addfile(info, io.BytesIO(data))
        made.chmod(0o600)
        try:
            await asyncio.to_thread(publish, made, path or target)
        except (WherryError, OSError) as error:
            if path is None:
                raise
            await asyncio.to_thread(publish, made, target)
            raise WherryError(f"{error}: the bundle is {target} instead") from error
    return path or target


async def _collected(settings: Settings, options: dict[str, Option]) -> dict[str, str]:
    """Return the texts by file name."""
    items = {**_of_wherry(settings, options), **_of_machine(settings), **_of_cluster(settings)}
    texts = await asyncio.gather(*(_text(item) for item in items.values()))
    return dict(zip(items, texts, strict=True))


async def _text(item: Item) -> str:
    try:
        async with asyncio.timeout(SECONDS):
            return await item()
    except TimeoutError:
        return f"not collected: it took more than {SECONDS:g} s\n"
    except (WherryError, StatusError, CommandError, OSError, ValueError) as error:
        return f"not collected: {redacted(str(error))}\n"


def _of_wherry(settings: Settings, options: dict[str, Option]) -> dict[str, Item]:
    async def version() -> str:
        return output.dumped(await versions.collect(settings), "yaml")

    async def state() -> str:
        return output.dumped(without_values(status.as_data(await status.collect(settings, SYSTEM.now()))), "json")

    async def findings() -> str:
        running = any((await daemons.running(settings)).values())
        found = await asyncio.to_thread(lambda: [asdict(one) for one in check.findings(settings, running=running)])
        return output.dumped(found, "yaml")

    async def config() -> str:
        return output.dumped(without_values(wanted.as_options(settings, options)), "yaml")

    found: dict[str, Item] = {
        "version.yaml": version,
        "status.json": state,
        "check.yaml": findings,
        "options.yaml": config,
    }
    known = [*(["containerd"] if settings.own_containerd else []), *daemons.roles(settings)]
    for daemon in known:
        found[f"logs/{daemon}.log"] = _log(settings, daemon)
    return found


def _log(settings: Settings, daemon: str) -> Item:
    async def read() -> str:
        return await _printed(daemon_logs.command(settings, daemon, follow=False, tail=LOG_LINES))

    return read


def _of_machine(settings: Settings) -> dict[str, Item]:
    ctr = containerd.ctr(settings)
    commands = {f"machine/{name}.txt": argv for name, argv in COMMANDS.items()}
    commands |= {f"runtime/{name}.txt": [*ctr, name, "list"] for name in ("containers", "images", "tasks")}
    return {name: lambda argv=argv: _printed(argv) for name, argv in commands.items()}  # type: ignore[misc]


async def _printed(argv: list[str]) -> str:
    done = await run(argv, timeout=SECONDS, check=False)
    return redacted(done.stdout + done.stderr)


def _of_cluster(settings: Settings) -> dict[str, Item]:
    async def read(path: str) -> str:
        async with cluster.connect(settings) as client:
            answer: Any = msgspec.json.decode(await client.call("GET", path))
        return output.dumped(without_values(answer), "json")

    return {f"cluster/{name}.json": lambda path=path: read(path) for name, path in PATHS.items()}  # type: ignore[misc]
