"""Sets up a pod's volumes: before its first container, and again when a token expires or a ConfigMap or Secret changes.

No container starts without its volumes; containers that run keep what they have where a refresh of their volumes fails.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

from agent.lifecycle import End, rejection
from agent.pods.context import PodContext, reject
from agent.pods.references import ReferencesError
from agent.pods.state import VOLUMES
from agent.volumes.manager import MountsFailed
from agent.volumes.pod_volumes import FolderError
from kube import duration
from kube.events import WARNING

LIMIT_REACHED = "VolumeAttachmentLimitExceeded"
MOST_NAMES = 20
"""Volumes that an entry of the journal names."""


async def set_up_volumes(ctx: PodContext) -> bool:
    """Set the volumes up, or refresh their contents when it is time; True if all are mounted."""
    state, deps = ctx.state, ctx.deps
    now = deps.monotonic()
    if state.volumes.mounted is not None and (state.volumes.refresh_at is None or state.volumes.refresh_at > now):
        return True
    if state.volumes.mounted is None and state.step_back_off.waits(VOLUMES):
        return False
    pod, asked, first = state.pod, state.volumes.refresh_at, state.volumes.mounted is None
    began = deps.monotonic()
    state.volumes.refresh_at = None  # what changes meanwhile sets it again
    try:
        await deps.references.ready(state.uid)
        state.volumes.mounted, refresh_at = await deps.volumes.mount(pod)
    except FolderError as error:
        ctx.reporter.event(WARNING, "Failed", f"error making pod data directories: {error}")
        if state.volumes.mounted is not None:
            state.volumes.refresh_by(now + 60.0)
            return True
        state.step_back_off.failed(VOLUMES)
        return False
    except (MountsFailed, ReferencesError) as error:
        elapsed = f"after {duration.render(deps.monotonic() - began)}"
        for failed in error.failed if isinstance(error, MountsFailed) else (error,):
            ctx.reporter.event(WARNING, "FailedMount", str(failed), grounds=elapsed)
        if state.volumes.mounted is not None:
            # The containers keep what they have, as with upstream.
            state.volumes.refresh_by(now + 60.0)
            return True
        if isinstance(error, MountsFailed) and error.over_limit:
            reject(ctx, _over_limit(error))
        state.step_back_off.failed(VOLUMES)
        return False
    except BaseException:
        if state.volumes.refresh_at is None:
            state.volumes.refresh_at = asked  # nothing was refreshed
        raise
    if refresh_at is not None:
        state.volumes.refresh_by(deps.monotonic() + refresh_at - deps.now())
    state.step_back_off.succeeded(VOLUMES)
    if first and state.volumes.mounted:
        shown = _listed(state.volumes.mounted)
        ctx.reporter.decided(f"volumes were mounted in {duration.render(deps.monotonic() - began)}: {shown}")
    return True


def _listed(names: Collection[str]) -> str:
    more = len(names) - MOST_NAMES
    return ", ".join(islice(names, MOST_NAMES)) + (f" and {more} more" if more > 0 else "")


def _over_limit(error: MountsFailed) -> End:
    """Return the end of a pod that goes to another node for its volumes, with upstream's message."""
    unmounted = sorted({*(failed.volume for failed in error.failed), *error.over_limit})
    text = (
        f"unmounted volumes=[{' '.join(unmounted)}], unattached volumes=[{' '.join(error.over_limit)}], "
        "failed to process volumes=[]: context deadline exceeded"
    )
    return rejection(LIMIT_REACHED, f"Node has reached its volume attachment limit, rejecting pod. {text}")
