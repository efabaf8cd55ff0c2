"""The documentation agrees with the repository: links, anchors, paths, modules, options, make targets and screens."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from engine.config.fields import flag
from engine.config.game import game_of, games
from engine.config.reading import ALIASES
from engine.config.run_config import options_of_all
from engine.protocol.json_lines import JSON_EVENTS, as_fields
from engine.protocol.messages import Episode
from mario_tui.data.keys import PLACES

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = [
    *sorted(path for folder in (".", "docs", "bench/experiments") for path in (ROOT / folder).glob("*.md")),
    ROOT / "checkpoints" / "policies" / "README.md",
]
CODE = ("engine", "mario_tui", "bench", "tests")
FOREIGN_FLAGS = {
    "--address", "--backend-store-uri", "--editable", "--force-reinstall", "--generate",
    "--head", "--install", "--local-addr", "--logdir", "--max-restarts", "--min-nodes", "--nnodes", "--nodes",
    "--nproc-per-node", "--ntasks-per-node", "--num-cpus", "--port", "--rdzv-backend", "--rdzv-conf",
    "--rdzv-endpoint", "--rdzv-id", "--requeue", "--scope", "--snapshot-update", "--standalone",
    "--system-config", "--tmux", "--user",
}  # fmt: skip
"""Options of Ray, torchrun, SLURM, pip, tensorboard, MLflow, systemd-run, Xcode and pytest that pages name."""

FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`]+)`")


def prose(page: Path) -> str:
    """The page without its code."""
    return SPAN.sub("code", FENCE.sub("", page.read_text("utf-8")))


def code(page: Path) -> list[str]:
    """Blocks and spans of code."""
    text = page.read_text("utf-8")
    return [*FENCE.findall(text), *SPAN.findall(FENCE.sub("", text))]


def anchors(page: Path) -> set[str]:
    """Of the headings, as MkDocs and Git servers make them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return {re.sub(r" +", "-", re.sub(r"[^\w\- ]", "", heading).strip().lower()) for heading in headings}


def modules(text: str) -> list[str]:
    """Dotted names of our packages."""
    return re.findall(rf"(?<![\w./-])(?:{'|'.join(CODE)})(?:\.\w+)+", text)


def is_module(name: str) -> bool:
    path = ROOT.joinpath(*name.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def on_pages(rule: Callable[[Path], Iterable[str]]) -> dict[str, list[str]]:
    """What a rule finds wrong on each page; nothing for pages that are right."""
    found = {str(page.relative_to(ROOT)): sorted(rule(page)) for page in PAGES}
    return {page: wrong for page, wrong in found.items() if wrong}


def broken_links(page: Path) -> Iterator[str]:
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / unquote(path)).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            yield link


def test_relative_links_and_their_anchors_resolve() -> None:
    assert on_pages(broken_links) == {}


def missing_paths(page: Path) -> list[str]:
    folders = "|".join((*CODE, "docs", "themes", "checkpoints/policies"))
    named = {
        path for text in code(page) for path in re.findall(rf"(?<![\w./~-])(?:{folders})/(?![A-Z])[\w./*<>-]*", text)
    }
    return [path for path in named if not any(ROOT.glob(re.sub(r"<\w+>", "*", path.rstrip("/."))))]


def test_paths_exist() -> None:
    assert on_pages(missing_paths) == {}


def missing_modules(page: Path) -> list[str]:
    text = "\n".join(code(page))
    started = re.findall(rf"python -m ((?:{'|'.join(CODE)})[\w.]*)", text)
    # Another dotted name may end with something that its module defines.
    others = [name for name in modules(text) if not is_module(name.rpartition(".")[0])]
    return [name for name in (*started, *others) if not is_module(name)]


def test_modules_exist() -> None:
    assert on_pages(missing_modules) == {}


def test_options_exist() -> None:
    known = {flag(name) for name in options_of_all()} | {flag(name) for name in ALIASES} | FOREIGN_FLAGS | {"--help"}
    for path in (
        path for folder in ("engine", "mario_tui", "bench", "tests/support") for path in ROOT.glob(f"{folder}/**/*.py")
    ):
        known |= set(re.findall(r'"(--[a-z][a-z-]*)"', path.read_text("utf-8")))
    known |= {f"--no-{name[2:]}" for name in known}

    def unknown(page: Path) -> set[str]:
        return {name for text in code(page) for name in re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)} - known

    assert on_pages(unknown) == {}


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))

    def unknown(page: Path) -> set[str]:
        return {name for text in code(page) for name in re.findall(r"\bmake ([a-z-]+)", text)} - targets

    assert on_pages(unknown) == {}


def test_the_messages_of_the_page_on_troubles_are_in_the_source() -> None:
    """Word for word but for what is filled in, which `...` stands for."""
    texts = [(ROOT / "Makefile").read_text("utf-8")]
    for path in (path for package in ("engine", "mario_tui") for path in (ROOT / package).rglob("*.py")):
        nodes = [*ast.walk(ast.parse(path.read_text("utf-8")))]
        docstrings = {node.value for node in nodes if isinstance(node, ast.Expr)}
        strings = [node for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        texts += [str(node.value) for node in strings if node not in docstrings]
    rows = re.findall(r"^- (.+?)\s– ", (DOCS / "troubleshooting.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    messages = [message for row in rows for message in SPAN.findall(row)]
    assert len(messages) >= 20
    parts = [part.strip() for message in messages for part in message.split("...") if len(part.strip()) > 2]
    assert [part for part in parts if not any(part in text for text in texts)] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 90


def test_every_page_is_in_the_navigation_and_in_the_readme() -> None:
    pages = {page.name for page in DOCS.glob("*.md")}
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8").split("\nnav:\n")[1]
    assert set(re.findall(r": ([\w-]+\.md)$", navigation, re.MULTILINE)) == pages
    linked = set(re.findall(r"\]\(docs/([\w-]+\.md)", (ROOT / "README.md").read_text("utf-8")))
    assert linked == pages - {"index.md", "contributing.md"}


def test_the_page_on_the_screens_has_a_table_of_keys_for_each() -> None:
    named = re.findall(r"^<!-- keys: (\w+) -->$", (DOCS / "dashboard.md").read_text("utf-8"), re.MULTILINE)
    assert sorted(named) == sorted((*PLACES, "every_chart"))


OF_GAMES = {"success", "results", "task", "cleared"}
"""Fields whose names in JSON lines are the game's."""


def test_the_json_lines_have_the_fields_that_the_page_lists() -> None:
    rows = re.findall(
        r"^- `(\w+)` \([^\0]*?\):\s((?:`\w+`,?\s*)+)", (DOCS / "headless.md").read_text("utf-8"), re.MULTILINE
    )
    assert {event: SPAN.findall(fields) for event, fields in rows} == {
        event: [field for field in content.__struct_fields__ if field not in {*left_out, *OF_GAMES}]
        for content, (event, left_out) in JSON_EVENTS.items()
    }


@pytest.mark.parametrize("game", games())
def test_the_page_lists_what_each_game_adds_to_an_episode(game: str) -> None:
    outcome = game_of(game).outcome
    results = tuple(0.0 for _ in outcome.results)
    episode = Episode(
        actor=0, lane=0, env_steps=1, episode=1, episode_return=0, length=1, success=False, epsilon=0, results=results
    )
    (listed,) = re.findall(rf"^- {game}: (.*)$", (DOCS / "headless.md").read_text("utf-8"), re.MULTILINE)
    own = as_fields(episode, outcome).keys() - ({*Episode.__struct_fields__} - OF_GAMES)
    assert own == {*SPAN.findall(listed)}
