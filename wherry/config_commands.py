"""`wherry config`: shows the options in force, and checks a configuration file without changing anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
import yaml

from wherry import addresses, config_file, identity, options, output, wanted
from wherry import settings as saved
from wherry.command_options import Option, options_of
from wherry.config_file import ConfigFile
from wherry.errors import WherryError
from wherry.layout import Layout
from wherry.membership import join
from wherry.settings import Settings, complete
from wherry.terminal import console
from wherry.up_command import up

config_app = typer.Typer(no_args_is_help=True, help="Show and check the options of this machine.")


@config_app.command("print")
def config_print(
    prefix: options.Prefix = "/",
    format: Annotated[
        str,
        typer.Option(
            "--output",
            "-o",
            help="Output format: yaml or json. Default: yaml.",
            show_default=False,
            autocompletion=options.values("yaml", "json"),
        ),
    ] = "yaml",
    *,
    defaults: Annotated[
        bool, typer.Option("--defaults", help="Also show the options that have their defaults.")
    ] = False,
) -> None:
    """Print the options that `wherry up` would use.

    These are the saved ones with those of /etc/wherry/config.yaml over them, in the form of that file.
    """
    if format not in ("yaml", "json"):
        raise WherryError(f"-o {format}: use yaml or json")
    before, file = _read(prefix, Layout(Path(prefix)).config)
    shown = _effective(before, file)
    usual = wanted.as_options(Settings(), options_of(up))
    found = {name: value for name, value in shown.items() if defaults or value != usual[name]}
    if format == "json":
        print(output.dumped(found, format), end="")
    else:
        print(yaml.safe_dump(found, sort_keys=False, width=1000), end="")


@config_app.command("validate")
def config_validate(
    file: Annotated[str, typer.Argument(help="The file. Default: /etc/wherry/config.yaml.", show_default=False)] = "",
    prefix: options.Prefix = "/",
) -> None:
    """Check a configuration file without changing anything.

    Shows everything that is wrong with its line, and ends with status 1 then.
    """
    path = Path(file) if file else Layout(Path(prefix)).config
    before, found = _read(prefix, path, must_exist=True)
    settings = wanted.merge(before, found, {}, options_of(up))
    with found.located():
        full = complete(settings, settings.node_ip or addresses.own_address() or "192.0.2.1")
        if before.layout.settings.exists():
            identity.check(before, full, identity.saved(before))
    console.print(f"{path} is valid", soft_wrap=True)


def _known() -> dict[str, Option]:
    return options_of(join) | options_of(up)


def _read(prefix: str, path: Path, *, must_exist: bool = False) -> tuple[Settings, ConfigFile]:
    found = config_file.read(path, _known(), must_exist=must_exist)
    return saved.load(prefix) or Settings(prefix=prefix), found


def _effective(before: Settings, file: ConfigFile) -> dict[str, Any]:
    settings = wanted.merge(before, file, {}, options_of(up))
    if before.second_node_ip and settings.node_ip == before.node_ip:
        settings = msgspec.structs.replace(settings, node_ip=",".join(before.node_ips))
    return wanted.as_options(settings, options_of(up))
