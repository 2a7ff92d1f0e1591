"""kubectl plugins, as krew installs them: programs named kubectl-NAME on PATH, through `wherry kubectl`."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

from kube.process import Result, run
from tests.support.control import ApiUnderTest, api_server

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]
SHELL = """#!/bin/sh
echo "arguments: $*"
kubectl get configmaps -o name
"""
PYTHON = """#!{python}
import sys
from kubernetes import client, config
config.load_kube_config()
print(sys.argv[1:], [m.metadata.name for m in client.CoreV1Api().list_namespaced_config_map("default").items])
sys.exit(3)
"""


async def wherry_kubectl(folder: Path, *arguments: str) -> Result:
    """Run `wherry kubectl` on an installation below `folder`, with the plugins of `folder`/bin."""
    env = {**os.environ, "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "HOME": str(folder)}
    env.pop("KUBECONFIG", None)
    argv = [sys.executable, "-m", "wherry.main", "kubectl", "--prefix", str(folder), *arguments]
    return await run(argv, check=False, env=env, timeout=60)


async def install(server: ApiUnderTest, folder: Path) -> None:
    admin = folder / "etc/wherry/admin.kubeconfig"
    admin.parent.mkdir(parents=True)
    shutil.copy(server.kubeconfig(), admin)
    for name, text in (("kubectl-show_all", SHELL), ("kubectl-show-maps", PYTHON.format(python=sys.executable))):
        program = folder / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)


async def test_plugins_run_as_the_clusters_administrator(tmp_path: Path) -> None:
    async with api_server(tmp_path) as server:
        await install(server, tmp_path)
        await server.kubectl("create", "configmap", "one")
        listed = await wherry_kubectl(tmp_path, "plugin", "list")
        assert "kubectl-show_all" in listed.stdout and "kubectl-show-maps" in listed.stdout, listed.stderr
        shell = await wherry_kubectl(tmp_path, "show-all", "a", "--flag", "-n", "x")
        assert shell.stdout == "arguments: a --flag -n x\nconfigmap/one\n", shell.stderr
        python = await wherry_kubectl(tmp_path, "show", "maps", "b")
        assert (python.returncode, python.stdout) == (3, "['b'] ['one']\n"), python.stderr
        missing = await wherry_kubectl(tmp_path, "nothing")
        assert missing.returncode == 1 and 'unknown command "nothing" for "kubectl"' in missing.stderr
