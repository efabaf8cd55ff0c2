"""Super Mario Bros: what its options mean for a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.config.capabilities import MOVE_KEYS, SELECT, START, A, B, CommandOption, Fresh, PersonKeys
from engine.config.features import feature, place_of_feature
from engine.config.fields import ConfigError
from engine.config.game import Game, Spec, options_with
from engine.config.reading import Following
from engine.config.run_config import RunConfig
from engine.errors import UserError
from engine.games.mario.actions import (
    HALFWAY,
    HOLD,
    NOT_WITH_NES_PY,
    STACK,
    STAGES,
    WHOLE_GAME,
    WITHOUT_HALFWAY,
    action_names,
    has_halfway,
    most_similar,
    stages_of,
    why_invalid,
)
from engine.games.mario.options import MOST_NOOPS, MOST_STORED, MarioOptions
from engine.protocol.outcome import Conditions, Goal, Outcome, Result

if TYPE_CHECKING:
    from engine.envs.lanes import Curriculum, Lanes
    from engine.envs.played_game import PersonControls, PlayedGame

_CURRICULUM_STAGES = "1-1,1-2,1-3,1-4"


class Mario(Game):
    """See `engine.config.game` and `engine.config.capabilities`."""

    name = "mario"
    options = MarioOptions
    tasks = "stage"
    networks = ("nature", "small", "impala-wide")
    other_keys = "in Mario x jumps, z runs"
    lanes = "engine.games.mario.factory:of_run"
    stages = STAGES
    outcome = Outcome(
        results=(Result("x_pos", "x", place=64), Result("score", "score"), Result("time_left", "time left")),
        goal=Goal("flag", "flag"),
        judged_by="goal",
        task="stage",
        tasks=STAGES,
    )
    stages_of_world = 4
    whole_task = WHOLE_GAME
    judged = {
        "0 to 30 no-ops": ("native", Conditions()),
        "31 to 120 no-ops": ("native", Conditions(noop_min=31, noop_max=120)),
        "held out": ("native", Conditions(noop_min=201, noop_max=255)),
        "any phase": ("native", Conditions(noop_max=120, random_phase=True)),
        "halfway": ("native", Conditions(random_phase=True, halfway_starts=1.0)),
        "epsilon 0.01": ("native", Conditions(epsilon=0.01)),
        "sticky actions 0.25": ("native", Conditions(sticky_actions=0.25)),
        "epsilon 0.05": ("native", Conditions(epsilon=0.05)),
        "on nes-py": ("nes-py", Conditions()),
    }
    held_out = "held out"
    conditions = ("noop_min", "noop_max", "epsilon", "sticky_actions", "random_phase", "halfway_starts")
    played_options = {
        "stage": CommandOption("play this stage instead of the one it was trained on", "NAME"),
        "emulator": CommandOption("use this emulator instead of the one it was trained on"),
        "rom": CommandOption("cartridge file, iNES (default: the one in gym-super-mario-bros)", "FILE"),
    }
    person_options = played_options

    def judged_for(self, task: str) -> Mapping[str, tuple[str, Conditions]]:
        columns = dict(self.judged)
        if task in ("1-2", "3-2"):  # later, an enemy has come
            columns[self.held_out] = ("native", Conditions(noop_min=81, noop_max=120))
        if not all(HALFWAY[stage] for stage in stages_of(task)):
            del columns["halfway"]
        return columns

    def defaults(self) -> Mapping[str, Any]:
        return {"advantage_learning": 0.5, "final_advantage_learning": 0.95, "sticky_frames": True}  # table

    def spec(self, config: RunConfig) -> Spec:
        options = MarioOptions.of(config)
        height, width = (int(side) for side in options.observation.removesuffix("-red").split("x"))
        return Spec((height, width), len(action_names(options.actions)), STACK, HOLD, masked=False)

    def action_names(self, config: RunConfig) -> list[str]:
        return list(action_names(MarioOptions.of(config).actions))

    def network(self, config: RunConfig) -> str:
        return MarioOptions.of(config).network

    def check(self, config: RunConfig) -> None:
        options = MarioOptions.of(config)
        if reason := why_invalid(options.actions):
            raise ConfigError("actions", reason)
        try:
            stages = stages_of(options.stage)
        except UserError as error:
            raise ConfigError("stage", str(error)) from None
        if options.curriculum and len(stages) == 1:
            raise ConfigError("curriculum", f"needs several stages, such as --stage 1-1,1-2, got {options.stage}")
        whole_game = options.stage == WHOLE_GAME
        for name in ("start_states", "guide"):
            value = getattr(options, name)
            if value and (options.emulator != "native" or whole_game):
                reason = "must be 0 with --emulator nes-py, whose states are slow to load, and with --stage game"
                raise ConfigError(name, f"{reason}, got {value:g}")
        if options.guide and options.curriculum:
            reason = f"must be 0 with --curriculum, whose stages it would not follow, got {options.guide:g}"
            raise ConfigError("guide", reason)
        most = round(MOST_STORED - options.start_states, 9)
        if options.guide > most:
            raise ConfigError(
                "guide", f"must be at most {most:g} with --start-states {options.start_states:g}, got {options.guide:g}"
            )
        if options.halfway_starts and not has_halfway(options.stage):
            raise ConfigError("halfway_starts", f"must be 0 {WITHOUT_HALFWAY}, got {options.halfway_starts:g}")
        if options.random_phase and options.emulator != "native":
            raise ConfigError("random_phase", NOT_WITH_NES_PY)
        if options.swim_strokes and options.frame_skip < 2:
            raise ConfigError("frame_skip", f"must be at least 2 with --swim-strokes, got {options.frame_skip}")
        conditions = self.eval_conditions(config)
        if conditions.noop_min > conditions.noop_max:
            limit = "--noop-max" if options.eval_noop_max is None else "--eval-noop-max"
            raise ConfigError(
                "eval_noop_min", f"must be at most {limit} ({conditions.noop_max}), got {conditions.noop_min}"
            )

    def check_files(self, config: RunConfig) -> None:
        if MarioOptions.of(config).guide:
            place_of_feature("guide", "--guide")
        rom = MarioOptions.of(config).rom
        if rom is not None:
            from engine.console.cartridge import load_cartridge  # imports NumPy only if needed

            try:
                load_cartridge(rom)
            except UserError as error:
                raise UserError(f"--rom: {error}") from None

    def files(self, config: RunConfig) -> dict[str, bytes]:
        from engine.console.cartridge import read_cartridge

        rom = MarioOptions.of(config).rom
        return {} if rom is None else {"rom": read_cartridge(Path(rom))}

    def tasks_of(self, value: str) -> tuple[str, ...]:
        return stages_of(value)

    def starts_slowly(self, config: RunConfig) -> bool:
        return MarioOptions.of(config).emulator == "nes-py"  # where the inputs that lead to a start are replayed

    def faster(self, config: RunConfig) -> Mapping[str, Any]:
        return {} if MarioOptions.of(config).emulator == MarioOptions.emulator else {"emulator": MarioOptions.emulator}

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

    def lanes_of_policy(
        self, metadata: Mapping[str, Any], lanes: int, *, threads: int, seed: int, **others: Any
    ) -> Lanes:
        from engine.games.mario import factory

        return factory.of_policy(metadata, lanes, threads=threads, seed=seed, **others)

    def game_of_policy(
        self, policy: Path, metadata: Mapping[str, Any], conditions: Conditions, **others: Any
    ) -> PlayedGame:
        return feature("players", "playing a game")("mario").of_policy(policy, metadata, conditions, **others)

    def keys_of_person(self, config: RunConfig) -> PersonKeys:
        return PersonKeys(
            {**MOVE_KEYS, "z": B, "x": A, "o": B, "p": A, "enter": START, "tab": SELECT},
            {"arrows or WASD": "move", "x or p": "jump (A)", "z or o": "run, fire (B)", "enter": "start"},
            held=True,
        )

    def game_of_person(self, controls: PersonControls, **others: Any) -> PlayedGame:
        return feature("players", "playing a game")("mario").of_person(controls, **others)

    def task_metadata(self, config: RunConfig) -> dict[str, Any]:
        return {"actions": self.action_names(config)}

    def options_of_policy(self, metadata: Mapping[str, Any]) -> dict[str, Any]:
        options = {name: metadata.get(name) for name in options_with("initial", self.name)} | {
            "network": metadata["network"]
        }
        actions = metadata.get("actions")
        usual = action_names(MarioOptions.actions)
        if isinstance(actions, list) and not all(action in usual for action in actions):  # a run may have more actions
            options["actions"] = ",".join(str(action) for action in actions)
        return options

    def most_similar_action(self, action: str, known: Sequence[str]) -> str:
        return most_similar(action, known)

    def policy_must_have(self, config: RunConfig) -> Mapping[str, Any]:
        return {"actions": self.action_names(config), "observation": MarioOptions.of(config).observation}

    def make_curriculum(self, config: RunConfig, begin: int) -> Curriculum | None:
        from engine.games.mario.curriculum import StageCurriculum

        options = MarioOptions.of(config)
        if not options.curriculum:
            return None
        return StageCurriculum(
            stages_of(options.stage), rate=options.curriculum_rate, episodes=options.curriculum_episodes
        )

    def begin_on_ways(
        self, config: RunConfig, lanes: Lanes, *, stopped: Callable[[], bool], log: Callable[[str], object]
    ) -> None:
        if MarioOptions.of(config).guide:
            feature("guide", "--guide")(config, lanes, stopped=stopped, log=log)

    def fresh(self, config: RunConfig) -> Fresh | None:
        """Episodes after more no-ops than training and evaluations have had. If there can't be more, random actions
        or phases still make episodes that differ."""
        conditions = self.eval_conditions(config)
        is_random = conditions.epsilon > 0 or conditions.sticky_actions > 0 or conditions.random_phase
        first = max(MarioOptions.of(config).noop_max, conditions.noop_max) + 1
        if first > MOST_NOOPS:
            return Fresh(config) if is_random else None
        fresh = config.changed(eval_noop_min=first, eval_noop_max=MOST_NOOPS)
        kinds = 1 + (0 < conditions.halfway_starts < 1)
        starts = (MOST_NOOPS + 1 - first) * len(self.tasks_of(config.task)) * kinds
        return Fresh(fresh, f"{first} to {MOST_NOOPS} no-ops", None if is_random else starts)

    def eval_conditions(self, config: RunConfig) -> Conditions:
        options = MarioOptions.of(config)
        return Conditions(
            noop_min=options.eval_noop_min,
            noop_max=options.noop_max if options.eval_noop_max is None else options.eval_noop_max,
            epsilon=options.eval_epsilon,
            sticky_actions=options.eval_sticky_actions,
            random_phase=options.random_phase,
            halfway_starts=options.halfway_starts,
        )
