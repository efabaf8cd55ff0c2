"""The data behind the screens, without drawing: events, event files, forms, settings, keys, themes."""
