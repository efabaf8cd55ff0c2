"""MkDocs hook: files of the repository outside `docs/` that pages link to become part of the site.

MkDocs only knows files below `docs/`, but pages show pictures of `bench/` and `tests/` and link to `CONTRIBUTING.md`,
with relative links that also work on a Git server. Here such a file gets the address `repository/<path>`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parent.parent
_PREFIX = "repository/"
_OUTSIDE = re.compile(r"\]\(\.\./([^)#\s]+)")
_TO_FOLDER = re.compile(r"\[([^\]]+)\]\(\.\./([^)#\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    pages = [page.content_string for page in files.documentation_pages()]
    for path in sorted({unquote(link) for text in pages for link in _OUTSIDE.findall(text)}):
        if not (ROOT / path).is_file():
            continue  # MkDocs reports the link
        uri = _uri(path)
        if path.endswith(".md"):
            content = _links_from_root((ROOT / path).read_text("utf-8"))
            files.append(File.generated(config, uri, content=content))
        else:
            files.append(File.generated(config, uri, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    if page.file.src_uri.startswith(_PREFIX):
        return markdown  # written for its place in the site already
    markdown = _TO_FOLDER.sub(lambda found: found[1] if (ROOT / unquote(found[2])).is_dir() else found[0], markdown)
    return _OUTSIDE.sub(lambda found: f"]({quote(_uri(unquote(found[1])))}", markdown)


def _uri(path: str) -> str:
    """Where a file is in the site. Brackets and such in names of snapshots would need quoting everywhere."""
    return _PREFIX + re.sub(r"[^\w./-]", "-", path)


def _links_from_root(text: str) -> str:
    """A page of the root: its links to `docs/` go one folder up, those to other files have no target in the site."""
    text = text.replace("](docs/", "](../")
    return re.sub(r"\[([^\]]+)\]\((?!\.\./|https?:)[^)]+\)", r"`\1`", text)
