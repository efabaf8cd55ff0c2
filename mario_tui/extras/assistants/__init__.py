"""`mario-tui assistants`: what a program needs that runs experiments, such as a coding assistant: ten command lines,
what to read, and when to stop.

The text is made from the tables that the help and the schemas are made from. `docs/assistants.md` is a copy of it, and
`llms.txt`, which the wheel has too, begins with it (`python -m tests.support.assistants` writes both).
"""

from __future__ import annotations

import argparse

from engine.protocol.json_lines import EVENT_NAMES
from mario_tui.commands.options import Parser
from mario_tui.commands.schema import abouts
from mario_tui.features import commands

EXPERIMENT = (
    ("mario-tui policies --json", "what is trained already, with rates"),
    ("mario-tui schema options", "every option of a run: type, bounds, what it does"),
    (
        "mario-tui sweep --game snake:5x5 --vary n-step=1,3 --seeds 2 --steps 20000 --eval-every 10000 --name compared",
        "starts runs in the background, and returns at once",
    ),
    ("mario-tui sweep wait compared --timeout 3600 --json", "status 124: not done in time"),
    ("mario-tui sweep status compared --json", "mean over seeds and 95 % interval of each setting"),
    (
        "mario-tui --detach --json --game snake:5x5 --n-step 3 --steps 20000 --eval-every 10000 --name single",
        "one run; returns once it trains, with its name and path",
    ),
    (
        "mario-tui follow single --log-format json --log-events evaluation,warning",
        "ends with the run; the last line is summary or failed",
    ),
    ("mario-tui stop single --json", "with a checkpoint; `--resume single` goes on"),
    ("mario-tui eval single --fresh --episodes 20 --json", "episodes that neither training nor its evaluations had"),
    ("mario-tui export single --tag 'eval/*' --output - --format jsonl", "the numbers behind a chart"),
)
"""Command lines of an experiment, in their order, and what each is for."""

_TEXT = """\
# mario-tui for assistants

For programs that train agents with mario-tui, such as coding assistants. `mario-tui assistants` prints this page; it is
made from the tables that the help and the schemas are made from.

mario-tui trains value-based agents (Double DQN and its family) on Super Mario Bros, Tetris, Snake and any Gymnasium
environment. A run belongs to a background process: it goes on when the command that started it ends. Nothing here needs
a terminal, an account or a network.

## An experiment in ten command lines

```
{experiment}
```

{explained}

## What to read

- Standard output is JSON where `--json` or `--log-format json` is given; messages for people go to standard error.
- Events of a run (`event` in each line): {events}. `warning` says what is wrong, `summary` or `failed` is the last.
- Compare settings by `result`: the chosen policy of each run over fresh episodes, as a mean over seeds with its 95 %
  interval. `best` is the largest of many evaluations, which is partly luck; `return` includes random actions.
- Two settings differ if their intervals do not overlap. With one seed, or overlapping intervals, say that you can't
  tell, and add seeds: `mario-tui sweep add NAME --seeds 3`.
- A number that is unknown or not finite is `null`.
- JSON Schemas, by `mario-tui schema NAME`: {schemas}.
- Exit statuses: 0 finished or stopped in order, 1 failed, 2 wrong usage or configuration (one line names the field and
  the accepted values: correct it, don't retry), 124 a `--timeout` has passed, and what was sent is still obeyed.

## When to stop

- Runs end by themselves after `--steps`, and are judged then; one that is stopped has no `result`. Give a run fewer
  steps rather than stop it.
- `mario-tui sweep ... --prune median` stops runs that fall behind, by a rule that is the same for all of them.
- Don't stop a run because it is bad at first: before `--burnin` steps it does not learn, and evaluations may stay at
  their lowest for most of a run. Compare with `evaluations` of earlier runs (`mario-tui runs --json --evaluations`).
- If you do stop one: the best policy so far is kept, and `--resume NAME` goes on.
- Stop only what you started: give your runs a `--tag`, and list them with `mario-tui runs --json --filter '#TAG'`.
- `--name`, `--tag` and `--note` let a person find an experiment; `mario-tui` shows it live, in a terminal.

## Tools instead of command lines

`mario-tui mcp` (extra `mcp`) is a server of the Model Context Protocol. In the configuration of its client:

```json
{{"mcpServers": {{"mario-tui": {{"command": "mario-tui", "args": ["mcp", "--run-dir", "/home/me/runs"]}}}}}}
```

Its tools list, compare, follow, evaluate and wait for the runs in that folder. With `--allow-start` there
are two more, which start and control runs; [options that can name code, a file or an address](security.md) are refused.

## Commands

{commands}

`mario-tui COMMAND --help` has the options of a command, `mario-tui --help-all` those of a run.
"""


def assistants_parser() -> argparse.ArgumentParser:
    about = "Print what a program needs that runs experiments: ten command lines, what to read, when to stop."
    return Parser(prog="mario-tui assistants", description=about)


def run(arguments: list[str]) -> int:
    assistants_parser().parse_args(arguments)
    print(text(), end="")
    return 0


def text() -> str:
    """The page, as Markdown."""
    return _TEXT.format(
        experiment="\n".join(line for line, _ in EXPERIMENT),
        explained="\n".join(f"{number}. {what}" for number, (_, what) in enumerate(EXPERIMENT, 1)),
        events=", ".join(f"`{name}`" for name in EVENT_NAMES),
        schemas=", ".join(f"`{name}`" for name in abouts()),
        commands="\n".join(
            f"- `mario-tui {f'{name} {each.usage}'.strip()}`: {each.about}" for name, each in commands().items()
        ),
    )
