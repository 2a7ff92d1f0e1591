"""Accounts whose ~/.kube/config may hold this cluster's context: the caller's, root's, and those that `wherry up` set up.

`wherry certs renew` and `wherry reset` may be called by another account than `wherry up` was, also by a timer. The names are in
a file of root's, one a line: homes of other accounts are not searched, because one of them may be in a network that is away.
"""

from __future__ import annotations

import contextlib
import pwd
from collections.abc import Iterator
from pathlib import Path

from kube.files import write_file
from wherry import home_files
from wherry.settings import Settings

MOST = 100
"""Accounts that are recorded at most."""
ROOT = "root"


def all_of(settings: Settings) -> Iterator[tuple[Path, pwd.struct_passwd]]:
    """Yield the default kubeconfig paths and accounts, the caller's first; accounts that no longer exist are left out."""
    seen = set()
    for found in (home_files.user_kubeconfig(), *map(home_files.kubeconfig_of, (ROOT, *_recorded(settings)))):
        if found is not None and found[0] not in seen:
            seen.add(found[0])
            yield found


def record(settings: Settings, user: pwd.struct_passwd) -> None:
    """Record an account that was given the context; the oldest are dropped above the limit."""
    names = _recorded(settings)
    if user.pw_name not in names:
        text = "".join(f"{name}\n" for name in [*names, user.pw_name][-MOST:])
        write_file(settings.layout.kubeconfig_holders, text.encode(), 0o600)


def _recorded(settings: Settings) -> list[str]:
    with contextlib.suppress(FileNotFoundError, UnicodeDecodeError):
        return settings.layout.kubeconfig_holders.read_text().split()[-MOST:]
    return []
