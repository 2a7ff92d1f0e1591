"""Handlers of gRPC's C core for forks, which daemons disable: a child of theirs only replaces itself with a program.

The handlers stop gRPC's threads before each fork. They cannot while another thread is in a call, and write a line to stderr
then, past the log's format. uvloop forks for every command that a daemon runs. The variable is read when grpc is imported.
"""

from __future__ import annotations

import os

VARIABLE = "GRPC_ENABLE_FORK_SUPPORT"


def disable() -> None:
    """Disable the handlers in this process, unless its environment says otherwise; grpc is not imported yet."""
    os.environ.setdefault(VARIABLE, "0")
