"""Super Mario Bros: what its options mean for a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from engine.config.conditions import Conditions
from engine.config.fields import ConfigError
from engine.config.following import Following
from engine.config.game import CommandOption, Distillation, Game, PersonKeys, Spec
from engine.config.joypad import MOVE_KEYS, SELECT, START, A, B
from engine.config.run_config import RunConfig
from engine.errors import UserError
from engine.games.mario.actions import ACTION_SETS, HOLD, STACK, action_names, most_similar, why_invalid
from engine.games.mario.options import MarioOptions, options_of
from engine.games.mario.stages import STAGES, WHOLE_GAME, stages_of
from engine.protocol.outcome import Goal, Outcome, Result

if TYPE_CHECKING:
    import numpy as np
    import torch

    from engine.distillation.search import Search
    from engine.envs.curriculum import Curriculum
    from engine.envs.guide import Guide
    from engine.envs.lanes import Lanes
    from engine.envs.played_game import PersonControls, PlayedGame

_CURRICULUM_STAGES = "1-1,1-2,1-3,1-4"
_SEEN = ("observation", "frame_skip", "swim_strokes")


class Mario(Game):
    """See `engine.config.game`."""

    name = "mario"
    options = MarioOptions
    tasks = "stage"
    task_options = ("stage", "rom", "reward", "curriculum", "actions", "observation", "swim_strokes", "frame_skip")
    of_policy = ("observation", "frame_skip", "swim_strokes", "network")
    network_options = ("actions", "observation", "network")
    networks = ("nature", "small")
    of_earlier_policies = {"reward": "progress"}  # which distilled ones did not tell
    policy_options = ("stage", "reward", "emulator", "actions", "observation", "frame_skip", "swim_strokes")
    state_options = ("emulator",)
    evaluation_options = ("noop_max", "eval_noop_min", "eval_noop_max", "eval_epsilon", "eval_sticky_actions")
    person_keys = PersonKeys(
        {**MOVE_KEYS, "z": B, "x": A, "o": B, "p": A, "enter": START, "tab": SELECT},
        {"arrows or WASD": "move", "x or p": "jump (A)", "z or o": "run, fire (B)", "enter": "start"},
        held=True,
        brief="in Mario x jumps, z runs",
    )
    stages = STAGES
    outcome = Outcome(
        results=(Result("x_pos", "x"), Result("score", "score"), Result("time_left", "time left")),
        goal=Goal("flag", "flag"),
        judged_by="goal",
        task="stage",
        tasks=STAGES,
    )
    stages_of_world = 4
    judged = {
        "0 to 30 no-ops": ("native", Conditions()),
        "31 to 120 no-ops": ("native", Conditions(noop_min=31, noop_max=120)),
        "epsilon 0.01": ("native", Conditions(epsilon=0.01)),
        "sticky actions 0.25": ("native", Conditions(sticky_actions=0.25)),
        "epsilon 0.05": ("native", Conditions(epsilon=0.05)),
        "on nes-py": ("nes-py", Conditions()),
    }
    conditions = ("noop_min", "noop_max", "epsilon", "sticky_actions")
    played_options = {
        "stage": CommandOption("play this stage instead of the one it was trained on", "NAME"),
        "emulator": CommandOption("use this emulator instead of the one it was trained on"),
        "rom": CommandOption("cartridge file, iNES (default: the one in gym-super-mario-bros)", "FILE"),
    }
    person_options = played_options
    distillation = Distillation(
        network="nature",  # cleared 96 % of 600 episodes of six stages after 11 minutes, `small` after 26
        lanes=8,
        must_agree=("actions", *_SEEN),
        copied=("reward", "emulator", "actions", *_SEEN),
        searched=STAGES,
        untaught=(WHOLE_GAME,),
        options={
            "network": CommandOption(
                "Mario's network, as in training; small takes 0.7 times as long per update, but needs more of them "
                "(default: nature)",
                "{small,nature}",
            ),
            "actions": CommandOption(
                "actions of Mario's stages without a policy, as in training: right-only, simple, complex, or a list "
                f"(default: {MarioOptions.actions})",
                "SET",
            ),
            "noop_max": CommandOption(
                "maximum number of no-op frames at the start of Mario's training episodes; evaluations keep "
                f"{Conditions().noop_max} (default: {MarioOptions.noop_max})"
            ),
            "rom": played_options["rom"],
        },
        search_options=("actions",),
        told=("noop_max",),
    )
    sample_bytes = 30

    def defaults(self) -> Mapping[str, Any]:
        return {"advantage_learning": 0.5, "final_advantage_learning": 0.95}  # table

    def spec(self, config: RunConfig) -> Spec:
        options = options_of(config)
        height, width = (int(side) for side in options.observation.removesuffix("-red").split("x"))
        return Spec((height, width), len(action_names(options.actions)), STACK, HOLD, masked=False)

    def action_names(self, config: RunConfig) -> list[str]:
        return list(action_names(options_of(config).actions))

    def network(self, config: RunConfig) -> str:
        return options_of(config).network

    def check(self, config: RunConfig) -> None:
        options = options_of(config)
        if reason := why_invalid(options.actions):
            raise ConfigError("actions", reason)
        try:
            stages = stages_of(options.stage)
        except UserError as error:
            raise ConfigError("stage", str(error)) from None
        if options.curriculum and len(stages) == 1:
            raise ConfigError("curriculum", f"needs several stages, such as --stage 1-1,1-2, got {options.stage}")
        whole_game = options.stage == WHOLE_GAME
        if options.start_states and (options.emulator != "native" or whole_game):
            reason = "must be 0 with --emulator nes-py, whose states are slow to load, and with --stage game"
            raise ConfigError("start_states", f"{reason}, got {options.start_states:g}")
        if options.swim_strokes and options.frame_skip < 2:
            raise ConfigError("frame_skip", f"must be at least 2 with --swim-strokes, got {options.frame_skip}")
        if options.guide and whole_game:
            raise ConfigError("guide", f"must be 0 with --stage game, got {options.guide:g}")
        if options.guide and (options.start_states or options.sticky_actions):
            raise ConfigError("guide", f"must be 0 with --start-states and --sticky-actions, got {options.guide:g}")
        conditions = self.eval_conditions(config)
        if conditions.noop_min > conditions.noop_max:
            limit = "--noop-max" if options.eval_noop_max is None else "--eval-noop-max"
            raise ConfigError(
                "eval_noop_min", f"must be at most {limit} ({conditions.noop_max}), got {conditions.noop_min}"
            )

    def check_files(self, config: RunConfig) -> None:
        rom = options_of(config).rom
        if rom is not None:
            from engine.emulators.cartridge import load_cartridge  # imports NumPy only if needed

            try:
                load_cartridge(rom)
            except UserError as error:
                raise UserError(f"--rom: {error}") from None

    def files(self, config: RunConfig) -> dict[str, bytes]:
        from engine.emulators.cartridge import read_cartridge

        rom = options_of(config).rom
        return {} if rom is None else {"rom": read_cartridge(Path(rom))}

    def tasks_of(self, value: str) -> tuple[str, ...]:
        return stages_of(value)

    def starts_slowly(self, config: RunConfig) -> bool:
        return options_of(config).emulator == "nes-py"  # where the inputs that lead to a start are replayed

    def faster(self, config: RunConfig) -> Mapping[str, Any]:
        return {} if options_of(config).emulator == MarioOptions.emulator else {"emulator": MarioOptions.emulator}

    def follow(self, following: Following) -> None:
        of = following.values
        if of["curriculum"] and "stage" not in following.given and len(stages_of(of["stage"])) == 1:
            following.set("stage", _CURRICULUM_STAGES, "curriculum")
        if of["swim_strokes"] and of["frame_skip"] < 2:
            following.at_least("frame_skip", 2, "swim_strokes")
            if of["frame_skip"] < 2:
                following.set("swim_strokes", False, "frame_skip")
        most = of["noop_max"] if of["eval_noop_max"] is None else of["eval_noop_max"]
        if of["eval_noop_min"] > most:
            following.set("eval_noop_max", of["eval_noop_min"], "eval_noop_min")
            if of["eval_noop_max"] is None:
                following.at_least("noop_max", of["eval_noop_min"], "eval_noop_min")
            else:
                following.at_most("eval_noop_min", of["eval_noop_max"], "eval_noop_max")

    def make_lanes(
        self,
        config: RunConfig,
        lanes: int,
        *,
        threads: int,
        seed: int,
        device: torch.device | None = None,
        once: bool = False,
    ) -> Lanes:
        from engine.games.mario import factory

        return factory.of_run(config, lanes, threads=threads, seed=seed, once=once)

    def lanes_of_policy(
        self, metadata: Mapping[str, Any], lanes: int, *, threads: int, seed: int, **others: Any
    ) -> Lanes:
        from engine.games.mario import factory

        return factory.of_policy(metadata, lanes, threads=threads, seed=seed, **others)

    def game_of_policy(
        self, policy: Path, metadata: Mapping[str, Any], conditions: Conditions, **others: Any
    ) -> PlayedGame:
        from engine.games.mario.played_game import mario_of_policy

        return mario_of_policy(policy, metadata, conditions, **others)

    def game_of_person(self, controls: PersonControls, **others: Any) -> PlayedGame:
        from engine.games.mario.played_game import mario_of_person

        return mario_of_person(controls, **others)

    def described_for_search(self, task: str, like: Mapping[str, Any], **others: Any) -> dict[str, Any]:
        from engine.games.mario.searched_task import described

        return described(task, {name: like[name] for name in _SEEN if name in like}, **others)

    def search_options_of(self, metadata: Mapping[str, Any]) -> dict[str, str]:
        chosen = tuple(metadata["actions"])
        return {"actions": next((name for name, each in ACTION_SETS.items() if each == chosen), ",".join(chosen))}

    def make_search(self, student: Mapping[str, Any], *, seed: int, threads: int, **others: Any) -> Search:
        from engine.games.mario.searched_task import StageSearch

        return StageSearch(student, seed=seed, threads=threads, **others)

    def also_described(self, config: RunConfig) -> dict[str, Any]:
        return {"actions": self.action_names(config)}

    def options_of_policy(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        options = {name: metadata.get(name) for name in self.of_policy} | {"network": metadata["network"]}
        actions = metadata.get("actions")
        usual = action_names(MarioOptions.actions)
        if isinstance(actions, list) and not all(action in usual for action in actions):  # a run may have more actions
            options["actions"] = ",".join(str(action) for action in actions)
        return options

    def most_similar_action(self, action: str, known: Sequence[str]) -> str:
        return most_similar(action, known)

    def policy_must_have(self, config: RunConfig) -> Mapping[str, Any]:
        return {"actions": self.action_names(config), "observation": options_of(config).observation}

    def describe_conditions(self, config: RunConfig) -> dict[str, Any]:
        return msgspec.structs.asdict(self.eval_conditions(config))

    def make_curriculum(self, config: RunConfig, begin: int) -> Curriculum | None:
        from engine.games.mario.curriculum import StageCurriculum

        options = options_of(config)
        if not options.curriculum:
            return None
        return StageCurriculum(
            stages_of(options.stage), rate=options.curriculum_rate, episodes=options.curriculum_episodes
        )

    def make_guide(self, config: RunConfig, lanes: Lanes, seed: np.random.SeedSequence) -> Guide | None:
        share = options_of(config).guide
        if not share:
            return None
        from engine.games.mario.guide import WayGuide, search_ways
        from engine.games.mario.lanes import MarioLanes

        assert isinstance(lanes, MarioLanes)
        return WayGuide(lanes, share=share, seed=seed, search=partial(search_ways, config))

    def eval_conditions(self, config: RunConfig) -> Conditions:
        options = options_of(config)
        return Conditions(
            noop_min=options.eval_noop_min,
            noop_max=options.noop_max if options.eval_noop_max is None else options.eval_noop_max,
            epsilon=options.eval_epsilon,
            sticky_actions=options.eval_sticky_actions,
        )
