"""The state of a whole cluster for tests, as a file has it.

It contains all objects (with Secrets), the keys of the cluster's authorities and of its service account tokens, the simulated
nodes with their pods, and the scripts. With the keys, tokens and certificates that objects or files contain stay valid.
Functions are not saved: handlers of commands and ports are added again, and a script with a function is an error.
"""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Literal

import msgspec

from control.storage.memory import MemoryStore
from kube import serialize
from kube.api import core_v1
from kube.files import write_file
from wherry.testing.errors import ClusterError
from wherry.testing.nodes.nodes import SimulatedNodes
from wherry.testing.nodes.saved_node import SavedNode
from wherry.testing.nodes.saved_pod import SavedPod
from wherry.testing.nodes.saved_steps import SavedScript
from wherry.testing.nodes.scripts import Scripts
from wherry.testing.saving import file_format
from wherry.testing.saving.objects import SavedObject

PODS = "/registry/pods/"
_KEY = re.compile(r"[a-z][a-z-]{0,62}\.(?:crt|key|pub)")
"""A file of kube/pki_layout.py."""


class ClusterState(msgspec.Struct):
    """The contents of a file."""

    now: datetime
    time: Literal["real", "virtual"]
    revision: int
    keys: dict[str, str]
    """Files of certificates and keys, by name."""
    nodes: list[SavedNode]
    scripts: list[SavedScript]
    pods: list[SavedPod]
    objects: list[SavedObject]

    def write_keys(self, folder: Path) -> None:
        """Write the certificates and keys to a new folder."""
        for name, text in self.keys.items():
            write_file(folder / name, text.encode(), file_format.MODE)

    def load_objects(self, store: MemoryStore) -> None:
        """Give an empty store the objects, with their revisions."""
        lifetimes = {each.key: each.ttl for each in self.objects if each.ttl}
        store.load([each.item() for each in self.objects], self.revision, lifetimes)

    async def load_nodes(self, nodes: SimulatedNodes, scripts: Scripts) -> None:
        """Run the nodes with their pods."""
        scripts.restore([each.script() for each in self.scripts])
        items = (each.item() for each in self.objects if each.key.startswith(PODS))
        pods = [serialize.decode(item.value, core_v1.Pod) for item in items]
        await nodes.load(self.nodes, pods, {each.key: each for each in self.pods})


def write(path: Path, state: ClusterState) -> None:
    """Write a file with mode 0600. Raise ClusterError."""
    file_format.write(path, "cluster", state)


def read(path: Path) -> ClusterState:
    """Return the state in a file. Raise ClusterError."""
    state = file_format.read(path, "cluster", ClusterState)
    wrong = next((name for name in state.keys if not _KEY.fullmatch(name)), None)
    if wrong is not None:
        raise ClusterError(f"{path} is damaged: there is no key or certificate with the name {wrong[:64]!r}")
    return state
