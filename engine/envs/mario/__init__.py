"""Super Mario Bros as a batched environment: the task, the rules (read from RAM), and the lanes."""

from engine.config.stages import STAGES
from engine.envs.emulators.view import VIEWS, View
from engine.envs.mario.lanes import LaneState, MarioLanes
from engine.envs.mario.task import MarioTask

__all__ = ["STAGES", "VIEWS", "LaneState", "MarioLanes", "MarioTask", "View"]
