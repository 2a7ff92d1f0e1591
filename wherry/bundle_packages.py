"""Installs the Debian packages of a bundle that a machine lacks, or has in an older version, without asking any network."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kube.process import CommandError, run
from wherry.errors import WherryError

SECONDS = 900.0
APT = ("apt-get", "install", "--yes", "--no-install-recommends", "--option", "Dpkg::Use-Pty=0")
# Without sources there is nothing to download, and a missing dependency is an error (--no-download refuses files, too).
NO_SOURCES = ("--option", "Dir::Etc::SourceList=/dev/null", "--option", "Dir::Etc::SourceParts=/dev/null")
# An administrator's configuration file stays as it is: nobody is there to be asked.
KEEP = ("--option", "Dpkg::Options::=--force-confdef", "--option", "Dpkg::Options::=--force-confold")


async def install(files: Sequence[Path]) -> list[str]:
    """Install what is missing or older, and return its names with versions; raises WherryError."""
    wanted = {}
    for file in files:
        name, version = await _field(file, "Package"), await _field(file, "Version")
        if not await _is_installed(name, version):
            wanted[f"{name} {version}"] = file
    if wanted:
        environment = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C.UTF-8"}
        try:
            await run([*APT, *NO_SOURCES, *KEEP, *map(str, wanted.values())], timeout=SECONDS, env=environment)
        except CommandError as error:
            raise WherryError(f"the packages cannot be installed: {error}") from error
    return list(wanted)


async def _field(file: Path, name: str) -> str:
    try:
        return (await run(["dpkg-deb", "--field", str(file), name])).stdout.strip()
    except CommandError as error:
        raise WherryError(f"{file.name} is no Debian package: {error}") from error


async def _is_installed(name: str, version: str) -> bool:
    """Return whether a package is installed in this version or a newer one."""
    shown = await run(["dpkg-query", "--show", "--showformat=${db:Status-Status} ${Version}\n", name], check=False)
    present = [line.split()[1] for line in shown.stdout.splitlines() if line.startswith("installed ")]
    for each in present:
        if (await run(["dpkg", "--compare-versions", each, "ge", version], check=False)).returncode == 0:
            return True
    return False
