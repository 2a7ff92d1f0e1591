"""Functions that find the causes of the state of one kind of object each; `finders.py` is their table."""
