"""What screens show and edit, without drawing it: events, event files, forms, settings, keys, themes."""
