"""`wherry why`: events of an object, causes of its state, and the command to run next.

`model.py` has the parts of an answer, `reading.py` reads objects with the caller's rights, `causes/` has one function a kind
that finds causes, `diagnosis.py` chooses it, `moments.py` orders what happened, `report.py` prints both.
"""
