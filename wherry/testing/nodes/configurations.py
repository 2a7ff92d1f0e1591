"""The configuration of a simulated pod's containers: a container starts when its environment can be computed."""

from __future__ import annotations

import msgspec

from agent.backoff import BackOff
from agent.podspec.environment import ContainerConfigError, EnvironmentSources, References, environment
from agent.status.container import Waiting
from kube.api import core_v1
from wherry.testing.nodes.container import AnyContainer
from wherry.testing.nodes.stepped import Happened

BACK_OFF = (1.0, 60.0)
"""Seconds between attempts, as of the agent."""
REASON = "CreateContainerConfigError"


class Configurations:
    """The containers of one pod, by their names. Times are seconds since the epoch."""

    def __init__(self, references: References) -> None:
        self._references = references
        self._back_off = BackOff(*BACK_OFF)
        self.waiting: dict[str, Waiting] = {}
        """Reasons of the containers that have no configuration."""
        self.retry_at: dict[str, float] = {}
        """Times of their next attempts."""

    def retry(self) -> None:
        """Try again now: an object has changed."""
        self.retry_at.clear()

    def check(self, pod: core_v1.Pod, container: AnyContainer, now: float) -> Happened | None:
        """Compute a container's environment; return the event of a failure."""
        name = container.name
        try:
            if container.env or container.env_from:
                environment(pod, _without_files(container), EnvironmentSources(self._references, {}))
        except ContainerConfigError as error:
            self.waiting[name] = Waiting(REASON, str(error))
            self.retry_at[name] = now + self._back_off.next(name, now)
            return Happened("Warning", "Failed", f"Error: {error}", name)
        self.waiting.pop(name, None)
        self.retry_at.pop(name, None)
        self._back_off.reset(name)
        return None


def _without_files(container: AnyContainer) -> AnyContainer:
    """Return a container without variables of files: volumes have none here."""
    env = [each for each in container.env if each.value_from is None or each.value_from.file_key_ref is None]
    return container if len(env) == len(container.env) else msgspec.structs.replace(container, env=env)
