"""The tasks of a plan on a cluster: who does what, and what happens when one dies."""

import sys
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import ray
from ray.exceptions import NodeDiedError, OutOfMemoryError, RayActorError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from svag.lab.execution.dispatch import Dispatch, PlanFailed, order_for
from svag.lab.execution.execution import DEATHS, Execution
from svag.lab.execution.on_ray.mailbox import Letter, Mailbox, unpack
from svag.lab.execution.on_ray.task import run_on_node
from svag.lab.execution.plan import PlannedRun
from svag.lab.records.files import FolderInUse, RunLock, make_folder
from svag.lab.records.record import OUTCOME

# Seconds between two looks into the mailbox; a task that ends is noticed at once.
_POLL = 0.2
# Seconds that are granted to cancelled tasks to be gone.
_FAREWELL = 10.0
# Seconds after which a mailbox that does not answer is taken for lost; to start one takes a busy machine several.
_PATIENCE = 120.0
# What Ray's own calls raise, besides a RayError, when the process that they ask for is gone.
GONE = (ConnectionError, TimeoutError, EOFError)


@dataclass
class Attempt:
    """A run that has been given to the cluster, as it waits there or is computed.

    Attributes:
        run: which.
        number: counts all attempts of a plan.
        task: the reference of Ray.
        begun: whether a node has said so.
        held: the lock of the run directory, if the node cannot hold it.
    """

    run: PlannedRun
    number: int
    task: Any
    begun: bool = False
    held: ExitStack = field(default_factory=ExitStack)


class Crew:
    """Tasks on the cluster, to which the runs of a plan are handed out.

    Args:
        dispatch: the runs.
        execution: how each is carried out on a node, from `on_a_node`; `workers` is how many runs the cluster is given
            at a time, None for all that wait.
        in_a_session: whether the connection to Ray is older than the plan.
    """

    def __init__(self, dispatch: Dispatch, execution: Execution, *, in_a_session: bool) -> None:
        self._dispatch, self._execution = dispatch, execution
        self._token = f".here-{uuid4().hex}"
        self._tokens: set[Path] = set()
        self._out: dict[str, Attempt] = {}
        self._attempts = 0
        self._stillborn: Counter[str] = Counter()
        self._lost, self._lost_mailboxes = False, 0
        self._mailbox, self._letters_read = self._new_mailbox(), 0
        # Ray may keep processes that know a user's modules as they were in an earlier plan: not for this one
        fresh = {"env_vars": {"SVAG_PLAN": self._token}} if in_a_session else None
        self._task = ray.remote(run_on_node).options(
            num_cpus=execution.threads,
            num_gpus=int(execution.device == "cuda"),
            max_retries=0,
            runtime_env=fresh,
            name="svag run",
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Cancel what is queued or running, having kept what has been sent, and wait until nobody holds a folder."""
        tasks = [attempt.task for attempt in self._out.values()] if not self._lost else []
        with suppress(RayError, *GONE):
            if not self._lost:  # of a cluster that is lost there is nothing to keep and nobody to call back
                self._read_letters("begins", "files")
            for task in tasks:
                ray.cancel(task, force=True)
            if tasks:
                ray.wait(tasks, num_returns=len(tasks), timeout=_FAREWELL)
            ray.kill(self._mailbox)
        for attempt in self._out.values():
            attempt.held.close()
        for token in self._tokens:
            token.unlink(missing_ok=True)

    def work(self) -> None:
        """Carry out all runs; raise `PlanFailed` when the cluster is lost on the way."""
        try:
            while self._dispatch.something_left or self._out:
                self._hand_out()
                self._listen()
                self._dispatch.look_again()
        except (RayError, *GONE) as error:
            self._lost = True
            reason = " ".join(str(error).split())[:120] or type(error).__name__
            raise PlanFailed(
                f"the Ray cluster is lost ({reason}): the same command continues from the last checkpoints"
            ) from error

    def _new_mailbox(self) -> Any:
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        return ray.remote(Mailbox).options(num_cpus=0, scheduling_strategy=here).remote()

    def _replace_mailbox(self) -> None:
        """The mailbox has died, with letters that nobody has read: every run that is out is tried again."""
        self._lost_mailboxes += 1
        mine = ray.get_runtime_context().get_node_id()
        if not any(node["NodeID"] == mine and node["Alive"] for node in ray.nodes()):
            raise ConnectionError("the node of this machine is gone")
        if self._lost_mailboxes >= DEATHS:
            raise PlanFailed(
                f"the process that collects the results died {DEATHS} times: the same command continues "
                "from the last checkpoints"
            )
        self._mailbox, self._letters_read = self._new_mailbox(), 0
        for attempt in list(self._out.values()):
            self._call_back(attempt)
            if attempt.begun:
                self._dispatch.try_again(attempt.run, "the process that collects the results died")
            else:
                self._dispatch.put_back(attempt.run)

    def _hand_out(self) -> None:
        workers = self._execution.workers
        while workers is None or len(self._out) < workers:
            run = self._dispatch.take()
            if run is None:
                return
            self._attempts += 1
            folder = run.folder.resolve()
            order = {
                **order_for(run, self._execution),
                "folder": str(folder),
                "cwd": str(Path.cwd()),
                "path": sys.path,
                "attempt": self._attempts,
                "token": None if self._execution.mail else self._token_beside(folder),
            }
            self._out[run.identity] = Attempt(run, self._attempts, self._task.remote(order, self._mailbox))

    def _token_beside(self, folder: Path) -> str:
        token = folder.parent / self._token
        if token not in self._tokens:
            make_folder(folder.parent)
            token.touch()
            self._tokens.add(token)
        return str(token)

    def _listen(self) -> None:
        """Read the letters, then see who has ended: whoever has ended had left all letters before."""
        attempts = {attempt.task: attempt for attempt in self._out.values()}
        ended: list[Any] = []
        if attempts:
            ended, _ = ray.wait(list(attempts), num_returns=1, timeout=_POLL)
        else:
            time.sleep(_POLL)  # for what other processes have
        try:
            self._read_letters()
        except RayActorError:
            self._replace_mailbox()
        for task in ended:
            if self._out.get(attempts[task].run.identity) is attempts[task]:
                self._close(attempts[task])

    def _read_letters(self, *events: str) -> None:
        """Read what has come, or of that only these events; a letter counts as read when it has been acted on."""
        unread = self._mailbox.unread.remote(self._letters_read)
        for letter in ray.get(unread, timeout=_PATIENCE):
            if self._is_current(letter) and (not events or letter.report["event"] in events):
                self._read(letter)
            self._letters_read += 1

    def _is_current(self, letter: Letter) -> bool:
        attempt = self._out.get(letter.identity)
        return attempt is not None and attempt.number == letter.attempt

    def _read(self, letter: Letter) -> None:
        attempt = self._out[letter.identity]
        match letter.report["event"]:
            case "begins":
                del self._stillborn[letter.identity]
                if not attempt.begun and (not letter.report["mailed"] or self._hold(attempt)):
                    attempt.begun = True
                    self._dispatch.begin(attempt.run, letter.report["step"])
            case "files":
                unpack(letter.report["files"], attempt.run.folder)
            case _:
                self._dispatch.heed(attempt.run, letter.report)

    def _hold(self, attempt: Attempt) -> bool:
        """Lock the run directory for a node that cannot; if others have or had it, they may keep the run."""
        run = attempt.run
        make_folder(run.folder)
        try:
            attempt.held.enter_context(RunLock(run.folder))
        except FolderInUse:
            self._call_back(attempt)
            self._dispatch.leave_to_others(run)
            return False
        now = run.record()
        if now.ended:
            self._call_back(attempt)
            self._dispatch.end(run, now.state)
            return False
        (run.folder / OUTCOME).unlink(missing_ok=True)  # that of a run that failed and is tried again
        return True

    def _call_back(self, attempt: Attempt) -> None:
        ray.cancel(attempt.task, force=True)
        self._forget(attempt)

    def _forget(self, attempt: Attempt) -> None:
        attempt.held.close()
        del self._out[attempt.run.identity]

    def _close(self, attempt: Attempt) -> None:
        """A task has ended, well or not."""
        self._forget(attempt)
        try:
            report = ray.get(attempt.task)
        except RayTaskError as error:
            cause = " ".join(str(error.cause or error).split())[:200]
            raise PlanFailed(
                f"a task cannot start on the cluster: {cause}: every node needs this version of svag"
            ) from error
        except RayError as error:
            self._bury(attempt, error)
        else:
            self._dispatch.heed(attempt.run, report)

    def _bury(self, attempt: Attempt, error: RayError) -> None:
        if attempt.begun:
            self._dispatch.died(attempt.run, _how(error))
            return
        # a node that goes away takes all its tasks along, and says nothing about whether they can start
        if not isinstance(error, NodeDiedError):
            self._stillborn[attempt.run.identity] += 1
        if self._stillborn[attempt.run.identity] >= DEATHS:
            raise PlanFailed(f"a task cannot start on the cluster, {_how(error)}: see the logs of Ray on its node")
        self._dispatch.put_back(attempt.run)


def _how(error: RayError) -> str:
    match error:
        case NodeDiedError():
            return "its node went away"
        case OutOfMemoryError():
            return "its process was ended for want of memory on its node"
    return "its process died on its node, or its node went away"
