"""API server for benchmarks: a separate process that imports all modules of a cluster's server before it starts.

    python -m bench.server DIRECTORY PORT [ETCD]

The process ID is written to the file `pid` in the directory.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

from control.config import ControlConfig

SERVER = (sys.executable, "-m", "wherry.allocator", "bench.server")
"""The server's command line, with the allocator that the control plane is started with."""


def configuration(directory: Path, port: int, etcd: str = "") -> ControlConfig:
    keys, policy = directory / "pki", directory / "audit.yaml"
    return ControlConfig(
        data_dir=directory / "data",
        cert_file=keys / "apiserver.crt",
        key_file=keys / "apiserver.key",
        client_ca_file=keys / "ca.crt",
        ca_key_file=keys / "ca.key",
        service_account_key_file=keys / "sa.key",
        bind_address="127.0.0.1",
        port=port,
        store="etcd" if etcd else "sqlite",
        etcd_servers=(etcd,) if etcd else (),
        audit_policy_file=policy if policy.exists() else None,
    )


def serve(directory: Path, port: int, etcd: str = "") -> None:
    """Be the server."""
    import uvloop

    from control.main import run

    (directory / "pid").write_text(str(os.getpid()))
    uvloop.run(run(configuration(directory, port, etcd), ready=gc.collect))


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
