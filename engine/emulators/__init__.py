"""The name of `engine.console` until version 0.2."""

raise ImportError("engine.emulators is engine.console now; see docs/console.md")
