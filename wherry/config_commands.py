"""`wherry config`: shows the options in force, and checks a configuration file without changing anything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
import yaml

from wherry import addons, addresses, config_file, identity, join_options, option_checks, options, output, wanted
from wherry import settings as saved
from wherry.command_options import options_of
from wherry.config_file import ConfigFile
from wherry.errors import Problem, WherryError
from wherry.layout import Layout
from wherry.membership import join
from wherry.option_checks import complete
from wherry.settings import Settings
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

    These are the saved ones with those of /etc/wherry/config.yaml over them, in the form of that file. Values that
    `wherry up` would refuse are named on standard error, with status 1.
    """
    output.check(format, ("yaml", "json"))
    before = saved.load(prefix) or Settings(prefix=prefix)
    file = config_file.read(Layout(Path(prefix)).config, options_of(join) | options_of(up))
    shown = _effective(before, file)
    usual = wanted.as_options(Settings(), options_of(up))
    found = {name: value for name, value in shown.items() if defaults or value != usual[name]}
    if format == "json":
        print(output.dumped(found, format), end="")
    else:
        print(yaml.safe_dump(found, sort_keys=False, width=1000), end="")
    if wrong := [file.placed(problem) for problem in _wrong_values(_merged(before, file), file)]:
        raise WherryError(config_file.in_order(wrong))


@config_app.command("validate")
def config_validate(
    file: Annotated[str, typer.Argument(help="The file. Default: /etc/wherry/config.yaml.", show_default=False)] = "",
    prefix: options.Prefix = "/",
) -> None:
    """Check a configuration file without changing anything.

    Shows everything that is wrong with its line, and ends with status 1 then.
    """
    path = Path(file) if file else Layout(Path(prefix)).config
    known = options_of(join) | options_of(up)
    found, problems = config_file.parse(path, known, must_exist=True)
    before = saved.load(prefix) or Settings(prefix=prefix)
    settings = wanted.merge(before, found, {}, options_of(up))
    without = {problem.option for problem in problems}
    for problem in _wrong_values(settings, found):
        if without.isdisjoint((problem.option, *problem.others)):  # the others have no value yet
            problems.append(found.placed(problem))
    config_file.fail(problems)
    if before.layout.settings.exists():
        with found.located():
            identity.check(before, complete(settings, _own_address(settings)), identity.saved(before))
    for sentence in addons.unknown(settings.disable, settings.layout.addons):
        line = f"{found.place('disable')}: {sentence[2:]}" if "disable" in found.lines else sentence
        console.print(line, soft_wrap=True)
    console.print(f"{path} is valid", soft_wrap=True)


def _wrong_values(settings: Settings, file: ConfigFile) -> list[Problem]:
    """Return the values that `wherry up` or `wherry join` would refuse, also those that are not from the file."""
    return [
        *option_checks.problems(settings, settings.node_ip or addresses.own_address() or None),
        *join_options.problems(file.arguments),
    ]


def _own_address(settings: Settings) -> str:
    return settings.node_ip or addresses.own_address() or "192.0.2.1"


def _merged(before: Settings, file: ConfigFile) -> Settings:
    return wanted.merge(before, file, {}, options_of(up))


def _effective(before: Settings, file: ConfigFile) -> dict[str, Any]:
    settings = _merged(before, file)
    if before.second_node_ip and settings.node_ip == before.node_ip:
        settings = msgspec.structs.replace(settings, node_ip=",".join(before.node_ips))
    return wanted.as_options(settings, options_of(up))
