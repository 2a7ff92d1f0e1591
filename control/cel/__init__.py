"""The Common Expression Language as Kubernetes uses it: compile once against declared types, evaluate on plain JSON values.

program = compile("self.replicas <= self.max", Declarations({"self": object_of({"replicas": INT, "max": INT})}))
program.evaluate({"self": {"replicas": 3, "max": 5}}).value
"""

from control.cel.errors import BudgetExceeded, CompileError, EvaluationError
from control.cel.program import Declarations, Program, Result, compile

__all__ = ["BudgetExceeded", "CompileError", "Declarations", "EvaluationError", "Program", "Result", "compile"]
