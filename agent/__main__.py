"""The agent as a program of its own, with upstream's command line: python -m agent --kubeconfig=... --config=...

For nodes whose service manager was set up for a kubelet. Upstream's flags that the agent supports are accepted; any other flag
is an error, not something to be ignored.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from dataclasses import fields

import uvloop

from agent.config import AgentConfig
from agent.configure import from_flags
from agent.flags import Flags
from agent.kubelet_configuration import ConfigError
from agent.node.status import KUBELET_VERSION
from kube import grpc_fork_handlers, interned_strings, log_lines
from kube.json_logs import DEBUG_VERBOSITY, JsonFormatter
from kube.kubeconfig import KubeconfigError

_HELP = {
    "config": "the KubeletConfiguration file",
    "config_dir": "a folder of *.conf files, each laid over that file in the order of their names",
    "kubeconfig": "how to reach the API server, and as whom",
    "bootstrap_kubeconfig": "used to ask for a certificate while there is no kubeconfig",
    "root_dir": "the agent's state: volumes, certificates",
    "cert_dir": "requested certificates",
    "hostname_override": "the node's name",
    "node_ip": "the node's addresses, separated by commas",
    "node_labels": "labels to register with: key=value,...",
    "register_with_taints": "taints to register with: key=value:effect,...",
    "container_logs_dir": "links to containers' logs",
    "image_credential_provider_config": "plugins that provide credentials, by image",
    "image_credential_provider_bin_dir": "where the plugins' programs are",
    "logging_format": "text or json; over the file's logging.format",
}


def parse(arguments: list[str]) -> tuple[Flags, int]:
    """Read the command line; return the flags and the verbosity."""
    parser = argparse.ArgumentParser(prog="agent", description="Run the pods of this node.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=f"Kubernetes {KUBELET_VERSION}")
    parser.add_argument("-v", "--v", dest="verbosity", type=int, default=2, help="4 and more is for debugging")
    for item in fields(Flags):
        parser.add_argument(f"--{item.name.replace('_', '-')}", default=item.default, help=_HELP[item.name])
    found = vars(parser.parse_args(arguments))
    verbosity: int = found.pop("verbosity")
    return Flags(**found), verbosity


async def run(config: AgentConfig) -> None:
    """Run the agent, whose modules import grpc."""
    from agent import main as agent

    await agent.run(config)


def main() -> None:
    grpc_fork_handlers.disable()
    flags, verbosity = parse(sys.argv[1:])
    handler = log_lines.handler()
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    try:
        config = from_flags(flags)
        if (flags.logging_format or config.file.logging.format) == "json":
            handler.setFormatter(JsonFormatter())
        if max(verbosity, config.file.logging.verbosity) >= DEBUG_VERBOSITY:
            logging.getLogger().setLevel(logging.DEBUG)
        interned_strings.warn(logging.getLogger("agent"))
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(run(config))
    except (ConfigError, KubeconfigError) as error:
        logging.getLogger("agent").error("%s", error)
        sys.exit(1)


if __name__ == "__main__":
    main()
