"""Keeps an engine running: starts it, watches it, starts it again, and says in which state it is."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import msgspec
import structlog

from pdmuxd.controlplane.node.engine_status import EngineState, EngineStatus
from pdmuxd.daemon.supervisor import child
from pdmuxd.daemon.supervisor.backoff import Backoff
from pdmuxd.daemon.supervisor.enginelog import EngineLog
from pdmuxd.daemon.supervisor.events import EngineAccepting, EngineStateChanged, Publish
from pdmuxd.daemon.supervisor.handle import EngineHandle
from pdmuxd.daemon.supervisor.orphan import end_orphan
from pdmuxd.daemon.supervisor.plan import EnginePlan
from pdmuxd.daemon.supervisor.run import EngineRun
from pdmuxd.daemon.supervisor.sync import SettingsSync
from pdmuxd.daemon.tokens.counts import TokenCounts
from pdmuxd.engine.core.errors import ConflictError, EngineError, EngineSetupError, LinkError
from pdmuxd.engine.link.messages import EngineSettings

# From each state, the states that may follow.
TRANSITIONS: dict[EngineState, tuple[EngineState, ...]] = {
    "starting": ("serving", "down", "draining"),
    "serving": ("down", "draining"),
    "down": ("starting", "draining"),
    "draining": ("down", "serving"),
}

log = structlog.get_logger("pdmuxd.supervisor")


@dataclass(frozen=True, slots=True)
class _Given:
    """An engine that another daemon may take over."""

    handle: EngineHandle
    process: child.EngineProcess


class Supervisor:
    """Runs one engine at a time, in a task of its own, between `start` and `stop`."""

    def __init__(
        self,
        plan: EnginePlan,
        *,
        settings: EngineSettings,
        publish: Publish,
        policy: str | None = None,
    ) -> None:
        """`policy` is the plan's, for while `settings` name none."""
        self._plan = plan
        self._publish = publish
        self._next_policy = self._plan_policy = policy or settings.policy
        self._set_policy: str | None = settings.policy or None if policy is not None else None
        """By an operator, while serving; None: the plan's."""
        wanted = msgspec.structs.replace(settings, policy=settings.policy or self._plan_policy)
        self._sync = SettingsSync(wanted, plan_policy=self._plan_policy)
        self._log = EngineLog(plan.log_path)
        self._backoff = Backoff(initial_s=plan.backoff_initial_s, max_s=plan.backoff_max_s)
        self._state: EngineState = "starting"
        self._since_s = time.time()
        self._serving_s: float | None = None
        self._run: EngineRun | None = None
        self.token_counts = TokenCounts()
        """Of all engines' tokens that came straight from their schedulers."""
        self._started_runs = 0
        self._last_error: str | None = None
        self._needs_change = False
        self._has_served = False
        self._fatal: str | None = None
        self._is_stopping = False
        self._is_held = False
        self._at_once = asyncio.Event()
        self._given: _Given | None = None
        self._is_giving = False
        self._decided = asyncio.Event()
        """Whether the engine that was given away was taken, or is taken back."""
        self._changed = asyncio.Event()
        self._in_flight: Callable[[], Iterable[str]] = tuple
        self._task: asyncio.Task[None] | None = None

    async def start(
        self, adopted: EngineHandle | None = None, *, in_flight: Callable[[], Iterable[str]] = tuple
    ) -> None:
        """End what an earlier daemon left behind and start the first engine; does not wait until it serves.

        `in_flight` is asked for the requests that an engine works on, when it is lost.
        Or take the engine `adopted` over from a daemon that gives it away; if that fails, nothing else is
        started and `fatal` says why. Raises: EngineError if the earlier engine does not go away.
        """
        self._in_flight = in_flight
        if adopted is not None:
            self._is_held = adopted.is_held
            self._task = asyncio.create_task(self._keep_running(adopted), name="supervisor")
            return
        orphan = await end_orphan(self._plan.record_path)
        if orphan is not None:
            log.warning("ended the engine that an earlier daemon left", pid=orphan)
        self._task = asyncio.create_task(self._keep_running(), name="supervisor")

    def want(self, settings: EngineSettings) -> None:
        """Bring `settings` into force in the engine, and in every later one; a policy of "" is the plan's."""
        self._set_policy = settings.policy or None
        policy = settings.policy or self._plan_policy
        self._sync.want(msgspec.structs.replace(settings, policy=policy))

    def use_floors(self, floors_s: Mapping[str, float]) -> None:
        """Tell engines the strictest TBT targets to plan for, by tenant that is capped, and the one that runs
        at once."""
        self._sync.use_floors(floors_s)

    def use_delivery(self, delivery_s: float) -> None:
        """Tell engines by how much gaps are longer at clients, and the one that runs at once."""
        self._sync.use_delivery(delivery_s)

    def use_plan(self, plan: EnginePlan, *, policy: str) -> None:
        """Start the next engine by `plan`, with `policy` unless an operator has set one."""
        self._plan, self._next_policy = plan, policy
        self._backoff.initial_s, self._backoff.max_s = plan.backoff_initial_s, plan.backoff_max_s

    def begin_drain(self) -> None:
        """Say that the end is near; the engine goes on, but will not be started again."""
        self._is_stopping = True
        if self._state != "draining":
            self._enter("draining", None)

    @property
    def is_stopping(self) -> bool:
        """Whether the daemon is about to end."""
        return self._is_stopping

    @property
    def is_held(self) -> bool:
        """Whether an operator drains the engine, or the one that comes after it."""
        return self._is_held

    @property
    def wanted(self) -> EngineSettings:
        return self._sync.wanted

    def hold(self) -> None:
        """Have new requests refused until `release` or `restart`; the next engine is held as well."""
        if not self._is_held and self._state == "serving":
            self._is_held = True
            self._enter("draining", "an operator drains it")

    def release(self) -> None:
        """Serve again after `hold`."""
        if self._is_held:
            self._is_held = False
            if self._state == "draining" and not self._is_stopping:
                self._enter("serving", None)

    def restart(self) -> None:
        """End the engine, if there is one, and start the next without delay; nothing is held any more."""
        self._is_held = False
        self._at_once.set()
        if self._run is not None:
            self._run.end()

    def start_now(self) -> bool:
        """End the wait before the next start; whether there was one."""
        if self._state != "down" or self._is_stopping:
            return False
        self._at_once.set()
        return True

    async def give_away(self) -> EngineHandle:
        """Let go of the engine that serves, and of its link, and stay as if it still served.

        Another daemon may take it over now. Afterwards call `take_back`, or `confirm_given` if it did.
        Raises: ConflictError if no engine serves.
        """
        run, task = self._run, self._task
        if self._state not in ("serving", "draining") or self._is_stopping or run is None or task is None:
            raise ConflictError(
                f"the engine is {self._state}; only one that serves can be given to another daemon"
            )
        if run.silent_s is not None:
            raise ConflictError(f"the engine is silent; {self.not_ready_because()}")
        self._is_giving = True
        self._decided.clear()
        run.give_away()
        await asyncio.wait((task,))
        if run.handle is None or run.process is None or run.process.has_ended:
            self.take_back()
            raise EngineError("the engine ended while it was given to another daemon")
        self._given = _Given(run.handle, run.process)
        return msgspec.structs.replace(run.handle, is_held=self._is_held)

    def take_back(self) -> None:
        """The other daemon did not take the engine: go on with it."""
        if self._is_giving:
            given, self._given, self._is_giving = self._given, None, False
            if given is None:
                self._enter("down", self._last_error)
                self._next_start()
            self._task = asyncio.create_task(self._keep_running(given), name="supervisor")
            self._decided.set()

    def confirm_given(self) -> None:
        """The other daemon has the engine; here it is only noticed when it ends."""
        if self._given is not None:
            self._task = asyncio.create_task(self._watch_given(self._given.process), name="supervisor")
            self._decided.set()

    async def _watch_given(self, process: child.EngineProcess) -> None:
        await process.wait()
        if self._state != "down":
            self._enter("down", "it ended under the daemon that has taken it over")
        await asyncio.Event().wait()

    async def stop(self, *, at_once: bool = False) -> None:
        """End the engine, by killing it if `at_once`, and stay down; one that was given away goes on."""
        if self._is_giving:
            if self._task is not None:
                self._task.cancel()
                await asyncio.wait((self._task,))
            if self._given is not None:
                self._given.process.leave()
            return
        if self._state != "down":
            self.begin_drain()
        if self._run is not None and at_once:
            self._run.stop_grace_s = 0.0
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
        if self._state != "down":
            self._enter("down", "stopped")

    async def ended(self) -> None:
        """Wait until nobody watches the engine any more, which only `stop` should bring about."""
        while self._task is not None:
            await asyncio.wait((self._task,))
            if not self._is_giving:
                return
            await self._decided.wait()

    @property
    def fatal(self) -> str | None:
        """Why the first engine cannot be started before somebody changes something; then nobody watches."""
        return self._fatal

    def is_alive(self) -> bool:
        """Whether somebody watches the engine; if not, the daemon is of no use."""
        return self._task is not None and not self._task.done()

    def not_ready_because(self) -> str | None:
        """None if requests are served under the settings that are wanted, else why not."""
        if self._state != "serving":
            doing = self._run.stage if self._run is not None and self._state == "starting" else None
            why = self._last_error or doing
            return f"the engine is {self._state}" + (f": {why}" if why else "")
        silent_s = self._run.silent_s if self._run is not None else None
        if silent_s is not None:
            return f"the engine has sent nothing for {silent_s:.0f} s"
        if not self._sync.in_force:
            behind = f"settings {self._sync.wanted_version} are not in force yet"
            return self._sync.refusal or behind
        return None

    async def wait_serving(self) -> None:
        while self._state != "serving":
            await self._changed.wait()

    @property
    def link(self) -> str | None:
        """The running engine's address; None if there is none. Callable from any thread."""
        handle = None if self._run is None else self._run.handle
        return None if handle is None else handle.link

    def status(self) -> EngineStatus:
        """The engine as the control plane and the metrics show it; callable from any thread."""
        run = self._run
        return EngineStatus(
            state=self._state,
            since_s=self._since_s,
            pid=run.pid if run is not None else None,
            restarts=max(0, self._started_runs - 1),
            hello=run.hello if run is not None else None,
            stats=run.stats if run is not None else None,
            acked_version=self._sync.acked_version,
            wanted_version=self._sync.wanted_version,
            last_error=self._sync.refusal or self._last_error,
            is_held=self._is_held,
            profile_difference=self._sync.profile_difference,
            policy_difference=self._sync.policy_difference,
        )

    async def _keep_running(self, given: EngineHandle | _Given | None = None) -> None:
        """One engine after the other. One of a handle is on probation: if it does not serve, it is left."""
        is_on_probation = isinstance(given, EngineHandle)
        while True:
            self._last_error = await self._one_engine(given)
            if self._is_giving and not self._is_stopping:
                return
            given = None
            if self._is_stopping:
                self._enter("down", self._last_error)
                return
            if self._at_once.is_set():
                log.info("engine ended to be restarted")
                self._enter("down", self._last_error)
                self._next_start()
                continue
            if (self._needs_change or is_on_probation) and not self._has_served:
                # Nobody is served yet, and trying again would only hide what is wrong.
                self._fatal = self._last_error
                self._enter("down", self._last_error)
                return
            served_s = 0.0 if self._serving_s is None else time.monotonic() - self._serving_s
            delay_s = self._backoff.delay_s(served_s=served_s)
            if self._needs_change:
                # Trying again soon would only fill the log; but what was missing may have been put there.
                delay_s = self._plan.backoff_max_s
            log.error("engine is down", reason=self._last_error, next_start_s=delay_s)
            self._enter("down", self._last_error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._at_once.wait(), delay_s)
            if self._is_stopping:
                self._enter("down", self._last_error)
                return
            self._next_start()

    def _next_start(self) -> None:
        self._at_once.clear()
        self._enter("starting", self._last_error)

    async def _one_engine(self, given: EngineHandle | _Given | None) -> str:
        """Run one engine, `given` if there is one, to its end and say why it ended."""
        self._serving_s = None
        self._needs_change = False
        self._started_runs += 1
        if given is None:
            self._plan_policy = self._next_policy
            self._sync.use_policy(self._set_policy or self._plan_policy)
        self._run = EngineRun(
            self._plan,
            sync=self._sync,
            engine_log=self._log,
            publish=self._publish,
            on_serving=self._on_serving,
            adopted=given.handle if isinstance(given, _Given) else given,
            process=given.process if isinstance(given, _Given) else None,
            token_counts=self.token_counts,
            in_flight=self._in_flight,
        )
        try:
            await self._run.run()
        except EngineSetupError as error:
            self._needs_change = True
            return str(error) + (" (it will fail again until that is changed)" if self._has_served else "")
        except (EngineError, LinkError) as error:
            return str(error)
        except Exception as error:
            # The one broad handler: whatever a single engine's life brings, the next engine is started.
            log.exception("engine run failed unexpectedly")
            return f"unexpected {type(error).__name__}: {error}"
        finally:
            self._run = None
        return "the engine ended"

    def _on_serving(self) -> None:
        self._serving_s = time.monotonic()
        self._has_served = True
        self._last_error = None
        if self._state == "starting":
            if self._is_held:
                self._enter("draining", "an operator drains it")
            else:
                self._enter("serving", None)

    def _enter(self, state: EngineState, reason: str | None) -> None:
        if state not in TRANSITIONS[self._state]:
            raise EngineError(f"the engine cannot go from {self._state} to {state}")
        self._state, self._since_s = state, time.time()
        self._changed.set()
        self._changed = asyncio.Event()
        if state == "serving":
            self._publish(EngineAccepting())
        else:
            self._publish(EngineStateChanged(state, reason))
