"""Ape-X actors on a Ray cluster, as the learner sees them.

The learner is Ray's driver. It calls `play` on each actor, with two calls in flight, and each reply is a chunk
(`engine.extras.ray.chunks`), which it stores in the replay between two updates. So nothing grows without bound: to
pause, or to hold actors back, it does not call. A late reply is a missed heartbeat. This module replaces a lost actor,
because Ray's own restarts would play a chunk twice.
"""

from __future__ import annotations

import contextlib
import time
from typing import Any

import msgspec
import ray
import ray.exceptions
import torch
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from torch import nn

from engine.agents.weights import vector_of
from engine.buffers.frames import FrameStorage
from engine.buffers.memory import HostMemory
from engine.buffers.replay import ReplayBuffer
from engine.config.capabilities import NamesFiles
from engine.config.game import Spec
from engine.config.run_config import RunConfig
from engine.config.runners import Choices
from engine.errors import UserError
from engine.extras.ray.chunks import CheckedChunk, ChunkError, ChunkReader, Orders, encode_orders
from engine.extras.ray.cluster import GET_S, RayCluster
from engine.extras.ray.connection import elsewhere, is_nodes_fault, own_node, reason_of
from engine.extras.ray.greeting import decode_greeting, difference, greeting
from engine.extras.ray.remote_actor import RemoteActor
from engine.extras.ray.slot import Call, RemoteSlot
from engine.protocol.framing import HopelessError
from engine.protocol.messages import Machine
from engine.runners.learning.factory import shared_replay
from engine.runners.links import FrameMailbox, ParentLink
from engine.runners.processes import LEAVE_S
from engine.runners.shared_state import SharedState, step_s
from engine.runtime.processes import killed_with_parent, take_children
from engine.runtime.stopwatch import stopwatch

_IN_FLIGHT = 2
_WEIGHTS_EVERY_S = 1.0
_STALL_S = 1.0
"""A learner that has not looked for longer gives its actors that time in addition: what stalled it may stall them."""
_COLLECT_S = 0.05
"""Time to take over chunks between two updates."""


class RayActors:
    """The actors of a run on a Ray cluster; see `engine.runners.apex.Actors`. `address`: as `ray.init` takes it."""

    def __init__(self, config: RunConfig, spec: Spec, link: ParentLink, mailbox: FrameMailbox, address: str) -> None:
        self._config, self._link, self._mailbox = config, link, mailbox
        self._lanes = config.parallel_envs
        self.shared_state = SharedState(config.num_actors)
        self.replay: ReplayBuffer = shared_replay(config, spec, config.num_actors, HostMemory())
        self._reader = ChunkReader(spec, config.outcome, self._lanes, config.n_step, len(stopwatch.row()))
        self._slots = [RemoteSlot(index) for index in range(config.num_actors)]
        self._heartbeat_s = step_s(config)
        self._files = game.files(config) if isinstance(game := config.game_info, NamesFiles) else {}
        self._weights: Any = None
        self._updates, self._put_at = 0, float("-inf")
        self._collected_at = time.monotonic()
        self._first = 0
        """Slot whose reply is taken first, and which is called first."""
        self._any_built = False
        self.wire_bytes = 0
        self._class = ray.remote(concurrency_groups={"pulse": 1})(_NodeActor)  # type: ignore[call-overload]
        self._nodes = RayCluster(address, config.num_actors, link)

    @property
    def cluster(self) -> RayActors:
        return self

    def start(self, network: nn.Module, updates: int, choices: Choices, begun_at: int) -> None:
        self._choices, self._begun_at = choices.state(), begun_at  # every replacement needs them as well
        self.publish(network, updates)
        for slot in self._slots:
            self._start(slot)

    @stopwatch("synchronise")
    @torch.no_grad()
    def publish(self, network: nn.Module, updates: int) -> None:
        now = time.monotonic()
        if now - self._put_at >= _WEIGHTS_EVERY_S:
            self._put_at, self._updates = now, updates
            self._weights = ray.put(vector_of(network))

    @stopwatch("insert")
    def collect(self) -> None:
        now = time.monotonic()
        stall = max(0.0, now - self._collected_at - _STALL_S)
        self._collected_at = now
        self._nodes.check_head(now, stall)
        first = self._first = (self._first + 1) % len(self._slots)  # so that no actor has to wait for the others
        slots = [slot for slot in self._slots[first:] + self._slots[:first] if slot.awaited is not None]
        awaited = {slot.awaited: slot for slot in slots}
        ready, _ = ray.wait(list(awaited), num_returns=len(awaited), timeout=0) if awaited else ([], [])
        for reply in ready:
            self._receive(awaited.pop(reply), reply)
            if time.monotonic() - now > _COLLECT_S:  # learning must go on; the rest is there next time
                break
        late = awaited.keys() - set(ready)
        for slot in (awaited[reply] for reply in late):
            slot.since += stall
            self._feel_pulse(slot, now)
            if slot.greeting is not None and not self._nodes.has_free_core:
                slot.since = now  # Ray does not tell whether it waits for a core or starts
            elif slot.is_late(now, self._heartbeat_s):
                self._lost(slot, "it hung", suspect=slot.node)
        self._nodes.sample_load(now, (slot.node for slot in self._slots if slot.plays))
        self._call()

    def _feel_pulse(self, slot: RemoteSlot, now: float) -> None:
        """Ask an actor that has not answered whether its environment takes that long, and give it time if so."""
        if slot.is_silent(now):
            slot.pulse = slot.handle.pulse.remote()
        elif slot.pulse is not None and ray.wait([slot.pulse], timeout=0)[0]:
            pulse, slot.pulse = slot.pulse, None
            with contextlib.suppress(ray.exceptions.RayError):  # whatever is wrong, its answer will tell
                if hangs := ray.get(pulse, timeout=GET_S):
                    self._lost(slot, str(hangs), suspect=slot.node)
                elif hangs is not None:
                    slot.since = now

    def restarts(self, index: int) -> int:
        return self._slots[index].restarts

    def machine(self, index: int) -> str:
        """Return where actor `index` is; empty until it has started."""
        return self._slots[index].machine

    def waits_for_core(self, index: int) -> bool:
        """Return whether actor `index` has no process yet because every core of the cluster is taken."""
        starting = [slot.index for slot in self._slots if slot.greeting is not None]
        if index not in starting or self._nodes.has_free_core:
            return False
        have_cores = self._nodes.taken_cores - (len(self._slots) - len(starting))
        return starting.index(index) >= have_cores

    def machines(self) -> list[Machine]:
        return self._nodes.machines()

    def close(self, leave_s: float = LEAVE_S) -> None:
        """Stop the actors at once, whatever `leave_s` is."""
        self._nodes.close()

    # ------------------------------------------------------------------------------------------ one actor

    def _start(self, slot: RemoteSlot, suspect: str = "") -> None:
        """Start a process for an actor, if possible not on the node `suspect`, and never on one with other sources."""
        self._part(slot.index).end_episodes()
        strategy: Any = "DEFAULT"
        another = self._nodes.node_with_room([each.node for each in self._slots], suspect) if suspect else ""
        if another:  # Ray may take half a minute to notice that a node is gone
            strategy = NodeAffinitySchedulingStrategy(another, soft=True, _spill_on_unavailable=True)
        placed = self._class.options(
            num_cpus=1, max_restarts=0, max_task_retries=0, scheduling_strategy=strategy, **elsewhere(self._nodes.unfit)
        )
        handle: Any = placed.remote(
            self._config.options(),
            self._choices,
            slot.index,
            slot.restarts,
            self._begun_at,
            self._files,
            self.shared_state.level,
        )
        slot.begin(handle, handle.greet.remote())
        slot.node = another  # so that the next replacement knows that its core is taken

    def _receive(self, slot: RemoteSlot, reply: Any) -> None:
        try:
            data = ray.get(reply, timeout=GET_S)
        except ray.exceptions.RayError as error:
            self._lost(slot, reason_of(error), suspect=slot.node if is_nodes_fault(error) else "")
            return
        self._link.beat()
        now = time.monotonic()
        if slot.building is not None:
            slot.built()
            self._any_built = True
            self.shared_state.beat(slot.index)
        elif not isinstance(data, bytes):
            self._lost(slot, "its reply is not bytes", suspect=slot.node)
        elif slot.greeting is not None:
            self._greet(slot, data)
        else:
            call = slot.replied(now)
            try:
                checked = self._reader.decode(data, call.steps, call.screen)
            except ChunkError as error:
                self._lost(slot, str(error), suspect=slot.node)
                return
            self.wire_bytes += len(data)
            self._store(slot, checked)

    def _greet(self, slot: RemoteSlot, data: bytes) -> None:
        """Compare what the actor's machine has installed, before it is used."""
        try:
            its, ours = decode_greeting(data), greeting()
        except ValueError as error:
            self._lost(slot, f"not a greeting ({error})", suspect=slot.node)
            return
        slot.greeted(its.machine, its.node)
        if unlike := difference(its, ours):
            if not self._any_built:
                raise UserError(f"--ray: {unlike}; install the same on every node")
            self._nodes.unfit.append(its.node)  # a node that joined later must not end the run
            self._lost(slot, unlike, is_failed_start=False)
        else:
            slot.builds(slot.handle.build.remote())

    def _store(self, slot: RemoteSlot, checked: CheckedChunk) -> None:
        """Append the steps of a chunk to the replay, and count them."""
        chunk, index, state = checked.chunk, slot.index, self.shared_state
        part = self._part(index)
        for step, priorities in checked.steps():
            part.append(step, priorities)
        slot.played_in(chunk.seconds, chunk.steps)
        state.record(index, chunk.steps * self._lanes, chunk.emulated, checked.episodes)
        state.updates_of[index] = chunk.updates
        state.times[index] = chunk.times
        state.waited[index] += max(0.0, chunk.waited - slot.waited)
        slot.waited = chunk.waited
        state.beat(index)
        if checked.screen is not None:
            self._mailbox.write(checked.screen, chunk.thought)

    def _lost(self, slot: RemoteSlot, reason: str, suspect: str = "", *, is_failed_start: bool = True) -> None:
        """Replace an actor. What it has played and not sent is lost."""
        with contextlib.suppress(ray.exceptions.RayError):
            ray.kill(slot.handle)
        text = f"actor {slot.index}{f' on {slot.machine}' if slot.machine else ''} was lost ({reason})"
        if is_failed_start and slot.failed_starts.count(int(self.shared_state.steps_of[slot.index])):
            raise HopelessError(text)
        slot.restarts += 1
        self.shared_state.due[slot.index] = 0
        self._start(slot, suspect)
        self._link.log(f"{text}; restarted", "warning")

    def _part(self, index: int) -> FrameStorage:
        return self.replay.storage.part(index * self._lanes, self._lanes)

    # ------------------------------------------------------------------------------------------ all actors

    def _call(self) -> None:
        """Ask for chunks, as far as actors may play ahead."""
        state = self.shared_state
        allowed = state.env_steps_left - sum(call.steps for slot in self._slots for call in slot.calls) * self._lanes
        slots = self._slots[self._first :] + self._slots[: self._first]  # so that each actor may be the first
        playing = [slot for slot in slots if slot.plays]
        most = max(1, allowed // self._lanes // max(1, _IN_FLIGHT * len(playing)))
        for in_flight in range(_IN_FLIGHT):
            for slot in playing:
                if len(slot.calls) == in_flight and allowed > 0:
                    fps = state.screen_fps if slot.index == 0 else 0.0
                    steps, seconds = slot.chunk(self._lanes, len(self._slots), fps)
                    steps = min(steps, most)
                    self._send(slot, steps, seconds)
                    allowed -= steps * self._lanes

    def _send(self, slot: RemoteSlot, steps: int, seconds: float) -> None:
        state = self.shared_state
        orders = Orders(
            steps=steps,
            seconds=seconds,
            env_steps=state.env_steps,
            epsilon_scale=state.tuned("epsilon_scale"),
            gamma=state.tuned("gamma"),
            level=state.level,
            updates=self._updates,
            screen=slot.index == 0 and state.screen_fps > 0,
        )
        reply = slot.handle.play.remote(encode_orders(orders), self._weights)
        slot.called(Call(reply, steps, orders.screen, time.monotonic()))


class _NodeActor(RemoteActor):
    """A remote actor that knows its node, and ends with it even while it is suspended (SIGSTOP)."""

    def __init__(self, *arguments: Any) -> None:
        killed_with_parent()
        take_children()
        super().__init__(*arguments)

    def greet(self) -> bytes:
        return msgspec.msgpack.encode(greeting(own_node()))

    @ray.method(concurrency_group="pulse")
    def pulse(self) -> str | None:  # type: ignore[override]
        return super().pulse()
