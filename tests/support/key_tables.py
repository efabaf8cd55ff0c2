"""The key tables of `docs/dashboard.md`, generated from `mario_tui.data.keys`.

    python -m tests.support.key_tables

rewrites them in place. The keys of charts, which several screens share, have one table.
"""

from __future__ import annotations

import re
from pathlib import Path

from mario_tui.data.keys import PLACES, Place, keys_in, shown_name

PAGE = Path(__file__).parents[2] / "docs" / "dashboard.md"
_OF_CHARTS = "Charts: "
_TABLE = re.compile(r"(<!-- keys: (\w+) -->\n).*?(<!-- end of keys -->)", re.DOTALL)


def key_table(place: Place, *, of_charts: bool = False) -> str:
    """The Markdown table of one screen's keys, without those of its charts or with only them."""
    rows = ["| key | action |", "|---|---|"]
    for key in keys_in(place):
        if key.help.startswith(_OF_CHARTS) == of_charts:
            names = ", ".join(f"`{name}`" for name in shown_name(key).split(" or "))
            help = key.help.removeprefix(_OF_CHARTS)
            rows.append(f"| {names} | {help[0].upper()}{help[1:]} |")
    return "\n".join(rows)


def with_key_tables(text: str) -> str:
    """The page with its tables generated anew. Raises `KeyError` if a screen has no table or an unknown name."""
    tables = {str(place): key_table(place) for place in PLACES}
    tables["every_chart"] = key_table("charts", of_charts=True)
    text = _TABLE.sub(lambda found: f"{found[1]}\n{tables.pop(found[2])}\n\n{found[3]}", text)
    if tables:
        raise KeyError(f"no table of keys for {', '.join(tables)}")
    return text


if __name__ == "__main__":
    PAGE.write_text(with_key_tables(PAGE.read_text("utf-8")), encoding="utf-8")
