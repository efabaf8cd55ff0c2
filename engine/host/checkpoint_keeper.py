"""Commits the checkpoints that a run's learner has written, and knows the newest, from which the run can restart."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path

from engine.errors import UserError
from engine.protocol.messages import Written
from engine.runs import checkpoints
from engine.runs.run import Run

_ATTEMPTS, _RETRY_S = 3, 1.0


class CheckpointKeeper:
    """`start`: the checkpoint from which the run starts, perhaps of another run; `keep`: how many are kept."""

    def __init__(self, run: Run, keep: int, start: Path | None) -> None:
        self._run, self._keep = run, keep
        self.newest = start
        self._damaged = set[Path]()
        self.env_steps = -1
        """Environment steps of the run at the newest checkpoint; -1 while unknown."""

    @property
    def newest_path(self) -> str | None:
        return None if self.newest is None else str(self.newest)

    def read_env_steps(self) -> int:
        """`env_steps`, as the newest checkpoint says it. Raises `UserError` if that can't be read."""
        if self.newest is not None:
            self.env_steps = checkpoints.read_manifest(self.newest).env_steps
        return self.env_steps

    def recover(self) -> list[tuple[str, str]]:
        """Commit checkpoints that were written completely before a crash. Returns log lines (level, text), also of
        damaged ones. Any checkpoint of this run is newer than another run's, from which it may have started."""
        notes = []
        start = self.newest
        for path in checkpoints.recover(self._run):
            notes.append(("info", f"{path.name} was written before a crash; it is committed now"))
            if start is None or start.parent != path.parent or path > start:
                start = path
                self.env_steps = checkpoints.read_manifest(path).env_steps
        self.newest = start
        for path in checkpoints.folders(self._run):
            if start is not None and start.parent == path.parent and path > start:
                try:
                    checkpoints.verify(path)
                except UserError as error:
                    self._damaged.add(path)
                    notes.append(("warning", f"skipping a newer checkpoint: {error}"))
        return notes

    async def commit(self, written: Written) -> OSError | UserError | None:
        """Check and rename a checkpoint, and remove old ones. Returns the error if it could not be committed."""
        final = Path(written.final)
        for tries_left in range(_ATTEMPTS - 1, -1, -1):
            try:
                await asyncio.to_thread(checkpoints.commit, Path(written.partial), final)
                break
            except (OSError, UserError) as error:
                if not tries_left:
                    return error
                await asyncio.sleep(_RETRY_S)  # free file descriptors may be back in a moment
        self._damaged.discard(final)
        self.newest, self.env_steps = final, written.env_steps
        with contextlib.suppress(OSError):  # the next one removes them
            await asyncio.to_thread(checkpoints.rotate, self._run, self._keep, self._damaged)
        return None
