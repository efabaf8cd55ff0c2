"""One row of the form: the option's name, its editor, and its help or error."""

from __future__ import annotations

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.events import DescendantFocus, Key
from textual.message import Message
from textual.widgets import Input, Select, Static

from mario_tui.data.form import ROWS, Form, accepted


class Choice(Select[str], inherit_bindings=False):
    """A select without arrow-key bindings, which belong to the form."""

    BINDINGS = [Binding("enter,space", "show_overlay", "Choose", show=False)]


class TextField(Input):
    """An input that receives letters from the screen instead of its own queue.

    A key that moves the focus goes through the application first. Letters typed after it in the same batch would
    otherwise still reach this widget.
    """

    async def _on_key(self, event: Key) -> None:
        event.prevent_default()

    def put_in(self, character: str) -> None:
        """Insert a character as if it had been typed here."""
        if self.selection.is_empty:
            self.insert_text_at_cursor(character)
        else:
            self.replace(character, *self.selection)


class FieldRow(Horizontal):
    """Shows a field of `form` and writes changes to it."""

    class Changed(Message):
        """The user changed the field."""

    class Entered(Message):
        """The field got the focus."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.field = name

    def __init__(self, form: Form, field: str) -> None:
        super().__init__(id=f"row-{field}", classes="option")
        self._form, self.field = form, field
        self._spec = ROWS[field]
        self.about = Text()
        """The full help or error."""

    def compose(self) -> ComposeResult:
        form, field = self._form, self.field
        yield Static(field.replace("_", "-"), classes="name")
        choices = ("on", "off") if isinstance(self._spec.default, bool) else self._spec.metadata["choices"]
        if choices:
            yield Choice(
                [(choice, choice) for choice in choices],
                value=form.text(field),
                allow_blank=False,
                id=f"edit-{field}",
                compact=True,
            )
        else:
            placeholder = form.default(field) or "none"
            yield TextField(form.typed(field), placeholder=placeholder, id=f"edit-{field}", compact=True)
        yield Static(classes="about")

    def on_mount(self) -> None:
        self.sync("")

    @property
    def editor(self) -> Input | Choice:
        editor = self.query_one(f"#edit-{self.field}")
        assert isinstance(editor, Input | Choice)
        return editor

    def sync(self, error: str) -> None:
        """Show the form's current value, and `error` if it is not empty."""
        form, editor = self._form, self.editor
        self.display = form.offered(self.field)
        with self.prevent(Input.Changed, Select.Changed):
            if isinstance(editor, Choice):
                if editor.value != form.text(self.field):
                    editor.value = form.text(self.field)
            else:
                editor.placeholder = form.default(self.field) or "none"
                if not form.typed(self.field) and editor.value.strip() != form.default(self.field):
                    editor.value = ""
        self.set_class(bool(error), "-wrong")
        self.set_class(bool(form.typed(self.field)), "-typed")
        help = str(self._spec.metadata["help"]).replace("%%", "%")
        limits = accepted(self.field)
        about = f"✗ {error}" if error else f"{help} ({limits})" if limits else help
        self.query_one(".about", Static).update(Text(about))
        self.about = Text(about)
        self.tooltip = self.about

    def take(self) -> bool:
        """Write the editor's value into the form; returns whether it changed."""
        form, value = self._form, str(self.editor.value)
        known = form.typed(self.field) if isinstance(self.editor, Input) else form.text(self.field)
        if value.strip() == known:
            return False
        form.set(self.field, value)
        return True

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.take():
            self.post_message(self.Changed())

    def on_select_changed(self, event: Select.Changed) -> None:
        event.stop()
        if self.take():
            self.post_message(self.Changed())

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        self.post_message(self.Entered(self.field))
