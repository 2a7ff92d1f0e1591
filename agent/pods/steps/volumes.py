"""Sets up a pod's volumes: before its first container, and again when a token expires or a ConfigMap or Secret changes.

No container starts without its volumes; containers that run keep what they have where a refresh of their volumes fails.
"""

from __future__ import annotations

from agent.lifecycle import End, rejection
from agent.pods.context import PodContext, reject
from agent.pods.references import ReferencesError
from agent.pods.state import VOLUMES
from agent.volumes.manager import MountsFailed
from agent.volumes.pod_volumes import FolderError
from kube.events import WARNING

LIMIT_REACHED = "VolumeAttachmentLimitExceeded"


async def set_up_volumes(ctx: PodContext) -> bool:
    """Set the volumes up, or refresh their contents when it is time; True if all are mounted."""
    state, deps = ctx.state, ctx.deps
    now = deps.monotonic()
    if state.volumes.mounted is not None and (state.volumes.refresh_at is None or state.volumes.refresh_at > now):
        return True
    if state.volumes.mounted is None and state.step_back_off.waits(VOLUMES):
        return False
    pod, asked = state.pod, state.volumes.refresh_at
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
        for failed in error.failed if isinstance(error, MountsFailed) else (error,):
            ctx.reporter.event(WARNING, "FailedMount", str(failed))
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
    return True


def _over_limit(error: MountsFailed) -> End:
    """Return the end of a pod that goes to another node for its volumes, with upstream's message."""
    unmounted = sorted({*(failed.volume for failed in error.failed), *error.over_limit})
    text = (
        f"unmounted volumes=[{' '.join(unmounted)}], unattached volumes=[{' '.join(error.over_limit)}], "
        "failed to process volumes=[]: context deadline exceeded"
    )
    return rejection(LIMIT_REACHED, f"Node has reached its volume attachment limit, rejecting pod. {text}")
