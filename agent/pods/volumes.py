"""A pod's volumes: set up before its first container, and again when a token or what a ConfigMap or Secret holds is due.

No volume, no container; but containers that run keep what they have where another look at their volumes fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.pods.references import ReferencesError
from agent.volumes.manager import MountsFailed
from agent.volumes.own import FolderError
from kube.events import WARNING

if TYPE_CHECKING:
    from agent.pods.worker import PodWorker


async def set_up_volumes(worker: PodWorker) -> bool:
    """Set the volumes up where that was not done or their contents are due; True where all are there."""
    now = worker.tools.monotonic()
    due = worker.contents_due is not None and worker.contents_due <= now
    if worker.mounted is not None and not due:
        return True
    if worker.mounted is None and worker.retry_at.get("/volumes", 0.0) > now:
        return False
    tools, pod = worker.tools, worker.pod
    worker.contents_due = None
    try:
        await tools.references.ready(worker.uid)
        if not worker.static:  # a static pod runs before there is an API
            await tools.services.wait_synced()
        worker.mounted, again = await tools.volumes.mount(pod)
    except FolderError as error:
        worker.event(WARNING, "Failed", f"error making pod data directories: {error}")
        worker.retry_later("/volumes")
        return False
    except (MountsFailed, ReferencesError) as error:
        for failed in error.failed if isinstance(error, MountsFailed) else (error,):
            worker.event(WARNING, "FailedMount", str(failed))
        if worker.mounted is not None:
            # The containers keep what they have, as with upstream.
            worker.contents_due = now + 60.0
            return True
        worker.retry_later("/volumes")
        return False
    if again is not None:
        worker.contents_due = tools.monotonic() + again - tools.now()
    worker.succeeded("/volumes")
    return True
