"""Chain of admission plugins that a request passes through (plugins.py has the plugins and their order).

All plugins' `admit` first (once more where a webhook changed the object), then, after defaults and validation, all plugins'
`validate`. The order counts: what LimitRanger sets is what ResourceQuota counts, and quota comes last because nothing may
fail after it was charged. A dry run goes the same way; only a plugin that writes elsewhere (ResourceQuota) asks
`attributes.dry_run`.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence

from control.admission.metrics import PLUGIN_SECONDS, STEP_SECONDS
from control.interfaces.admission import Attributes, Plugin
from kube.errors import StatusError

_Part = tuple[Plugin, Callable[[Attributes], Awaitable[None]]]
"""A plugin with its method of a phase."""


class Chain:
    """An ordered list of plugins."""

    def __init__(self, plugins: Sequence[Plugin] = ()) -> None:
        self.install(plugins)

    def install(self, plugins: Sequence[Plugin]) -> None:
        """Take these plugins from now on. They look in the registry, which writes through this chain: it is there first."""
        self.plugins = tuple(plugins)
        self._parts = {phase: _ByTarget(_parts(self.plugins, phase)) for phase in ("admit", "validate")}

    async def admit(self, attributes: Attributes) -> None:
        """Let each plugin change the object or refuse it (StatusError); again where a webhook changed it."""
        for _ in range(2):
            await self._step("admit", attributes)
            if not attributes.reinvocation.wanted:
                return
            attributes.reinvocation.second = True

    async def validate(self, attributes: Attributes) -> None:
        """Let each plugin refuse the object as it is going to be stored."""
        await self._step("validate", attributes)

    async def close(self) -> None:
        """Release the connections that plugins hold."""
        for plugin in self.plugins:
            await plugin.close()

    async def _step(self, phase: str, attributes: Attributes) -> None:
        operation, rejected = attributes.operation, "true"
        begun = before = time.perf_counter()
        try:
            parts = self._parts[phase]
            for plugin, work in parts.by_target.get(attributes.resource.target, parts.others):
                if plugin.handles(attributes):
                    done = False
                    try:
                        await work(attributes)
                        done = True
                    except StatusError as error:
                        error.refused_by = error.refused_by or plugin.name
                        raise
                    finally:
                        now = time.perf_counter()
                        PLUGIN_SECONDS.observe(plugin.name, operation, "false" if done else "true", phase, now - before)
                        before = now
            rejected = "false"
        finally:
            STEP_SECONDS.observe(operation, rejected, phase, time.perf_counter() - begun)


class _ByTarget:
    """The plugins of a phase, in order, by the resources that some of them name: of thirty, few concern any one resource."""

    def __init__(self, parts: Sequence[_Part]) -> None:
        named = {target for plugin, _ in parts for target in plugin.targets or ()}
        self.by_target = {target: [part for part in parts if _concerns(part[0], target)] for target in named}
        self.others = [part for part in parts if part[0].targets is None]
        """Those for a resource that none of them names."""


def _concerns(plugin: Plugin, target: str) -> bool:
    return plugin.targets is None or target in plugin.targets


def _parts(plugins: Sequence[Plugin], phase: str) -> list[_Part]:
    """Return the plugins that implement a phase, with its method; others are neither called nor measured."""
    doing = [plugin for plugin in plugins if getattr(type(plugin), phase) is not getattr(Plugin, phase)]
    return [(plugin, plugin.admit if phase == "admit" else plugin.validate) for plugin in doing]
