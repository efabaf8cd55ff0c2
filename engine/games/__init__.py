"""The games: a package for each, behind the contract of `engine.config.game`."""

BUILT_IN = {
    "mario": "engine.games.mario.game:Mario",
    "snake": "engine.games.snake.game:Snake",
    "tetris": "engine.games.tetris.game:Tetris",
    "gym": "engine.games.gym.game:Gym",
}
"""Where each game's descriptor is, by the game's name."""
