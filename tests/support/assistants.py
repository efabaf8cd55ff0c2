"""Writes `docs/assistants.md` and `llms.txt` (https://llmstxt.org): `python -m tests.support.assistants`."""

from __future__ import annotations

from pathlib import Path

from mario_tui.extras.assistants import text

ROOT = Path(__file__).parents[2]
PAGE, INDEX = ROOT / "docs" / "assistants.md", ROOT / "llms.txt"


def index() -> str:
    """The page with its first paragraph as a quotation, and links to the other pages with theirs."""
    title, first, rest = text().split("\n\n", 2)
    quoted = "\n".join(f"> {line}" for line in first.splitlines())
    links = [_link(page) for page in sorted((ROOT / "docs").glob("*.md")) if page != PAGE]
    return f"{title}\n\n{quoted}\n\n{rest}\n## Pages\n\n" + "\n".join(links) + "\n"


def _link(page: Path) -> str:
    title, first, *_ = page.read_text("utf-8").split("\n\n", 2)
    about = " ".join(first.split()).split(". ")[0].removesuffix(".")
    linked = f"[{title.removeprefix('# ')}](docs/{page.name})"
    return f"- {linked}: {about}" if "](" not in about else f"- {linked}"


if __name__ == "__main__":
    PAGE.write_text(text(), "utf-8")
    INDEX.write_text(index(), "utf-8")
