"""A configuration that does not fit is answered with one sentence, whenever the agent finds that out."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest

from agent import main
from agent.config import ImageSettings
from agent.kubelet_configuration import ConfigError
from cri.fake import FakeRuntime
from tests.support.control import ApiUnderTest
from tests.support.node import agent_node

CONFIGURATION = """
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failSwapOn: false
evictionHard: {memory.available: some}
"""


async def test_a_threshold_that_is_no_quantity_is_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(CONFIGURATION)
    (tmp_path / "kubeconfig").write_text("")
    flags = (f"--config={tmp_path / 'config.yaml'}", f"--kubeconfig={tmp_path / 'kubeconfig'}")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "agent", *flags, cwd=Path(__file__).parents[3], stderr=asyncio.subprocess.PIPE
    )
    try:
        reported = (await process.communicate())[1].decode()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 1
    assert "evictionHard[memory.available]: 'some' is neither a quantity nor a percentage" in reported
    assert len(reported.splitlines()) == 1, reported


async def test_what_shows_only_when_the_parts_are_put_together_is_one_error_too(
    tmp_path: Path, runtime: FakeRuntime, api: ApiUnderTest
) -> None:
    provider = {
        "name": "nowhere",
        "matchImages": ["private.test"],
        "defaultCacheDuration": "1h",
        "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
    }
    config = {"apiVersion": "kubelet.config.k8s.io/v1", "kind": "CredentialProviderConfig", "providers": [provider]}
    (tmp_path / "providers.json").write_text(json.dumps(config))
    async with agent_node(
        tmp_path,
        runtime,
        api,
        start=False,
        images=ImageSettings(
            credential_providers=tmp_path / "providers.json",
            credential_provider_dir=tmp_path,
        ),
    ) as node:
        with pytest.raises(ConfigError, match=r"plugin binary executable .*/nowhere did not exist"):
            await main.run(node.config, clock=node.clock)
