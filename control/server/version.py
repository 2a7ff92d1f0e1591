"""Version of this build, as /version and the metric kubernetes_build_info show it."""

from __future__ import annotations

import platform
import sys

from kube.build import ARCHITECTURE, GIT_VERSION, MAJOR, MINOR, build


def version() -> dict[str, str]:
    """Return the version for clients: that of the API served."""
    built = build()
    return {
        "major": MAJOR,
        "minor": MINOR,
        "emulationMajor": MAJOR,
        "emulationMinor": MINOR,
        "minCompatibilityMajor": MAJOR,
        "minCompatibilityMinor": str(int(MINOR) - 1),
        "gitVersion": GIT_VERSION,
        "gitCommit": built.commit,
        "gitTreeState": built.tree_state,
        "buildDate": built.date,
        "goVersion": f"python{sys.version_info.major}.{sys.version_info.minor}",
        "compiler": platform.python_implementation().lower(),
        "platform": f"linux/{ARCHITECTURE}",
    }
