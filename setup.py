"""Build step beside pyproject.toml: copies the systemd files into the package `wherry`, where an installed wheel reads them."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildModules(build_py):
    """Copies modules and their data files, and the folder systemd/ as wherry/systemd/."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            shutil.copytree("systemd", Path(self.build_lib, "wherry", "systemd"), dirs_exist_ok=True)


setup(cmdclass={"build_py": BuildModules})
