"""Scripts of containers: the behaviour of each start, and how pods are matched with them."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from wherry.testing.errors import ClusterError


class Run(msgspec.Struct, frozen=True):
    """A container that runs until it is stopped, or for `seconds`. Times are seconds after its start.

    ready: the outcome of its readiness probe, from `ready_after` on. unhealthy_after: its liveness probe fails from then on, if
    it has one. stop_seconds: time from SIGTERM to its end; beyond the grace period it is killed with exit code 137.
    """

    ready: bool = True
    ready_after: float = 0.0
    unhealthy_after: float | None = None
    seconds: float | None = None
    exit_code: int = 0
    stop_seconds: float = 0.0
    stop_code: int = 0
    logs: str = ""


class Exit(msgspec.Struct, frozen=True):
    """A container that exits by itself, `after` so many seconds. reason: as a runtime gives it, for example OOMKilled."""

    code: int = 0
    after: float = 0.0
    reason: str = ""
    message: str = ""
    logs: str = ""


class Pull(msgspec.Struct, frozen=True):
    """The image is pulled for so many seconds; the next step of the script follows."""

    seconds: float


class PullError(msgspec.Struct, frozen=True):
    """The image cannot be pulled: the container does not start, and is retried later with the next step of the script."""

    message: str = "not found"
    reason: str = "ErrImagePull"


class Start(msgspec.Struct, frozen=True):
    """The start of a container, which a callable step is called with; `attempt` counts from 0."""

    namespace: str
    pod: str
    container: str
    image: str
    attempt: int
    command: tuple[str, ...] = ()
    labels: dict[str, str] = msgspec.field(default_factory=dict)


Outcome: TypeAlias = Run | Exit | Pull | PullError
Step: TypeAlias = Outcome | Callable[[Start], Outcome]


class Script(msgspec.Struct, frozen=True):
    """Steps for the successive starts of matching containers; the last one is repeated."""

    pod: str
    container: str
    steps: tuple[Step, ...]

    def matches(self, namespace: str, pod: str, container: str) -> bool:
        return matches(self.pod, namespace, pod) and fnmatch.fnmatchcase(container, self.container)


def matches(pattern: str, namespace: str, name: str) -> bool:
    """Return whether a pattern (`web-*`, `namespace/web-*`) is that of a pod."""
    return fnmatch.fnmatchcase(f"{namespace}/{name}" if "/" in pattern else name, pattern)


class Scripts:
    """The scripts of a cluster; of several that match a container the newest holds."""

    def __init__(self) -> None:
        self._scripts: list[Script] = []
        self._unused: list[Script] = []
        """Those that are to be used, and match no container that has started since they were added."""

    def add(self, pod: str, steps: Step | Sequence[Step], container: str = "*", *, optional: bool = False) -> None:
        """Add a script for pods by a pattern (`web-*`, `namespace/web-*`). Raise ClusterError if it is no script.

        `check_used` does not complain of one that is optional.
        """
        chosen = tuple(steps) if isinstance(steps, Sequence) else (steps,)
        if not chosen:
            raise ClusterError(f"the script for {pod!r} has no steps")
        for step in chosen:
            if not isinstance(step, Run | Exit | Pull | PullError) and not callable(step):
                raise ClusterError(
                    f"the script for {pod!r} has a step that is none: {step!r}; use Run, Exit, Pull, PullError"
                )
        if isinstance(chosen[-1], Pull):
            raise ClusterError(f"the script for {pod!r} ends with Pull: add what the container does after it")
        script = Script(pod, container, chosen)
        self._scripts.append(script)
        if not optional:
            self._unused.append(script)

    def find(self, namespace: str, pod: str, container: str) -> Script | None:
        """Return the script of a container that starts."""
        if self._unused:
            self._unused = [each for each in self._unused if not each.matches(namespace, pod, container)]
        for script in reversed(self._scripts):
            if script.matches(namespace, pod, container):
                return script
        return None

    def check_used(self) -> None:
        """Raise ClusterError if a script was added for containers of which none has started since."""
        if self._unused:
            names = ", ".join(
                repr(each.pod) + (f" (container {each.container})" if each.container != "*" else "")
                for each in self._unused
            )
            raise ClusterError(
                f"no container has started that a script is for: {names}; correct the pattern, add the script before the pod, "
                "or with optional=True"
            )

    def saved(self) -> list[Script]:
        """Return all scripts, for `restore`."""
        return list(self._scripts)

    def restore(self, saved: list[Script]) -> None:
        """Make the scripts those that `saved` returned."""
        self._scripts = list(saved)
        kept = set(map(id, saved))
        self._unused = [each for each in self._unused if id(each) in kept]
