"""MkDocs hooks: the pages' tables of keys, and files of the repository outside `docs/` that pages link to.

`<!-- keys: PLACE -->` becomes the table of that screen's keys, from `mario_tui.data.keys`; `<!-- packages -->` that of
the engine's packages, from `pyproject.toml` and their docstrings.

MkDocs only knows files below `docs/`, but pages show pictures of `bench/` and `tests/` and link to `CONTRIBUTING.md`
and to `bench/experiments/`, with relative links that also work on a Git server. Here such a file gets the address
`repository/<path>`, and so do the files that it links to.
"""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from posixpath import dirname, normpath, relpath
from typing import Any, cast
from urllib.parse import quote, unquote

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from mario_tui.data.keys import Place, keys_in, shown_name

ROOT = Path(__file__).parent.parent
_PREFIX = "repository/"
_KEYS = re.compile(r"^<!-- keys: (\w+) -->$", re.MULTILINE)
_OF_CHARTS = "Charts: "
_LINK = re.compile(r"\[([^\]]*)\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    waiting = [(f"docs/{page.src_uri}", page.content_string) for page in files.documentation_pages()]
    known: set[str] = set()
    while waiting:
        page, text = waiting.pop()
        for path in sorted({_target(page, link) for _, link, _ in _LINK.findall(text)} - known):
            if path.startswith("docs/") or not (ROOT / path).is_file():
                continue  # MkDocs knows it, or reports the link
            known.add(path)
            if path.endswith(".md"):
                content = (ROOT / path).read_text("utf-8")
                waiting.append((path, content))
                files.append(File.generated(config, _uri(path), content=_for_the_site(content, path)))
            else:
                files.append(File.generated(config, _uri(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    if page.file.src_uri.startswith(_PREFIX):
        return markdown  # written for its place in the site already
    markdown = _KEYS.sub(_key_table, markdown).replace("<!-- packages -->", _package_table())
    return _for_the_site(markdown, f"docs/{page.file.src_uri}")


def _key_table(found: re.Match[str]) -> str:
    """The keys of one screen without those of its charts, which several screens share: they are `every_chart`."""
    of_charts = found[1] == "every_chart"
    place = cast(Place, "charts" if of_charts else found[1])
    rows = ["| key | action |", "|---|---|"]
    for key in keys_in(place):
        if key.help.startswith(_OF_CHARTS) == of_charts:
            names = ", ".join(f"`{name}`" for name in shown_name(key).split(" or "))
            help = key.help.removeprefix(_OF_CHARTS)
            rows.append(f"| {names} | {help[0].upper()}{help[1:]} |")
    return "\n".join(rows)


def _package_table() -> str:
    """The engine's packages, from the highest layer to the lowest, with the first sentences of their docstrings."""
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contract = next(each for each in pyproject["tool"]["importlinter"]["contracts"] if each["containers"] == ["engine"])
    rows = ["| package | holds |", "|---|---|"]
    for name in (name for layer in contract["layers"] for name in layer.split(" | ")):
        path = ROOT / "engine" / name
        source = (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text("utf-8")
        first = re.split(r"(?<=\.)\s", ast.get_docstring(ast.parse(source)) or "")[0]
        rows.append(f"| `engine.{name}` | {' '.join(first.split())} |")
    return "\n".join(rows)


def _for_the_site(text: str, page: str) -> str:
    """A page of the repository with links that hold in the site; folders have no address there."""

    def link(found: re.Match[str]) -> str:
        target = _target(page, found[2])
        if (ROOT / target).is_dir():
            return found[1]
        return f"[{found[1]}]({quote(relpath(_uri(target), dirname(_uri(page))))}{found[3] or ''})"

    return _LINK.sub(link, text)


def _target(page: str, link: str) -> str:
    """The path in the repository to which a link of a page leads."""
    return normpath(f"{dirname(page)}/{unquote(link)}" if dirname(page) else unquote(link))


def _uri(path: str) -> str:
    """Where a file is in the site. Brackets and such in names of snapshots would need quoting everywhere."""
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return _PREFIX + re.sub(r"[^\w./-]", "-", path)
