"""The present state of a cluster, for a file."""

from __future__ import annotations

from typing import Literal

from wherry.testing.engine import Engine
from wherry.testing.nodes.saved_steps import saved_script
from wherry.testing.saving.cluster_state import ClusterState
from wherry.testing.saving.objects import saved


def present_state(engine: Engine, time: Literal["real", "virtual"]) -> ClusterState:
    """Return the present state of a cluster. Raise ClusterError if a script has a function."""
    items, revision, lifetimes = engine.store.state()
    folder = engine.keys.directory
    return ClusterState(
        engine.api.clock.now(),
        time,
        revision,
        {path.name: path.read_text() for path in sorted(folder.iterdir()) if path.is_file()},
        engine.nodes.saved(),
        [saved_script(script) for script in engine.scripts.saved()],
        engine.nodes.pods.saved(),
        saved(items, lifetimes),
    )
