"""The storage that the settings name, as the command uses it beside the servers."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from control.storage.store import StoreError, Unavailable
from wherry import os_errors
from wherry.control_settings import control_config
from wherry.errors import WherryError
from wherry.settings import Settings

if TYPE_CHECKING:
    from control.storage.etcd.store import EtcdStore


@contextlib.asynccontextmanager
async def opened_etcd(settings: Settings) -> AsyncIterator[EtcdStore]:
    """Open the etcd of the settings for a while; raises StoreError, WherryError if it does not answer."""
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it is read at the import; the error is raised in any case
    from control.storage.etcd.cluster import Tls
    from control.storage.etcd.store import EtcdStore

    config = control_config(settings)
    tls = Tls(config.etcd_ca_file, config.etcd_cert_file, config.etcd_key_file)
    try:
        store = await EtcdStore.open(config.etcd_servers, tls, config.etcd_prefix)
    except Unavailable as error:
        servers = ", ".join(config.etcd_servers)
        raise WherryError(f"{error}: check that etcd runs, and --etcd-servers {servers}") from error
    try:
        yield store
    finally:
        await store.close()


@contextlib.contextmanager
def wherry_errors() -> Iterator[None]:
    """Raise storage errors as the command's own, in one sentence."""
    try:
        yield
    except OSError as error:
        raise WherryError(os_errors.sentence(error)) from error
    except (StoreError, sqlite3.Error) as error:
        raise WherryError(os_errors.text(error)) from error


async def reach(settings: Settings) -> None:
    """Make sure that etcd answers, before anything is started that needs it; raises WherryError."""
    with wherry_errors():
        async with opened_etcd(settings):
            pass
