"""`python -m netproxy.gateway`: started by the network role (netproxy/gateway_process.py), which it ends with."""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys

import uvloop

from kube.kubeconfig import KubeconfigError
from netproxy import logs, sysctl
from netproxy.gateway import main, privileges


async def _serve(arguments: argparse.Namespace) -> None:
    task = asyncio.current_task()
    assert task is not None
    for each in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(each, task.cancel)
    await main.run(arguments.kubeconfig, arguments.node_name)


def cli(argv: list[str] | None = None) -> int:
    """Run the command; 0 after an orderly end."""
    flags = argparse.ArgumentParser(prog="netproxy.gateway", description="HTTP gateway of a node")
    flags.add_argument("--kubeconfig", required=True)
    flags.add_argument("--node-name", required=True)
    flags.add_argument("--logging-format", default="text", choices=("text", "json"))
    flags.add_argument("--verbose", action="store_true")
    arguments = flags.parse_args(argv)
    logs.configure(arguments.logging_format, everything=arguments.verbose)
    sysctl.adjust_oom_score(0)
    privileges.drop()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_serve(arguments))
    except KubeconfigError as error:
        print(f"netproxy.gateway: {error}", file=sys.stderr)
        return 1
    except asyncio.CancelledError:
        pass
    return 0


if __name__ == "__main__":
    sys.exit(cli())
