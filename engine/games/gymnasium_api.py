"""The documented name of `engine.extras.gymnasium_api`: importing it registers the environments (docs/library.md)."""

from engine.config.features import feature

feature("gymnasium environments", __name__)
