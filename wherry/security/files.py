"""Modes and owners of files, as checks request them."""

from __future__ import annotations

import pwd
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

from wherry.security.facts import Facts
from wherry.security.rows import CheckResult, failed, listed, not_here, passed

Files = Callable[[Facts], Iterable[Path]]


def mode(files: Files, most: int, missing: str = "") -> Callable[[Facts], CheckResult]:
    """Return a check of modes: bits beyond `most` fail. `missing` is the reason why there may be no file, if it may."""

    def look(facts: Facts) -> CheckResult:
        found = _there(files(facts))
        if not found:
            return _absent(files(facts), missing)
        wide = [path for path in found if stat.S_IMODE(path.stat().st_mode) & ~most and not _shut(path, facts, most)]
        if wide:
            shown = ", ".join(f"{path} is {stat.S_IMODE(path.stat().st_mode):o}" for path in wide[:3])
            return failed(
                shown + (f" and {len(wide) - 3} more" if len(wide) > 3 else ""), f"`chmod {most:o} {wide[0]}`"
            )
        return passed(_one_or_many(found))

    return look


def owner(files: Files, missing: str = "") -> Callable[[Facts], CheckResult]:
    """Return a look at owners: root, or the control plane's account where systemd runs it as one."""

    def look(facts: Facts) -> CheckResult:
        found = _there(files(facts))
        if not found:
            return _absent(files(facts), missing)
        foreign = [path for path in found if path.stat().st_uid not in facts.owners]
        if foreign:
            return failed(
                f"{foreign[0]} belongs to {_name(foreign[0].stat().st_uid)}", f"`chown root:root {foreign[0]}`"
            )
        return passed(f"owned by {listed(_name(path.stat().st_uid) for path in found)}")

    return look


def below(folder: Path, *patterns: str) -> list[Path]:
    """Return the files of a folder that match one of the patterns."""
    return sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})


def _there(paths: Iterable[Path]) -> list[Path]:
    return [path for path in paths if path.exists()]


def _absent(paths: Iterable[Path], missing: str) -> CheckResult:
    if missing:
        return not_here(missing)
    return failed(f"there is no {next(iter(paths), 'such file')}", "`wherry up` writes it")


def _shut(path: Path, facts: Facts, most: int) -> bool:
    """Return whether a folder of the installation keeps out those whom the file's own bits would let in."""
    top = facts.settings.layout.prefix
    above = [each for each in path.parents if each.is_relative_to(top) and each != top]
    return most & 0o077 == 0 and any(not stat.S_IMODE(each.stat().st_mode) & 0o077 for each in above)


def _one_or_many(found: list[Path]) -> str:
    return str(found[0]) if len(found) == 1 else f"{len(found)} files"


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
