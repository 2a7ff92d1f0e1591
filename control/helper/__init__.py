"""A process of its own for work on large objects, so that the event loop does not share its interpreter's lock with it.

`client.py` starts it and asks it, `__main__.py` is its main function, `jobs.py` what can be asked. Messages are MessagePack
behind their length: `[job, arguments]` one way, `[value, error]` the other.
"""
