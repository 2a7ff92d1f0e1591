"""Texts that others write: an image's author, a runtime, a plugin, a command in a container.

They choose the length, up to 16 MiB in a message, and a text goes on into errors, events, conditions and statuses of pods, once
for each container. So each is cut where it is read.
"""

MESSAGE = 4096
"""Characters of a message; upstream reads as many bytes of a termination message."""
NAME = 256
"""Characters of a name of one word: a reason, a version, a user."""


def shortened(text: str, most: int = MESSAGE) -> str:
    """Return the text, or its beginning and "..." in `most` characters together."""
    return text if len(text) <= most else f"{text[: most - 3]}..."
