"""The state of one pod on this node: data that the pod's steps and its worker share, in named parts.

It can be rebuilt at any time: containers, restart counts and hashes are in the runtime's labels, the rest is in the API.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.backoff import BackOff
from agent.lifecycle import End, resize
from agent.lifecycle.resize import Actuated, PendingResize
from agent.pods.crash_loop import CrashLoopBackOff
from agent.pods.pod_requests import PodRequests
from agent.runtime_records import PodRuntime
from agent.status.container import Waiting
from agent.status.phase import ENDED_PHASES
from agent.volumes.mounted_volume import MountedVolume
from cri.messages import PodSandboxConfig
from kube import duration
from kube.api import core_v1
from kube.clock import Clock

SANDBOX, VOLUMES, RESIZE, ALLOCATION = "", "/volumes", "/resize", "/allocation"
"""Names of steps that fail, beside those of containers."""


class StepBackOff:
    """The back-off of steps that failed, by container name, SANDBOX, VOLUMES, RESIZE or ALLOCATION."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._delays = BackOff(1.0, 60.0)
        self.retry_at: dict[str, float] = {}
        """Time of the next try of each step, by the monotonic clock."""

    def failed(self, step: str) -> str:
        """Count a failure; return the time to its retry, as text."""
        now = self._clock.monotonic()
        delay = self._delays.next(step, now)
        self.retry_at[step] = now + delay
        return f"next attempt in {duration.render(delay)}"

    def succeeded(self, step: str) -> None:
        """Forget a step's failures."""
        self.retry_at.pop(step, None)
        self._delays.reset(step)

    def waits(self, step: str) -> bool:
        """Return whether it is too early to try the step again."""
        return self.retry_at.get(step, 0.0) > self._clock.monotonic()


@dataclass(slots=True)
class VolumeState:
    """The pod's volumes and the age of their contents."""

    mounted: dict[str, MountedVolume] | None = None
    refresh_at: float | None = None
    """Monotonic time of the next refresh: a token expires, or contents changed (0.0: now)."""
    config_generation: int = 0
    """Number of changes of the ConfigMaps and Secrets that the pod names."""

    def refresh_by(self, at: float) -> None:
        """Refresh the contents at that monotonic time, unless that has been requested for an earlier one."""
        self.refresh_at = at if self.refresh_at is None else min(at, self.refresh_at)


@dataclass(slots=True)
class ResizeState:
    """The pod's sizes: allocated by the node, and actuated in the runtime and in the pod's cgroup (KEP-1287, KEP-5419)."""

    allocated: core_v1.Pod
    """The pod in the size that the node has allocated: the spec's, except while a resize is pending."""
    former: core_v1.Pod | None = None
    """The pod in the size that is on disk, while another one is being saved."""
    actuated: Actuated | None = None
    """The resources of running containers and of the pod's cgroup; None until the checkpoint has been read."""
    pending: PendingResize | None = None
    error: str = ""
    pod_unsettled: bool = False
    """The pod's cgroup has other limits than the allocated ones: a resize has begun and is not complete."""


@dataclass(slots=True)
class Termination:
    """Cause, grace period and progress of the pod's termination on this node."""

    cause: End | None = None
    rejection: End | None = None
    grace: int | None = None
    """The grace period in seconds that the termination's cause sets, if it is not the pod's own."""
    finished: bool = False
    """Nothing of the pod runs any more, and its resources on the node are released."""
    torn_down: bool = False
    """Volumes are unmounted and the pod's cgroup is removed."""
    removed: bool = False
    """Nothing of the pod is left."""


class PodState:
    """One pod as this node knows it."""

    def __init__(
        self,
        pod: core_v1.Pod,
        runtime: PodRuntime | None = None,
        *,
        static: bool,
        rejection: End | None,
        allocated: core_v1.Pod,
        clock: Clock,
        back_off_max: float,
    ) -> None:
        self.uid = pod.metadata.uid or ""
        self.pod = pod
        self.static = static
        """The pod's source is a manifest on this machine: the API shows a mirror pod, if anything.

        Set by the source alone, never read from the pod: an author of API pods may write any annotation.
        """
        self.mirror: core_v1.Pod | None = None
        self.in_source = True
        """False once the object is gone from its source, the API or the manifest."""
        self.runtime = runtime or PodRuntime()
        self.runtime_uncertain = False
        """A call to the runtime failed or was cancelled: it may have made something that is not in `runtime`."""
        self.sandbox_config: tuple[int, PodSandboxConfig] | None = None
        """The configuration of the sandbox of an attempt."""
        self.waiting: dict[str, Waiting] = {}
        """By container name: why it does not run."""
        self.preempted: dict[str, float] = {}
        """UIDs of pods that are preempted for this one, and until when it waits for their resources, by the monotonic clock."""
        self.network_problem = ""
        """The last reported reason why the pod's sandbox waits for a pod network."""
        self.resources_assigned = False
        """The container manager has assigned processors, memory and devices."""
        self.volumes = VolumeState()
        self.resize = ResizeState(allocated)
        self.termination = Termination(cause=rejection, rejection=rejection)
        self.step_back_off = StepBackOff(clock)
        self.crash_loop = CrashLoopBackOff(clock, back_off_max)
        self._requests: PodRequests | None = None

    @property
    def api_pod(self) -> core_v1.Pod | None:
        """The object that shows the pod in the API."""
        return self.mirror if self.static else self.pod

    @property
    def requests(self) -> PodRequests:
        """Resource requests of the pod on the node in its allocated size; in the larger one while that is being saved."""
        if self._requests is None or self._requests.pod is not self.resize.allocated:
            self._requests = PodRequests.of(self.resize.allocated)
        former = self.resize.former
        return self._requests if former is None else self._requests.covering(PodRequests.of(former))

    @property
    def cpu_request(self) -> int:
        """CPU request of the pod in its allocated size, in millicores."""
        return self.requests.requests.get("cpu", 0)

    @property
    def resizing(self) -> bool:
        """The pod or a container of it has another size than the allocated one, which is to be actuated."""
        size = self.resize
        if size.actuated is None:
            return False
        return size.pod_unsettled or resize.differs(size.allocated, self.runtime, size.actuated)

    @property
    def deleted(self) -> bool:
        """The pod is to vanish from this node, not only to end."""
        return not self.in_source or self.pod.metadata.deletion_timestamp is not None

    @property
    def terminating(self) -> bool:
        """The pod is to end, or has ended."""
        return self.termination.cause is not None or self.deleted or self.pod.status.phase in ENDED_PHASES

    @property
    def ip(self) -> str:
        """The address of the pod's sandbox, "" without one."""
        sandbox = self.runtime.sandbox
        return sandbox.ips[0] if sandbox and sandbox.ips else ""
