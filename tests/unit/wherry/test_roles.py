"""Errors that a role's configuration causes: one sentence in the log instead of a traceback."""

from __future__ import annotations

from pathlib import Path

import pytest

from kube.tracing.configuration import TracingError
from wherry import roles
from wherry.errors import WherryError
from wherry.settings import Settings


async def test_an_error_of_the_configuration_is_explained_and_others_are_not() -> None:
    async def fail(error: Exception) -> None:
        raise error

    with pytest.raises(WherryError, match="tracing is configured, and its packages are not installed"):
        await roles._explained(
            fail(TracingError("tracing is configured, and its packages are not installed")), TracingError
        )
    with pytest.raises(KeyError):
        await roles._explained(fail(KeyError("a bug")), TracingError)


def test_an_invalid_file_of_the_agent_is_explained(tmp_path: Path) -> None:
    settings = Settings(prefix=str(tmp_path), node_name="n1")
    file = settings.layout.kubelet_configuration
    file.parent.mkdir(parents=True)
    head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
    file.write_text(head + "tracing: {samplingRatePerMillion: -1}\n")
    with pytest.raises(WherryError, match=r"tracing\.samplingRatePerMillion: Invalid value: -1"):
        roles.agent(settings)
