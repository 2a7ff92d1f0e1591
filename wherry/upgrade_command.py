"""The command `wherry upgrade --check`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import typer

from wherry import addresses, config_file, options, output, wanted
from wherry.command_options import options_of
from wherry.errors import UsageError, WherryError
from wherry.membership import installed, join, root
from wherry.option_checks import complete
from wherry.settings import Settings
from wherry.up_command import up


def upgrade(
    prefix: options.Prefix = "/",
    format: options.Output = "table",
    *,
    check: Annotated[bool, typer.Option("--check", help="Check, and change nothing. Required.")] = False,
    to: Annotated[
        str,
        typer.Option("--to", help="Version to upgrade to. Default: the version of this program.", show_default=False),
    ] = "",
) -> None:
    """Check that this machine and its cluster can be upgraded.

    Ends with status 1 if something must be repaired before.
    """
    from kube.build import GIT_VERSION
    from kube.clock import SYSTEM
    from wherry import upgrade_check, upgrade_facts

    output.check(format)
    if not check:
        raise UsageError("`wherry upgrade --check` checks; to upgrade, install the new version and run `wherry up`")
    target = upgrade_check.require_version(to) if to else GIT_VERSION
    root()
    settings = installed(prefix)
    own = upgrade_check.minor(target) == upgrade_check.minor(GIT_VERSION)
    facts = asyncio.run(upgrade_facts.collect(settings, target, SYSTEM.now(), own=own))
    found = list(upgrade_check.rows(facts, config_problems(settings)))
    if format in ("json", "yaml"):
        print(output.dumped([upgrade_check.as_data(row) for row in found], format), end="")
    else:
        print("\n".join(upgrade_check.lines(found)))
    if any(row.result == upgrade_check.ERROR for row in found):
        raise typer.Exit(1)


def config_problems(settings: Settings) -> list[str]:
    """Return what `wherry up` of this program would refuse in the configuration file, and in the saved options."""
    known = options_of(up)
    try:
        file = config_file.read(settings.layout.config, options_of(join) | known)
        merged = wanted.merge(settings, file, {}, known)
        with file.located():
            complete(merged, merged.node_ip or addresses.own_address())
    except WherryError as error:
        return str(error).splitlines()
    return []
