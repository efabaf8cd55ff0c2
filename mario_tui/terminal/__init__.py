"""The terminal itself: safe output, and how much a slow link can take."""
