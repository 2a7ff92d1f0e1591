"""A reader's shell on a machine of the tests: types what a page says, with the paths of that machine.

Pages name paths below /etc, /var and /opt; here they are below the cluster's prefix. `wherry` is this checkout's. Programs that
would change the test's own machine or need the Internet have stand-ins: `apt-get` checks that the files exist that it would
install, `docker save` writes an archive of a small image. Placeholders of a page get values when their line is typed.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import images
from tests.support.cluster import GROUPS, Cluster, web_image
from tests.support.pages import Shell, Step, parse, take

ROOT = Path(__file__).resolve().parents[2]
_FOLDERS = "etc|var/lib|var/cache|mnt/backup|opt/wherry|usr/local|usr/share"
_PATHS = re.compile(rf"(?<![\w.:/$)-])/(?=(?:{_FOLDERS})(?:[/. ]|$))")
_WHERRY = """#!{python}
import os, sys
words = sys.argv[1:]
at = 2 if words[:1] and words[0] in {groups!r} else 1
os.execv(sys.executable, [sys.executable, "-m", "wherry.main", *words[:at], "--prefix", {prefix!r}, *words[at:]])
"""
_APT = """#!/bin/sh
for word; do case $word in ./*) test -f "$word" || { echo "there is no $word"; exit 1; };; esac; done
"""
_DOCKER = """#!/bin/sh
test "$1 $2" = "save -o" && cp {archive} "$3"
"""


@dataclass(frozen=True)
class Reading:
    """Settings for typing a page on one machine."""

    left_out: Mapping[str, str] = field(default_factory=dict)
    """Beginning of a line -> the test that runs it, or why none can."""
    values: Mapping[str, str | Callable[[Cluster], str]] = field(default_factory=dict)
    """Placeholder -> its value."""
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    varies: tuple[str, ...] = ()
    """Commands whose output on the page is an example."""


class Reader:
    """A shell with the programs and paths of a page."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster, self.folder, self._prefix = cluster, folder, str(cluster.prefix)
        programs = folder / "programs"
        for made in (programs, folder / "home/.kube", folder / "scripts"):
            made.mkdir(parents=True)
        archive = images.archive(folder / "nginx.tar", [nginx("docker.io/library/nginx:1.27")])
        wherry = _WHERRY.format(python=sys.executable, groups={*GROUPS, "config"}, prefix=self._prefix)
        stand_ins = {"sudo": '#!/bin/sh\nexec "$@"\n', "apt-get": _APT, "docker": _DOCKER.format(archive=archive)}
        for name, text in {"wherry": wherry, **stand_ins}.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        (folder / "home/.kube/config").write_text(cluster.kubeconfig.read_text())
        path = f"{programs}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        settings = {"PATH": path, "HOME": str(folder / "home"), "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
        self._settings = {**settings, "KUBECACHEDIR": f"{self._prefix}/kube-cache"}

    def shell(self, **settings: str) -> Shell:
        """Return a new shell of the reader's."""
        return Shell(self._cluster.host, self.folder, **self._settings, **settings)

    def read(self, page: Path, reading: Reading) -> list[str]:
        """Type a page in a shell of its own; return the commands that were run."""
        shell = self.shell()
        try:
            return self._read(page, reading, shell)
        finally:
            shell.close()

    def _read(self, page: Path, reading: Reading, shell: Shell) -> list[str]:
        done: list[str] = []
        unused = {*reading.left_out, *reading.varies}
        for command in reading.before:
            self._take(Step(command), reading, shell)
        for step in parse(page.read_text()):
            if isinstance(step, tuple):
                (self.folder / step[0]).write_text(self._translated(step[1], reading))
                continue
            known = [start for start in (*reading.left_out, *reading.varies) if step.command.startswith(start)]
            unused -= set(known)
            if not any(start in reading.left_out for start in known):
                self._take(Step(step.command, [] if known else step.shows), reading, shell)
                done.append(step.command)
        assert not unused, f"{page.name} has no line that begins so: {sorted(unused)}"
        for command in reading.after:
            self._take(Step(command), reading, shell)
        return done

    def _take(self, step: Step, reading: Reading, shell: Shell) -> None:
        take(Step(self._translated(step.command, reading), step.shows), shell, slowly=True)

    def _translated(self, text: str, reading: Reading) -> str:
        for name, value in reading.values.items():
            if name in text:
                text = text.replace(name, value if isinstance(value, str) else value(self._cluster))
        text = text.replace("/opt/wherry.new/bin/wherry", "wherry")
        return _PATHS.sub(f"{self._prefix}/", text)


def nginx(name: str) -> images.Image:
    """Return a small image that serves on port 80, under nginx's name."""
    return web_image(name, "nginx")
