"""The `wherry` command: creates, joins, checks and removes clusters on this machine."""

VERSION = "0.2.0"
"""Version of Wherry; pyproject.toml reads it here."""
