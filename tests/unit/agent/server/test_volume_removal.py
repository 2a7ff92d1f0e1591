from __future__ import annotations

import asyncio
import os
import threading
from types import SimpleNamespace
from typing import Any, cast

from agent import threads
from agent.server.app import _Volumes


async def test_removal_of_large_local_path_volumes_leaves_the_threads_of_other_files_free() -> None:
    threads.Threads().install()
    release, removed = threading.Event(), list[str]()

    def remove(name: str) -> None:
        release.wait()
        removed.append(name)

    volumes = _Volumes(cast(Any, SimpleNamespace(remove_volume=remove)))
    names = [f"pvc-{number}" for number in range(2 * threads.FILES)]
    requests = [asyncio.create_task(volumes.remove(cast(Any, SimpleNamespace(path_params={"name": n})))) for n in names]
    try:
        await asyncio.sleep(0.01)
        async with asyncio.timeout(5):
            assert await asyncio.to_thread(os.getpid)
    finally:
        release.set()
    assert {response.status_code for response in await asyncio.gather(*requests)} == {200}
    assert sorted(removed) == sorted(names)
