from __future__ import annotations

from wherry import daemons, units
from wherry.settings import Settings, complete


def test_every_role_is_started_so() -> None:
    settings = complete(Settings(), "192.0.2.1")
    for daemon, argv in daemons.command_lines(settings).items():
        if daemon != "containerd":
            assert tuple(argv[:3]) == daemons.PYTHON
            assert " -P -m wherry.roles " in (units.FILES / units.UNITS[daemon]).read_text()
