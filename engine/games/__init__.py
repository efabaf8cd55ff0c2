"""The games: a package for each, behind the contract of `engine.config.game`."""

from engine.config.features import is_there

_PLACES = {
    "mario": "engine.games.mario.game:Mario",
    "snake": "engine.games.snake.game:Snake",
    "tetris": "engine.games.tetris.game:Tetris",
    "gym": "engine.games.gym.game:Gym",
}
BUILT_IN = {name: place for name, place in _PLACES.items() if is_there(place)}
"""Where each game's descriptor is, by the game's name. Those on boards may be missing: `snake` and `tetris`, and with
both `boards`."""
