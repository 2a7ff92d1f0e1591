"""A process that writes to a store as fast as it can and prints every acknowledged write, until it is killed."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from control.storage.sqlite import SqliteStore


async def write(store: SqliteStore, worker: int, start: int) -> None:
    index = start
    while True:
        item = await store.create(f"/w{worker}/{index}", b"x" * 500)
        sys.stdout.write(f"put {item.key} {item.revision}\n")
        if index % 4 == 0:
            item = await store.delete(item.key, item.revision)
            sys.stdout.write(f"del {item.key} {item.revision}\n")
        sys.stdout.flush()
        index += 1


async def main(path: Path, start: int) -> None:
    store = await SqliteStore.open(path)
    await asyncio.gather(*(write(store, worker, start) for worker in range(8)))


asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
