"""Super Mario Bros as a batched environment: the task, its rules in RAM, and the lanes that play it."""

from engine.envs.mario.lanes import MarioLanes
from engine.envs.mario.task import MarioTask
from engine.envs.view import VIEWS, View
from engine.worlds import STAGES

__all__ = ["STAGES", "VIEWS", "MarioLanes", "MarioTask", "View"]
