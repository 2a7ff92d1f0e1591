"""Runs the command as `python -m wherry`."""

from wherry.main import main

main()
