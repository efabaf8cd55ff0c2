"""`mario-tui schema`: JSON Schemas of what mario-tui prints for programs and reads from them, made from the tables and
messages that it uses itself.
"""

from __future__ import annotations

import argparse
import importlib
import json
from typing import Any

import msgspec

from engine.config.fields import LARGEST, NONE, FieldSpec, is_int, is_text, may_be_unset
from engine.config.game import games, options_with, own_options
from engine.config.reading import ALIASES
from engine.config.run_config import COMMON, stored_options
from engine.protocol.json_lines import JSON_EVENTS
from engine.protocol.messages import Evaluation, FinalEvaluation, Progress, Summary
from engine.protocol.results import BestEvaluation
from engine.runs.policies import Metadata
from engine.runs.run import Annotation, RunRecord
from mario_tui.commands.options import Parser
from mario_tui.commands.policies import Found
from mario_tui.data.run_status import RunStatus
from mario_tui.features import schemas

Schema = dict[str, Any]
_DRAFT = "https://json-schema.org/draft/2020-12/schema"
_NULL: Schema = {"type": "null"}
_NUMBER: Schema = {"type": ["number", "null"]}
_BY_THE_GAME = ("results", "success", "task", "cleared")
"""Fields in whose place are those of a game, under names that it declares."""
_OWN_VALUE: Schema = {"type": ["number", "string", "boolean", "array", "null"]}
_MAKERS = {
    "options": ("a file of --config", lambda: options_schema()),
    "events": ("a line of --log-format json and of follow", lambda: events_schema()),
    "runs": ("the array that runs --json prints", lambda: runs_schema()),
    "policies": ("the array that policies --json prints", lambda: policies_schema()),
    "policy": ("the text `policy` in the metadata of a policy file", lambda: policy_schema()),
}


def abouts() -> dict[str, str]:
    """What each schema describes, by its name."""
    of_extras = {name: about for name, (_, about) in schemas().items()}
    return {name: about for name, (about, _) in _MAKERS.items()} | of_extras


def schema_parser() -> argparse.ArgumentParser:
    about = "; ".join(f"{name}: {about}" for name, about in abouts().items())
    parser = Parser(
        prog="mario-tui schema", description=f"Print the JSON Schema of what mario-tui writes or reads. {about}."
    )
    parser.add_argument("what", choices=tuple(abouts()), metavar="WHAT", help=", ".join(abouts()))
    return parser


def run(arguments: list[str]) -> int:
    what = schema_parser().parse_args(arguments).what
    print(json.dumps(schema_of(what), indent=2))
    return 0


def schema_of(what: str) -> Schema:
    """The schema with that name."""
    make = _MAKERS[what][1] if what in _MAKERS else importlib.import_module(schemas()[what][0]).schema
    return {"$schema": _DRAFT, "title": f"mario-tui {what}", **make()}


# ---------------------------------------------------------------------------------------------- options


def options_schema() -> Schema:
    """Each option by itself; which ones a game and a runner have, and what they allow together, only a start tells."""
    known = {name: option_schema(name) for name in stored_options()}
    earlier = {name: {"type": "boolean", "description": f"earlier name of {name}"} for name in ALIASES}
    return {"type": "object", "properties": known | earlier, "additionalProperties": False}


def option_schema(name: str) -> Schema:
    """An option in TOML or JSON; of several games that have it, what one of them accepts."""
    specs = [own_options(game)[name] for game in games() if name in own_options(game)] or [COMMON[name]]
    accepted = list({json.dumps(each): each for each in map(_accepted, specs)}.values())
    return {"description": specs[0].metadata["help"], **_any_of(*accepted)}


def _accepted(spec: FieldSpec) -> Schema:
    """What `engine.config.fields.check` accepts after `coerce`."""
    low, high, choices = (spec.metadata[name] for name in ("low", "high", "choices"))
    if spec.name == "game":  # also as GAME:TASK
        return {"type": "string", "pattern": f"^({'|'.join(games())})(:.+)?$"}
    if isinstance(spec.default, bool):
        return {"type": "boolean"}
    if is_text(spec) and choices:
        return {"enum": list(choices)}
    if is_text(spec):  # a table stands for its JSON
        return {"type": ["string", "object"], "minLength": 1}
    number = {"minimum": low} if low is not None else {}
    number |= {"type": "integer" if is_int(spec) else "number", "maximum": LARGEST if high is None else high}
    if spec.name == "batch_size":
        return _any_of({"const": "auto"}, {**number, "minimum": 1})
    return _any_of({"const": NONE}, number) if may_be_unset(spec) else number


def _any_of(*schemas: Schema) -> Schema:
    return schemas[0] if len(schemas) == 1 else {"anyOf": list(schemas)}


# ---------------------------------------------------------------------------------------------- what is printed


def events_schema() -> Schema:
    """One of the events."""
    lines = {name: _printed(content, *left_out, event=name) for content, (name, left_out) in JSON_EVENTS.items()}
    return {"oneOf": [{"$ref": f"#/$defs/{name}"} for name in lines], "$defs": lines}


def runs_schema() -> Schema:
    """The records of runs, with what `runs --json` adds to them."""
    best, result = _printed(BestEvaluation), _printed(FinalEvaluation, "env_steps", "seconds")
    run = _printed(
        RunRecord,
        state={"enum": [*map(str, RunStatus)]},
        best=_any_of(best, _NULL),
        result=_any_of(result, _NULL),
        path={"type": "string"},
        options={"type": ["object", "null"]},
        **_printed(Annotation)["properties"],
    )
    run["properties"]["evaluations"] = {"type": "array", "items": _printed(Evaluation)}  # with --evaluations
    return {"type": "array", "items": run}


def _printed(content: type[msgspec.Struct], *left_out: str, event: str = "", **instead: Schema) -> Schema:
    """A struct as `engine.protocol.json_lines` prints it: all fields, with null for numbers that are unknown, and what
    a game yields by the game's names. `instead`: schemas of other fields, and of those that stand for something else.
    """
    (reference,), parts = msgspec.json.schema_components([content])
    struct = parts[reference["$ref"].rpartition("/")[2]]
    fields = {name: _may_be_unknown(name, each) for name, each in struct["properties"].items()}
    if content is FinalEvaluation:
        means = (f"{name}{end}" for name in ("mean_return", "clear_rate") for end in ("", "_low", "_high"))
        fields |= dict.fromkeys(means, _NUMBER)
    if content is Summary:
        fields["result"] = _any_of(_printed(FinalEvaluation), _NULL)
    if content is Progress:  # only a loop of one's own has them
        fields["numbers"] = {"type": "object", "additionalProperties": _NUMBER}
    for name in ("type", *_BY_THE_GAME, *left_out):
        fields.pop(name, None)
    fields = ({"event": {"const": event}} if event else {}) | fields | instead
    has_own = not {*_BY_THE_GAME}.isdisjoint(struct["properties"])
    return {
        "description": struct["description"],
        "type": "object",
        "properties": fields,
        "required": [name for name in fields if name != "numbers"],
        "additionalProperties": _OWN_VALUE if has_own else False,
    }


def _may_be_unknown(name: str, schema: Schema) -> Schema:
    kind = schema.get("type")
    if schema.get("additionalProperties") == {"type": "number"}:
        return {"type": "object", "additionalProperties": _NUMBER}
    return {**schema, "type": [kind, "null"]} if kind == "number" or name == "clears" else schema


# ---------------------------------------------------------------------------------------------- policies


def policies_schema() -> Schema:
    (reference,), parts = msgspec.json.schema_components([Found], ref_template="#/$defs/{name}")
    found = parts.pop(reference["$ref"].rpartition("/")[2])
    found["properties"]["run"] = _any_of(runs_schema()["items"], _NULL)
    return {"type": "array", "items": found, "$defs": parts}


def policy_schema() -> Schema:
    """The metadata of a policy, and the options of its game that tell how it is played."""
    (reference,), parts = msgspec.json.schema_components([Metadata], ref_template="#/$defs/{name}")
    policy = parts.pop(reference["$ref"].rpartition("/")[2])
    own = {name: _any_of(option_schema(name), _NULL) for game in games() for name in options_with("policy", game)}
    return {**policy, "properties": own | policy["properties"], "$defs": parts}
