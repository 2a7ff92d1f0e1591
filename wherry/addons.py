"""Names of addons that `--disable` accepts: parts of the control plane, and files of the folder of addons."""

from __future__ import annotations

from collections.abc import Iterable

from control.addon_names import BUILT_IN
from kube import names
from wherry.errors import WherryError


def check_disabled(disabled: Iterable[str]) -> None:
    """Raise WherryError for what cannot be the name of an addon. A file of the name may be missing, and come later."""
    for name in disabled:
        if problems := names.dns1123_label(name):
            raise WherryError(
                f"--disable {name}: {problems[0]}; it is {', '.join(BUILT_IN)}, or the name of a file in "
                "/var/lib/wherry/addons without its extension"
            )
