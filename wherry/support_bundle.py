"""`wherry support-bundle`: one archive with what a bug report needs, without secrets.

One item after another is collected within limits of time and size, and written before the next one. What cannot be collected
has its error in its place, so that a bundle of a broken machine is made, too.
"""

from __future__ import annotations

import asyncio
import io
import tarfile
import tempfile
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from kube.clock import SYSTEM, Clock
from kube.errors import StatusError
from kube.process import CommandError, pieces
from wherry import (
    certs_commands,
    check,
    cni_plugins,
    containerd,
    daemon_logs,
    daemons,
    expiry,
    os_errors,
    output,
    status,
    support_lists,
    versions,
    wanted,
)
from wherry.command_options import Option
from wherry.errors import WherryError
from wherry.new_files import name_or_copy
from wherry.progress import step
from wherry.redaction import redacted, without_values
from wherry.scratch_file import ScratchFile
from wherry.settings import Settings
from wherry.snapshot_files import require_new
from wherry.support_objects import Item, ServerItems
from wherry.terminal import errors

SECONDS, AWAY_SECONDS = 15.0, 2.0
"""Limits for what each item waits for, and for requests to an API server that is away; removing secrets from an item takes
time in proportion to its size."""
MOST_BYTES = 16 << 20
"""Size of a text: of a larger one the beginning is left out."""
LOG_LINES = 20_000


async def create(settings: Settings, path: Path | None, options: dict[str, Option], clock: Clock = SYSTEM) -> Path:
    """Write the archive, by default in a folder for root alone, and return its path; raises WherryError, OSError.

    If the disk of the folder is full or read-only, the archive is written to another, in the end to that of temporary files.
    """
    if path is not None:
        require_new(path)
    name = f"wherry-support-{settings.node_name}-{clock.now():%Y%m%d-%H%M%S}"
    folders, problems = _folders(settings.layout.state / "support")
    targets = [*([path] if path is not None else []), *(folder / f"{name}.tar.gz" for folder in folders)]
    with ScratchFile(target.parent for target in targets) as scratch:
        server = ServerItems(settings)
        with tarfile.open(fileobj=scratch, mode="w:gz") as archive:  # type: ignore[call-overload]
            for what, items in _groups(settings, options, server).items():
                with step(f"collect {what}", "items", to=errors) as progress:
                    progress.set(0, len(items))
                    for file, item in items.items():
                        progress.now = file
                        text, collected = await _text(item)
                        await _add(archive, f"{name}/{file}", text, clock)
                        progress.missing += not collected
                        progress.add(1)
        if server.away:
            errors.print(f"the cluster's objects are not in it: {server.away}", style="yellow", soft_wrap=True)
        made, others = await asyncio.to_thread(_publish, scratch, targets)
    if path is None:
        for problem in (*problems, *others):
            errors.print(problem, style="yellow", soft_wrap=True)
    elif made != path:
        raise WherryError(f"{others[0]}: the bundle is {made} instead")
    return made


def _folders(folder: Path) -> tuple[list[Path], list[str]]:
    """Return the folders for a bundle without a path, `folder` first, and why that one cannot be used."""
    temporary = Path(tempfile.gettempdir())
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        return [temporary], [os_errors.sentence(error)]
    return [folder, temporary], []


async def _add(archive: tarfile.TarFile, name: str, text: str, clock: Clock) -> None:
    data = text.encode(errors="replace")
    info = tarfile.TarInfo(name)
    info.size, info.mode, info.mtime = len(data), 0o600, int(clock.now().timestamp())
    await asyncio.to_thread(archive.addfile, info, io.BytesIO(data))


def _publish(scratch: ScratchFile, targets: Sequence[Path]) -> tuple[Path, list[str]]:
    """Write the archive to the first target that takes it; return it with the problems of those before. Raises the last one."""
    problems: list[str] = []
    for target in targets:
        try:
            name_or_copy(scratch.file, target)
        except (WherryError, OSError) as error:
            if target == targets[-1]:
                raise
            problems.append(os_errors.text(error))
        else:
            return target, problems
    raise AssertionError("the last target returns or raises")


def _groups(settings: Settings, options: dict[str, Option], server: ServerItems) -> dict[str, dict[str, Item]]:
    """Return the items by what they are, in the order in which they are collected."""
    return {
        "versions, status and options": {"readyz.txt": server.readiness, **_of_wherry(settings, options, server)},
        "logs": _logs(settings),
        "the state of the machine": _of_machine(settings),
        "the cluster's objects": server.lists(),
    }


async def _text(item: Item) -> tuple[str, bool]:
    """Return the text of an item and True, or why it was not collected and False."""
    try:
        return await item(), True
    except Exception as error:  # whatever is wrong with one item, the others are needed
        return f"not collected: {redacted(_described(error))}\n", False


def _described(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"it took more than {SECONDS:g} s"
    if isinstance(error, (WherryError, StatusError, CommandError, OSError)):
        return str(error)
    return f"{type(error).__name__}: {error}"


def _of_wherry(settings: Settings, options: dict[str, Option], server: ServerItems) -> dict[str, Item]:
    def seconds() -> float:
        """Return the limit for requests to the API server, which has shown whether it is away."""
        return AWAY_SECONDS if server.away else SECONDS

    async def version() -> str:
        async with asyncio.timeout(2 * SECONDS):
            return output.dumped(await versions.collect(settings, seconds()), "yaml")

    async def state() -> str:
        async with asyncio.timeout(2 * SECONDS):
            found = await status.collect(settings, SYSTEM.now(), seconds())
        return output.dumped(without_values(status.as_data(found)), "json")

    async def findings() -> str:
        async with asyncio.timeout(SECONDS):
            running = any((await daemons.running(settings)).values())
            found = await asyncio.to_thread(lambda: [asdict(one) for one in check.findings(settings, running=running)])
        return output.dumped(found, "yaml")

    async def config() -> str:
        return output.dumped(without_values(wanted.as_options(settings, options)), "yaml")

    async def certificates() -> str:
        async with asyncio.timeout(SECONDS):
            found = await asyncio.to_thread(lambda: [*expiry.certificates(settings), *expiry.authorities(settings)])
        return output.dumped([certs_commands.as_data(one) for one in found], "yaml")

    return {
        "version.yaml": version,
        "status.json": state,
        "check.yaml": findings,
        "options.yaml": config,
        "certificates.yaml": certificates,
    }


def _logs(settings: Settings) -> dict[str, Item]:
    known = [*(["containerd"] if settings.own_containerd else []), *daemons.roles(settings)]
    return {f"logs/{daemon}.log": _log(settings, daemon) for daemon in known}


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
    found: dict[str, Item] = {name: _output_of(argv) for name, argv in commands.items()}
    for name in ("containers", "images", "tasks"):
        found[f"runtime/{name}.txt"] = _of_runtime(settings, [*ctr, name, "list"])
    return found


def _output_of(argv: list[str]) -> Item:
    return lambda: _printed(argv)


def _of_runtime(settings: Settings, argv: list[str]) -> Item:
    async def read() -> str:
        await asyncio.to_thread(containerd.require_running, settings)
        return await _printed(argv)

    return read


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
