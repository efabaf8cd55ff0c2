"""What is typed wrong is one line, with the field and the accepted values, and status 2, before anything is started."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.support.program import refusal


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ("--no-ui --stepps 3", "unrecognized arguments: --stepps 3"),
        ("--no-ui --rom /etc/hostname", "--rom: /etc/hostname: not an iNES file"),
        ("--no-ui --actions fly", "--actions must be one of right-only, simple"),
        ("eval mario-1-1 --stage 0-1", "--stage must be 1-1 to 8-4, game, random"),
        ("--no-ui --steps -1", "--steps must be a whole number of at least 1, got -1"),
        ("--no-ui --stage 1-1,0-1 --curriculum", "--stage must be 1-1 to 8-4, game, random"),
        ("--no-ui --resume nothing", "--resume: nothing: no such run"),
        (
            "--no-ui --resume mario-1-1",
            "--resume: mario-1-1 is a policy that comes with the package, not a run or a checkpoint; to begin a run "
            "with the weights of a policy: --initial-policy mario-1-1",
        ),
        ("--no-ui --resume latest", "--resume latest: no run has a checkpoint yet"),
        ("--no-ui --resume /etc", "--resume: /etc: not a checkpoint of mario-tui"),
        ("--no-ui --config none.toml", "none.toml: can't be read (No such file or directory)"),
        ("--no-ui --device cuda:9", "--device: cuda:9: this machine has"),
        ("--no-ui --run-dir /proc/nowhere", "--run-dir: /proc/nowhere: can't be written"),
        ("eval nothing", "nothing: no such checkpoint; accepted: a policy file"),
        ("eval /etc/hostname", "/etc/hostname: not a policy of mario-tui"),
        ("eval x --episodes 0", "--episodes must be a whole number of at least 1, got '0'"),
        ("play nothing", "nothing: no such checkpoint"),
        ("play --stage 8-4", "CHECKPOINT: no policy comes with the package for mario 8-4; accepted: "),
        ("play latest --human", "CHECKPOINT can't be combined with --human"),
        ("attach nothing", "nothing: no such run"),
        ("--game mario", "the dashboard needs a terminal; use: mario-tui --no-ui"),
        ("--log-format json", "--log-format needs --no-ui"),
        ("--no-ui --log-events episode", "--log-events needs --no-ui --log-format json"),
        (
            "--no-ui --log-format json --log-events episode,x",
            "--log-events must be names among progress, episode, evaluation, ",
        ),
        ("--no-ui --steps 1e30", "--steps must be at most 9,007,199,254,740,992, got '1e30'"),
        ("eval mario-1-1 --seed 18446744073709551616", "--seed must be a whole number between 0"),
        ("eval snake-12x12 --stage 1-2", "--stage can't be combined with a policy for snake"),
        ("play mario-1-1 --board 10x10", "--board can't be combined with CHECKPOINT, which determines the board"),
        ("--no-ui --accumulate 300 --batch-size 256", "--accumulate must be at most --batch-size (256), got 300"),
        ("--no-ui --steps 1e99", "--steps must be at most 9,007,199,254,740,992, got '1e99'"),
        (
            "--no-ui --steps 999999999999999999999999999999",
            "--steps must be at most 9,007,199,254,740,992, got '999999999999999999999999999999'",
        ),
        ("--no-ui --seed inf", "--seed must be a whole number between 0 and 4,294,967,295, got 'inf'"),
        ("--read-only --no-ui", "--read-only can't be combined with --no-ui, which starts a run; use it alone"),
        ("--run-dir x --read-only --game snake", "--read-only can't be combined with --game"),
        ("--read-only --resume latest", "--read-only can't be combined with --resume"),
        ("--no-ui --name a/b", "--name: must be up to 100 letters, digits, '.', '_' and '-', beginning with"),
        ("--no-ui --name latest", "--name: must not be latest, or the name of a policy that comes with the package"),
        ("--no-ui --name mario-1-1", "--name: must not be latest, or the name of a policy that comes with"),
        ("--detach --no-ui", "argument --no-ui: not allowed with argument --detach"),
        ("--detach --eval-only", "--detach can't be combined with --eval-only, which starts no run"),
        ("--json", "--json needs --detach"),
        ("--detach --tag 'a b/c'", "--tag: each must be 1 to 24 letters, digits, - and _, got 'b/c'"),
        ("--read-only --tag a", "--read-only can't be combined with --tag"),
        ("--read-only --name a", "--read-only can't be combined with --name"),
        ("eval mario-1-1 --episodes 1.5", "--episodes must be a whole number of at least 1, got '1.5'"),
        ("eval mario-1-1 --episodes nan", "--episodes must be a whole number of at least 1, got 'nan'"),
        ("eval missing --noop-min 31", "missing: no such checkpoint"),
        ("eval mario-1-1 --noop-min 31 --noop-max 30", "--noop-min must be at most --noop-max (30), got 31"),
        ("play mario-1-1 --noop-min 256", "--noop-min must be a whole number between 0 and 255, got '256'"),
        ("eval mario-1-1 --sticky-actions 1", "--sticky-actions must be between 0 and 0.99, got '1'"),
        ("eval mario-1-1 --epsilon nan", "--epsilon must be between 0 and 1, got 'nan'"),
        ("eval snake-12x12 --noop-min 1", "--noop-min can't be combined with a policy for snake"),
        ("eval snake-12x12 --noop-max 30", "--noop-max can't be combined with a policy for snake"),
        ("play snake-12x12 --sticky-actions 0.1", "--sticky-actions can't be combined with a policy for"),
        ("play --board 5x5", "--board needs --game snake or --game tetris"),
        ("play --human --epsilon 0.1", "--epsilon can't be combined with --human; it is for policies"),
        ("play --hold 100", "--hold needs --human"),
        ("play --human --noop-max 0", "--noop-max can't be combined with --human; it is for policies"),
        ("distill mario-1-1 --minutes 0", "--minutes must be between 0.01 and 100,000, got '0'"),
        ("distill mario-1-1 --into one.pt", "--into must end in .safetensors, got 'one.pt'"),
        ("distill mario-1-1 --into no/one.safetensors", "--into must be in a folder that can be written to, got"),
        ("distill mario-1-1 missing", "missing: no such checkpoint"),
        ("distill snake-12x12 --network small", "--network can't be combined with policies for snake"),
        ("distill snake-12x12 --noop-max 3", "--noop-max can't be combined with policies for snake"),
        ("distill mario-1-1 --actions simple", "--actions needs a stage; policies keep their own"),
        (
            "distill 1-3 --actions fly",
            "--actions must be one of right-only, simple, complex, or a list such as noop,right,right+A of noop, "
            "right, left, down, up, A, B, got 'fly'",
        ),
        ("tune", "unknown command 'tune'; commands: attach, runs, stop, eval, "),
        ("evl mario-1-1", "unknown command 'evl'; did you mean eval? commands: attach, runs, "),
        ("list", "unknown command 'list'; did you mean runs? commands: attach, "),
        ("train --game snake", "unknown command 'train'; did you mean mario-tui --game mario? commands: "),
        ("kill latest", "unknown command 'kill'; did you mean stop? commands: "),
        ("--no-ui --num-proceses 2", "unrecognized arguments: --num-proceses 2; did you mean --num-processes?"),
        ("eval mario-1-1 --episods=3", "unrecognized arguments: --episods=3; did you mean --episodes? (see: mario-tui"),
        ("--no-ui --duration 3", "unrecognized arguments: --duration 3; did you mean mario-tui profile --duration?"),
        ("--no-ui --zzz", "unrecognized arguments: --zzz (see: mario-tui --help)"),
        ("--no-ui --preset apex", "--preset must be one of parallel-classic, apex-classic, apex-paper, snake-12x12, "),
        ("--no-ui --runner single --num-actors 3", "--num-actors is not an option of single; it needs --runner apex"),
        ("--no-ui --runner ddp --num-actors 3", "--num-actors is not an option of ddp; it needs --runner apex"),
        (
            "--no-ui --num-processes 3",
            "--num-processes is not an option of single; it needs --runner parallel or --runner ddp",
        ),
        (
            "--no-ui --runner parallel --checkpoint-replay",
            "--checkpoint-replay is not an option of parallel; it needs --runner single",
        ),
        (
            "--no-ui --runner apex --use-mmap-buffer",
            "--replay-device is not an option of apex; it needs --runner single or --runner parallel or --runner ddp",
        ),
        (
            "--no-ui --runner apex --no-async-envs",
            "--async-envs is not an option of apex; it needs --runner single or --runner parallel or --runner ddp",
        ),
        ("--no-ui --runner apex --num-actors 0", "--num-actors must be a whole number between 1 and 1,024, got 0"),
        ("--no-ui --preset apex-paper --runner single", "--num-actors is not an option of single"),
        ("--no-ui --runner dpp", "--runner must be one of single, parallel, ddp, apex, got 'dpp'"),
    ],
)
def test_it_is_one_line_and_status_2(arguments: str, complaint: str, tmp_path: Path) -> None:
    assert refusal(*shlex.split(arguments), cwd=tmp_path).startswith(f"mario-tui: error: {complaint}")
    assert list(tmp_path.iterdir()) == []
