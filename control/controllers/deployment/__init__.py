from .controller import DeploymentController

__all__ = ["DeploymentController"]
