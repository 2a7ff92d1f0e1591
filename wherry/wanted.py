"""The settings that a command wants: those in force, the configuration file over them, its options over both."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from wherry.command_options import Option
from wherry.config_file import MIRROR, REGISTRIES, ConfigFile
from wherry.errors import OptionError, UsageError, wrong
from wherry.published import SHARED_SETTINGS
from wherry.registries import Registry
from wherry.settings import NO_DNS, OF_A_NODE, Settings, check_worker

_FIELDS = {"registry_mirror": "registry_mirrors", "name": "names"}
"""Parameters whose setting has another name."""
_INTERNAL = frozenset("prefix role joined second_node_ip registry_mirrors registries names configured".split())
OF_UP = frozenset(name.replace("_", "-") for name in Settings.__struct_fields__ if name not in _INTERNAL)
"""Names of the options of `wherry up`, without those that have another name than their setting."""
IDENTITY = frozenset(
    "node_name api_port pod_cidr service_cidr cluster_domain cluster_dns pod_network "
    "store etcd_servers etcd_cafile etcd_certfile etcd_keyfile etcd_prefix".split()
)
"""Settings of a node or a cluster that exists, which only --unset resets: a line or a file may be missing by mistake."""


def _field(option: Option) -> str:
    return _FIELDS.get(option.parameter, option.parameter)


def given(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that a command's arguments name; empty texts and None name nothing."""
    found = {_FIELDS.get(name, name): value for name, value in arguments.items() if value not in ("", None, [])}
    if "registry_mirrors" in found:
        found["registry_mirrors"] = mirrors(found["registry_mirrors"])
    return {name: value for name, value in found.items() if name in Settings.__struct_fields__}


def mirrors(pairs: Collection[str]) -> dict[str, str]:
    """Read --registry-mirror HOST=URL."""
    found = [pair.partition("=") for pair in pairs]
    if bad := [host for host, _, url in found if not url]:
        raise OptionError([wrong("registry-mirror", bad[0], MIRROR)])
    return {host: url for host, _, url in found}


def merge(
    before: Settings,
    file: ConfigFile,
    flags: Mapping[str, Any],
    options: Mapping[str, Option],
    unset: Collection[str] = (),
    *,
    joining: str = "",
) -> Settings:
    """Return the settings that are wanted on a machine with the settings `before`.

    A setting that was taken from the file, and is not there any more, gets its default again, as do those of `unset`. Settings
    of the cluster in the file of a machine that has joined, or is `joining` in a role, are ignored. Raise WherryError for an
    option that this machine cannot decide.
    """
    with file.located():
        values = {name: value for name, value in given(file.arguments).items() if _own(name, before, joining)}
    reset = (
        {name for name in before.configured if name not in values and name not in IDENTITY} if file.exists else set()
    )
    for name in unset:
        reset.add(_unset(name, file, flags, options))
    defaults = Settings()
    changes = {name: getattr(defaults, name) for name in reset} | values | dict(flags)
    with file.located(names(flags, options)):
        check_worker(before, {name: value for name, value in changes.items() if value != getattr(before, name)})
    if "node_ip" in changes:
        changes["second_node_ip"] = ""
    if changes.get("service_cidr", before.service_cidr) != before.service_cidr and before.cluster_dns != NO_DNS:
        changes.setdefault("cluster_dns", "")
    configured = sorted(values.keys() - flags.keys()) if file.exists else before.configured
    return msgspec.structs.replace(before, **changes, configured=configured)


def _own(name: str, before: Settings, joining: str) -> bool:
    """Return whether a machine decides a setting by its file."""
    if before.is_worker:
        return name in OF_A_NODE
    if joining == "worker":
        return name in OF_A_NODE or name == "node_name"
    return name not in SHARED_SETTINGS or not (before.joined or joining)


def names(flags: Collection[str], options: Mapping[str, Option]) -> set[str]:
    """Return the names of the options that flags set."""
    return {name for name, option in options.items() if _field(option) in flags}


def _unset(name: str, file: ConfigFile, flags: Mapping[str, Any], options: Mapping[str, Option]) -> str:
    option = options.get(name.lstrip("-"))
    field = _field(option) if option else ""
    if option is None or field not in Settings.__struct_fields__:
        raise UsageError(f"--unset {name}: there is no such option; `wherry up --help` lists them")
    if option.name in file.lines:
        raise UsageError(f"--unset {name}: remove it from {file.place(option.name)} instead")
    if field in flags:
        raise UsageError(f"--unset {name}: it is set in the same command")
    return field


def taken_back(
    before: Settings | None, after: Settings | None, options: Mapping[str, Option], lines: Collection[str]
) -> str:
    """Return the line that names the command which restores the options of `before`; empty if the saved ones are the same.

    Options with a line in the configuration file are set there again, and those of registries may have passwords.
    """
    parts = []
    for name, option in options.items() if before is not None and after is not None else ():
        field = _field(option)
        if field not in Settings.__struct_fields__ or name in lines or field == "registry_mirrors":
            continue
        old = getattr(before, field)
        if old == getattr(after, field):
            continue
        if old == getattr(Settings(), field):
            parts.append(f"--unset {name}")
        elif isinstance(old, bool):
            parts.append(f"--{'' if old else 'no-'}{name}")
        else:
            parts += [_written(name, value) for value in (old if isinstance(old, list) else [old])]
    return f"\nThe options are saved; to restore the former ones, run `wherry up {' '.join(parts)}`" if parts else ""


def _written(name: str, value: object) -> str:
    """Return an option as it is typed in a shell."""
    text = str(value)
    return f"--{name}{'=' if text.startswith('-') else ' '}{shlex.quote(text)}"


def as_options(settings: Settings, options: Mapping[str, Option]) -> dict[str, Any]:
    """Return the options with the values that settings have, as the configuration file has them, but without passwords."""
    found = {}
    for name, option in options.items():
        field = _field(option)
        if field in Settings.__struct_fields__:
            found[name] = getattr(settings, field)
    shown = {host: msgspec.structs.replace(one, password="") for host, one in settings.registries.items()}
    return {**found, REGISTRIES.name: _plain(shown)}


def _plain(registries: dict[str, Registry]) -> dict[str, dict[str, Any]]:
    """Return registries as data, without what has its default."""
    usual = msgspec.to_builtins(Registry())
    return {
        host: {key: value for key, value in msgspec.to_builtins(one).items() if value != usual[key]}
        for host, one in registries.items()
    }
