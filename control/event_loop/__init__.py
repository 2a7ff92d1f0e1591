"""Work of requests in relation to the event loop: its weight, and whether it runs on the loop, in a thread or in a process.

`weight.py` estimates the work that a body causes. `offload.py` does large work outside the loop, with fair queueing over
users: in a helper process (`helper_client.py`) or in a thread (`time_limit.py`, `switch_interval.py`). `inline.py` starts
expressions on the loop and moves expensive ones to the thread, `pacing.py` yields during work on many objects, and
`imports.py` imports modules while the loop serves.
"""
