"""Takes one scheduled snapshot, copies it to S3, deletes surplus ones, and prints the result as JSON.

python -P -m wherry.scheduled_snapshot PREFIX [PATH]      (see wherry.snapshot_schedule)

With the path of a snapshot whose copy failed, or the deletion of surplus ones, it repeats these, if the file is still there.

It reads what an S3 service sends, and is a process of the control plane, which the kernel ends last if memory is short: its own
memory is limited, and it is ended first.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from pathlib import Path

import msgspec

from kube import memory_limit
from wherry import os_errors, settings, snapshot, snapshot_catalog, terminal
from wherry.errors import WherryError
from wherry.settings import Settings
from wherry.snapshot_schedule import Taken

NICE = 10
"""Everything else on the machine comes first."""
MEMORY = 2 << 30
"""Bytes of data. (Address space would count ranges that the allocator reserves for each thread.)"""
PROBLEM_CHARACTERS = 2000
"""Characters of a problem that is stored, logged and shown by `wherry status`."""


async def take(saved: Settings, again: str = "") -> Taken:
    """Return the result; a problem after the file was written is part of it. `again` is the path of one to be finished."""
    path = Path(again)
    if again and path.parent == saved.snapshot_options.folder and path.is_file():
        made = await snapshot.copy(saved, path)
    else:
        made = await snapshot.save(saved, scheduled=True)
    summary, problem, deleted = made.summary, made.problem, list[str]()
    kept = saved.snapshot_options.retention
    try:
        deleted = await snapshot_catalog.prune(saved, kept, newest=summary.path.name, in_bucket=not problem)
    except (WherryError, OSError) as error:
        problem = problem or f"surplus snapshots are not removed: {os_errors.text(error)}"
    return Taken(
        path=str(summary.path),
        size=summary.size,
        keys=summary.keys,
        revision=summary.revision,
        url=made.url,
        deleted=deleted,
        problem=problem[:PROBLEM_CHARACTERS],
    )


def main(prefix: str, again: str = "") -> int:
    os.nice(NICE)
    memory_limit.limit(resource.RLIMIT_DATA, MEMORY)
    os.umask(0o077)
    terminal.errors.quiet = True
    try:
        saved = settings.load(prefix)
        if saved is None:
            raise WherryError(f"there are no settings below {prefix}")
        result = asyncio.run(take(saved, again))
    except (WherryError, OSError) as error:
        result = Taken(problem=os_errors.text(error)[:PROBLEM_CHARACTERS])
    print(msgspec.json.encode(result).decode())
    return 0 if result.path else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
