"""Commands whose output a bundle contains, on this machine."""

from __future__ import annotations

import os

import pytest

from wherry import support_bundle, support_lists


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
async def test_sysctls_that_only_root_may_read_are_left_out() -> None:
    found = await support_bundle._printed(support_lists.COMMANDS["sysctls"])
    assert "net.ipv4.tcp_rmem = " in found and "\nnet.ipv4.tcp_fastopen_key = " not in found
