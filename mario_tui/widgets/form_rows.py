"""Rows of the form: an option with its editor and its help or error, and the presets with the options that they set."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, OptionList, Select, Static
from textual.widgets.option_list import Option

from mario_tui.data.form import NO_PRESET, Form


class Choice(Select[str], inherit_bindings=False):
    """A select that left and right turn. Up, down and Enter belong to the form."""

    BINDINGS = [
        Binding("space", "show_overlay", "Choose", show=False),
        Binding("left", "turn(-1)", "Previous", show=False),
        Binding("right", "turn(1)", "Next", show=False),
    ]

    def __init__(self, choices: Sequence[str], *, value: str, id: str) -> None:
        super().__init__(_options(choices), value=value, allow_blank=False, id=id, compact=True)
        self.choices = choices

    def offer(self, choices: Sequence[str]) -> None:
        """Offer these choices instead, unless they are the same."""
        if choices != self.choices:
            self.choices = choices
            self.set_options(_options(choices))

    def action_turn(self, by: int) -> None:
        self.value = self.choices[(self.choices.index(str(self.value)) + by) % len(self.choices)]


def _options(choices: Sequence[str]) -> list[tuple[str, str]]:
    return [(choice, choice) for choice in choices]


class TextField(Input, inherit_bindings=False):
    """An input whose Enter belongs to the form."""

    BINDINGS = [binding for binding in Input.BINDINGS if isinstance(binding, Binding) and binding.action != "submit"]


class FieldRow(Horizontal):
    """Shows a field of `form` and writes changes to it."""

    class Changed(Message):
        """The user changed the field."""

    def __init__(self, form: Form, field: str) -> None:
        super().__init__(id=f"row-{field}", classes="option")
        self._form, self.field = form, field
        self.about = Text()
        """The full help, or the error."""
        self._shown = Text()
        self._seen = ""
        """The editor's value that the form was last told. Another one was typed since then, and its event is queued."""

    def compose(self) -> ComposeResult:
        yield Static(self.field.replace("_", "-"), classes="name")
        yield self.make_editor()
        yield Static(classes="about")

    def make_editor(self) -> Widget:
        form, field = self._form, self.field
        if form.choices(field):
            return Choice(self._choices(), value=form.text(field), id=f"edit-{field}")
        return TextField(form.typed(field), placeholder=form.default_shown(field), id=f"edit-{field}", compact=True)

    def on_mount(self) -> None:
        self._seen = self.value()
        self.sync("")

    @property
    def editor(self) -> Widget:
        return self.query_one(f"#edit-{self.field}")

    def sync(self, error: str) -> None:
        """Show the form's current value, unless a newer one was typed, and `error` if it is not empty."""
        form, field = self._form, self.field
        self.display = form.offered(field)
        if self.value() == self._seen:
            with self.prevent(Input.Changed, Select.Changed):
                self.show_value()
            self._seen = self.value()
        self.set_class(bool(error), "-wrong")
        self.set_class(bool(form.typed(field)), "-typed")
        limits = form.accepted(field)
        help, default = form.help(field), f"default: {form.default_shown(field)}"
        self.about = Text(f"✗ {error}" if error else f"{help} ({f'{limits}; ' if limits else ''}{default})")
        self.show_about(Text(f"✗ {error}" if error else f"{help} ({limits})" if limits else help))
        self.tooltip = self.about

    def show_value(self) -> None:
        form, field, editor = self._form, self.field, self.editor
        if isinstance(editor, Choice):
            editor.offer(self._choices())  # others once the game has changed
            if editor.value != form.text(field):
                editor.value = form.text(field)
        elif isinstance(editor, Input):
            editor.placeholder = form.default_shown(field)
            if not form.typed(field) and editor.value.strip() != form.default(field):
                editor.value = ""

    def _choices(self) -> list[str]:
        """Return what can be chosen: the field's values, and a typed one of another game, so that its error can be
        shown."""
        form, field = self._form, self.field
        return list(dict.fromkeys((*form.choices(field), form.text(field))))

    def show_about(self, text: Text) -> None:
        if text != self._shown:  # every key typed in the form comes here
            self._shown = text
            self.query_one(".about", Static).update(text)

    def value(self) -> str:
        """Return what the editor shows, which the form may not know yet."""
        editor = self.editor
        assert isinstance(editor, Input | Choice)
        return str(editor.value)

    def clear(self) -> None:
        """Empty the editor after the form was reset."""
        editor = self.editor
        if isinstance(editor, Input):
            with self.prevent(Input.Changed):
                editor.value = self._form.typed(self.field)
        self._seen = self.value()

    def take(self) -> bool:
        """Write the editor's value into the form; returns whether it changed."""
        form, value = self._form, self.value()
        self._seen = value
        known = form.typed(self.field) if isinstance(self.editor, Input) else form.text(self.field)
        if value.strip() == known:
            return False
        form.set(self.field, value)
        return True

    def changed(self) -> None:
        """Tell the screen, if the value differs from the form's."""
        if self.take():
            self.post_message(self.Changed())

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        self.changed()

    def on_select_changed(self, event: Select.Changed) -> None:
        event.stop()
        self.changed()


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
