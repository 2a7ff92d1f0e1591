"""Names of addons that `--disable` accepts: parts of the control plane, and files of the folder of addons."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from pathlib import Path

from control.addon_names import BUILT_IN
from kube import names
from wherry.errors import Problem, wrong


def disabled_problems(disabled: Iterable[str]) -> Iterator[Problem]:
    """Yield what cannot be the name of an addon. A file of the name may be missing, and come later."""
    for name in disabled:
        if found := names.dns1123_label(name):
            known = f"{', '.join(BUILT_IN)}, or the name of a file in /var/lib/wherry/addons without its extension"
            yield wrong("disable", name, f"{found[0]}; it is {known}")


def unknown(disabled: Iterable[str], folder: Path) -> list[str]:
    """Return a sentence for each disabled addon that does not exist: a typing error, or a file that comes later.

    Names that no addon can have are left to `disabled_problems`.
    """
    present = {path.stem for path in folder.iterdir()} if folder.is_dir() else set()
    found = []
    for name in disabled:
        if name not in BUILT_IN and name not in present and not names.dns1123_label(name):
            near = difflib.get_close_matches(name, [*BUILT_IN, *present], 1)
            found.append(f"--disable {name}: there is no such addon" + (f"; did you mean {near[0]}?" if near else ""))
    return found
