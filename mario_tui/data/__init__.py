"""The data behind the screens, without drawing: events, forms, settings, keys, themes."""
