from control.controllers.job.controller import JobController

__all__ = ["JobController"]
