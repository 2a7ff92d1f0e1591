"""A process of its own for work on large objects, so that the event loop does not share its interpreter's lock with it.

control/event_loop/helper_client.py starts it and sends it jobs, `__main__.py` is its main function, `jobs.py` has the jobs.
Messages are MessagePack behind their length: `[job, arguments]` one way, `[value, error]` the other.
"""
