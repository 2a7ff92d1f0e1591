from control.controllers.cronjob.controller import CronJobController

__all__ = ["CronJobController"]
