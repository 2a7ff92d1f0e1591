"""Manifests of other projects, from folders that WHERRY_MANIFESTS names; docs/ecosystem.md has the results.

    WHERRY_MANIFESTS='flux=/tmp/flux/crds,/tmp/flux/rbac' pytest -m long -s tests/contract/test_manifests_of_projects.py

Projects are separated by spaces, the files, folders and kustomizations of one by commas.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests.support import manifests
from tests.support.control import api_server

PROJECTS = dict(each.split("=", 1) for each in os.environ.get("WHERRY_MANIFESTS", "").split())
pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(900),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]


@pytest.mark.skipif(not PROJECTS, reason="WHERRY_MANIFESTS names no folders")
@pytest.mark.parametrize("name", PROJECTS or ["none"])
async def test_manifests_are_applied_and_read_back(tmp_path: Path, name: str) -> None:
    async with api_server(tmp_path) as server:
        found = await manifests.apply(server, [Path(path) for path in PROJECTS[name].split(",")], namespace=name)
    print(f"\n{name}: {found.summary}")
    assert not found.differences, "\n".join(found.differences)
