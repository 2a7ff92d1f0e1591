"""`wherry why`: what happened to an object, why it is not as it should be, and what to do about it.

`model.py` has the parts of an answer, `reading.py` reads objects with the caller's rights, `causes/` has one function a kind
that finds causes, `diagnosis.py` chooses it, `moments.py` orders what happened, `report.py` prints both.
"""
