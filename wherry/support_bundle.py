"""`wherry support-bundle`: one archive with what a bug report needs, without secrets.

One item after another is collected within limits of time and size, and written before the next one. What cannot be collected
has its error in its place, so that a bundle of a broken machine is made, too.
"""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from kube.client import Client
from kube.clock import SYSTEM, Clock
from kube.errors import StatusError
from kube.process import CommandError, pieces
from wherry import (
    addon_list,
    certs_commands,
    check,
    cluster,
    cni_plugins,
    containerd,
    daemon_logs,
    daemons,
    expiry,
    output,
    status,
    support_lists,
    versions,
    wanted,
)
from wherry.command_options import Option
from wherry.errors import WherryError
from wherry.redaction import redacted, without_values
from wherry.settings import Settings
from wherry.snapshot_files import private_folder, publish, require_new

SECONDS = 30.0
"""Limit for what each item waits for; removing secrets from it takes time in proportion to its size."""
LATER_SECONDS, LAST_SECONDS, MOST_LATE = 3.0, 1.0, 3
"""Limits for each list after one that took too long, and after so many."""
MOST_BYTES = 16 << 20
"""Size of an item: a larger list ends with the last object that fits, of larger texts the beginning is left out."""
PAGE = 100
LOG_LINES = 20_000
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
            items = {**_of_wherry(settings, options), **_of_machine(settings), **_of_cluster(settings)}
            for file, item in items.items():
                data = (await _text(item)).encode(errors="replace")
                info = tarfile.TarInfo(f"{name}/{file}")
                info.size, info.mode, info.mtime = len(data), 0o600, int(clock.now().timestamp())
                await asyncio.to_thread(archive.addfile, info, io.BytesIO(data))
        made.chmod(0o600)
        try:
            await asyncio.to_thread(publish, made, path or target)
        except (WherryError, OSError) as error:
            if path is None:
                raise
            await asyncio.to_thread(publish, made, target)
            raise WherryError(f"{error}: the bundle is {target} instead") from error
    return path or target


async def _text(item: Item) -> str:
    try:
        return await item()
    except Exception as error:  # whatever is wrong with one item, the others are needed
        return f"not collected: {redacted(_described(error))}\n"


def _described(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"it took more than {SECONDS:g} s"
    if isinstance(error, (WherryError, StatusError, CommandError, OSError)):
        return str(error)
    return f"{type(error).__name__}: {error}"


def _of_wherry(settings: Settings, options: dict[str, Option]) -> dict[str, Item]:
    async def version() -> str:
        async with asyncio.timeout(SECONDS):
            return output.dumped(await versions.collect(settings), "yaml")

    async def state() -> str:
        async with asyncio.timeout(SECONDS):
            found = await status.collect(settings, SYSTEM.now())
        return output.dumped(without_values(status.as_data(found)), "json")

    async def findings() -> str:
        async with asyncio.timeout(SECONDS):
            running = any((await daemons.running(settings)).values())
            found = await asyncio.to_thread(lambda: [asdict(one) for one in check.findings(settings, running=running)])
        return output.dumped(found, "yaml")

    async def config() -> str:
        return output.dumped(without_values(wanted.as_options(settings, options)), "yaml")

    async def certificates() -> str:
        found = await asyncio.to_thread(lambda: [*expiry.certificates(settings), *expiry.authorities(settings)])
        return output.dumped([certs_commands.as_data(one) for one in found], "yaml")

    found: dict[str, Item] = {
        "version.yaml": version,
        "status.json": state,
        "check.yaml": findings,
        "options.yaml": config,
        "certificates.yaml": certificates,
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
    commands = {f"machine/{name}.txt": argv for name, argv in support_lists.COMMANDS.items()}
    layout = settings.layout
    folders = [layout.cni_configuration, *cni_plugins.searched(settings)]
    commands["machine/cni.txt"] = ["ls", "-l", *map(str, folders)]
    commands |= {f"runtime/{name}.txt": [*ctr, name, "list"] for name in ("containers", "images", "tasks")}
    return {name: lambda argv=argv: _printed(argv) for name, argv in commands.items()}  # type: ignore[misc]


async def _printed(argv: list[str]) -> str:
    """Return what a command printed, without its beginning if that is too much, and with its error if it took too long."""
    kept, size, cut, problem = deque[bytes](), 0, False, ""
    try:
        async for piece in pieces(argv, timeout=SECONDS):
            kept.append(piece)
            size += len(piece)
            while size - len(kept[0]) >= MOST_BYTES:
                size -= len(kept.popleft())
                cut = True
    except CommandError as error:
        if not kept:
            raise
        problem = f"not complete: {error}\n"
    text = b"".join(kept).decode(errors="replace")
    return await asyncio.to_thread(redacted, (_without_rests(text) if cut else text) + problem)


def _without_rests(text: str) -> str:
    """Return a text whose beginning was cut without the rest of a line and of a key, which nothing shows to be one."""
    text = text.partition("\n")[2]
    head, end, rest = text.partition("-----END ")
    return rest.partition("\n")[2] if end and "-----BEGIN " not in head else text


def _of_cluster(settings: Settings) -> dict[str, Item]:
    late = list[str]()

    async def read(path: str) -> str:
        seconds = LAST_SECONDS if len(late) >= MOST_LATE else LATER_SECONDS if late else SECONDS
        try:
            async with cluster.connect(settings) as client:
                return await _listed(client, path, seconds)
        except TimeoutError as error:
            late.append(path)
            raise WherryError(f"it took more than {seconds:g} s") from error

    async def addons() -> str:
        async with asyncio.timeout(LATER_SECONDS if late else SECONDS), cluster.connect(settings) as client:
            found = await addon_list.listed(settings, client)
        return output.dumped(without_values([addon_list.as_data(one) for one in found]), "yaml")

    lists = support_lists.paths()
    items = {f"cluster/{name}.json": lambda path=path: read(path) for name, path in lists.items()}
    return {**items, "cluster/addons.yaml": addons}


async def _listed(client: Client, path: str, seconds: float) -> str:
    """Return a list as JSON; it is read page by page, and ends with what is left out of it, if anything is."""
    found, size, head, left_out = list[str](), 0, dict[str, Any](), ""
    end, after = time.monotonic() + seconds, ""
    while not left_out and (after or not head):
        query = {"limit": str(PAGE), **({"continue": after} if after else {})}
        try:
            async with asyncio.timeout(seconds):
                body = await client.call("GET", path, query=query)
        except (TimeoutError, StatusError) as error:
            if not head:
                raise
            left_out = redacted(_described(error))
            break
        head, texts, after = await asyncio.to_thread(_page, body)
        for text in texts:
            size += len(text)
            if size > MOST_BYTES:
                left_out = f"more than {MOST_BYTES >> 20} MiB"
                break
            found.append(text)
        if after and time.monotonic() > end:
            left_out = f"more than {seconds:g} s"
    whole = {**head, **({"leftOut": f"what follows {len(found)} objects: {left_out}"} if left_out else {})}
    return json.dumps(whole)[:-1] + ', "items": [\n' + ",\n".join(found) + "\n]}\n"


def _page(body: bytes) -> tuple[dict[str, Any], list[str], str]:
    """Return the fields of a list beside its objects, each object as JSON, and the token of the next page."""
    answer: Any = msgspec.json.decode(body)
    metadata = answer.get("metadata") or {}
    texts = [msgspec.json.format(msgspec.json.encode(without_values(each))).decode() for each in answer["items"]]
    head = {"kind": answer.get("kind"), "metadata": {"resourceVersion": metadata.get("resourceVersion")}}
    return head, texts, metadata.get("continue") or ""
