"""The agent's rule against packets from other devices to loopback addresses is verified, repaired and configured."""

from __future__ import annotations

import pytest

from agent import configure
from agent.flags import Flags
from agent.kubelet_configuration import parse
from agent.node import loopback_guard
from agent.node.loopback_guard import LoopbackGuard
from kube.process import CommandError, Result

LISTED = """table inet wherry-localnet {
\tchain prerouting {
\t\ttype filter hook prerouting priority raw - 10; policy accept;
\t\tiifname != "lo" ip daddr 127.0.0.0/8 drop
\t}
}
"""


class Kernel:
    """Fake of the command nft, which fails with `problem`."""

    def __init__(self) -> None:
        self.listed, self.problem, self.written = "", "", 0

    async def run(self, argv: list[str], *, input: str = "", check: bool = True) -> Result:
        if self.problem:
            raise CommandError(argv, self.problem)
        if argv[1] == "list":
            return Result(0 if self.listed else 1, self.listed, "")
        assert argv == ["nft", "-f", "-"] and 'iifname != "lo" ip daddr 127.0.0.0/8 drop' in input
        self.written += 1
        self.listed = LISTED
        return Result(0, "", "")


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    made = Kernel()
    monkeypatch.setattr(loopback_guard, "run", made.run)
    return made


async def test_the_table_is_written_once_and_again_after_others_changed_it(kernel: Kernel) -> None:
    guard = LoopbackGuard()
    assert await guard.verify() and await guard.verify() and kernel.written == 1
    kernel.listed = LISTED.replace("drop", "accept")
    assert await guard.verify() and kernel.written == 2
    kernel.listed = ""
    assert await guard.verify() and kernel.written == 3


async def test_a_failure_is_logged_once(kernel: Kernel, caplog: pytest.LogCaptureFixture) -> None:
    guard = LoopbackGuard()
    kernel.problem = "No such file or directory"
    assert not await guard.verify() and not await guard.verify()
    assert caplog.text.count("pods can reach servers on the node's loopback addresses") == 1
    kernel.problem = ""
    assert await guard.verify()


@pytest.mark.parametrize(("line", "guarded"), [("", True), ("makeIPTablesUtilChains: false", False)])
def test_the_configuration_decides(line: str, guarded: bool) -> None:
    file, without_effect = parse(f"apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n{line}\n")
    assert configure.build(file, Flags()).loopback_guard is guarded and not without_effect
