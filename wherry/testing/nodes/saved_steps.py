"""Scripts in a file. Functions cannot be saved."""

from __future__ import annotations

import msgspec

from wherry.testing.errors import ClusterError
from wherry.testing.nodes.scripts import Exit, Outcome, Pull, PullError, Run, Script


class SavedStep(msgspec.Struct, omit_defaults=True):
    """A step; one field is set."""

    run: Run | None = None
    exit: Exit | None = None
    pull: Pull | None = None
    pull_error: PullError | None = None

    def step(self) -> Outcome:
        """Return the step; `Run()` for one without a field."""
        return self.run or self.exit or self.pull or self.pull_error or Run()


class SavedScript(msgspec.Struct):
    """A script."""

    pod: str
    container: str
    steps: list[SavedStep]

    def script(self) -> Script:
        """Return the script."""
        return Script(self.pod, self.container, tuple(each.step() for each in self.steps))


def saved_step(step: Outcome) -> SavedStep:
    """Return a step for a file."""
    if isinstance(step, Run):
        return SavedStep(run=step)
    if isinstance(step, Exit):
        return SavedStep(exit=step)
    return SavedStep(pull=step) if isinstance(step, Pull) else SavedStep(pull_error=step)


def saved_script(script: Script) -> SavedScript:
    """Return a script for a file. Raise ClusterError if a step is a function."""
    steps = []
    for step in script.steps:
        if not isinstance(step, Run | Exit | Pull | PullError):
            raise ClusterError(f"the script for {script.pod!r} has a function, which cannot be saved in a file")
        steps.append(saved_step(step))
    return SavedScript(script.pod, script.container, steps)
