"""Starts a module with jemalloc as the process's memory allocator, where the machine has it.

    python -P -m wherry.allocator MODULE [ARGUMENT...]

The control plane is started so. A block in use keeps the arena of a MiB around it in Python's own allocator, so that most
of what a load took stays with the process for good; jemalloc gives every page back in which nothing is in use. The library
has to be there when a process begins, so this one replaces itself once. The variables that mark it are removed then:
programs that the module starts use what they always use. Where LD_PRELOAD, PYTHONMALLOC or MALLOC_CONF is set already, it
stays as it is, and nothing is done.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
from pathlib import Path

PACKAGE, LIBRARY = "libjemalloc2", "libjemalloc.so.2"
FOLDERS = (f"/usr/lib/{getattr(sys.implementation, '_multiarch', '')}", "/usr/lib64", "/usr/lib")
"""Debian's folder for this architecture, and those of other distributions."""
SETTINGS = {"PYTHONMALLOC": "malloc", "MALLOC_CONF": "narenas:1,thp:never"}
"""One arena, since one thread at a time has the interpreter's lock; and no huge pages, of which a block in use keeps 2 MiB.
Blocks kept ready for each thread have the sizes of jemalloc's default (32 KiB): with fewer a create takes a fifth more time."""


def library() -> Path | None:
    """Return the library's file, None if it is not installed."""
    return next((path for path in (Path(folder, LIBRARY) for folder in FOLDERS) if path.is_file()), None)


def variables() -> dict[str, str]:
    """Return the environment with which a process begins that has jemalloc; empty where the library is not installed."""
    found = library()
    return {} if found is None else {"LD_PRELOAD": str(found), **SETTINGS}


def adopt() -> None:
    """Begin this process again with jemalloc; return where it has it already, or is not to have it."""
    wanted = variables()
    if wanted and LIBRARY not in Path("/proc/self/maps").read_text() and not wanted.keys() & os.environ.keys():
        with contextlib.suppress(OSError):
            argv = [sys.executable, *sys.orig_argv[1:]]
            os.execve(sys.executable, argv, os.environ | wanted)  # noqa: S606 - there is no shell
    if wanted.items() <= os.environ.items():
        for name in wanted:
            del os.environ[name]


def main() -> None:
    """Run a module as `python -m` does."""
    adopt()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
