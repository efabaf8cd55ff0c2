"""The presets of the form, one a line, and the options that the chosen one sets."""

from __future__ import annotations

from rich.text import Text
from textual.binding import Binding
from textual.widget import Widget
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from mario_tui.data.form import NO_PRESET, PRESET, Form
from mario_tui.widgets.field_row import FieldRow

_NAME_CELLS = 17


class PresetList(OptionList, inherit_bindings=False):
    """A list whose highlighted line is the chosen one. Up, down and Enter belong to the form."""

    BINDINGS = [Binding("home", "first", "First", show=False), Binding("end", "last", "Last", show=False)]

    @property
    def value(self) -> str:
        return NO_PRESET if self.highlighted is None else str(self.get_option_at_index(self.highlighted).id)

    def step(self, by: int) -> bool:
        """Choose the line above or below; returns whether there is one."""
        to = (self.highlighted or 0) + by
        if not 0 <= to < self.option_count:
            return False
        self.highlighted = to
        return True


class PresetRow(FieldRow):
    """The field of the preset, which takes several lines."""

    def make_editor(self) -> Widget:
        return PresetList(
            *(Option(name, id=name) for name in self._form.presets()), id=f"edit-{self.field}", compact=True
        )

    @property
    def _list(self) -> PresetList:
        return self.query_one(PresetList)

    def show_value(self) -> None:
        chosen = self._form.text(self.field)
        with self.prevent(OptionList.OptionHighlighted):
            self._list.highlighted = self._list.get_option_index(chosen)
        for name, about in self._form.presets().items():
            mark = "●" if name == chosen else "○"
            self._list.replace_option_prompt(name, Text(f"{mark} {name:{_NAME_CELLS}} {about}"))

    def show_about(self, text: Text) -> None:
        """Below the list, the options of the chosen preset; its line has its place below the fields."""
        sets = self._form.preset_sets()
        super().show_about(Text(f"Sets {sets}. What you fill in overrides it." if sets else ""))
        self.about = Text(self._form.presets()[self._form.text(self.field)])

    def value(self) -> str:
        return self._list.value

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        event.stop()
        self.changed()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """A click, which has highlighted the line as well."""
        event.stop()


def make_row(form: Form, field: str) -> FieldRow:
    """The row of any field."""
    return (PresetRow if field == PRESET else FieldRow)(form, field)
