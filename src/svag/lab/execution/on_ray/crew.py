"""The tasks of a plan on a cluster: handing runs to them, reading their letters, and what happens when one dies."""

import sys
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
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
from svag.lab.records.storage import OUTCOME, FolderInUse, RunLock, make_folder

# Seconds between two checks of the mailbox; a task that ends is noticed at once.
_POLL = 0.2
# Seconds to wait until cancelled tasks have ended.
_FAREWELL = 10.0
# Seconds after which a mailbox that does not answer counts as lost. Starting one takes several on a busy machine.
_PATIENCE = 120.0
# What Ray's own calls raise, besides RayError, when a process that they need is gone.
GONE = (ConnectionError, TimeoutError, EOFError)


@dataclass
class Attempt:
    """A run that has been given to the cluster, where it waits or is computed.

    Attributes:
        run: the run.
        number: number of the attempt, among all attempts of the plan.
        task: Ray's reference to the task.
        begun: whether a node has reported that it has begun.
        held: the lock of the run directory, if the node cannot hold it itself.
    """

    run: PlannedRun
    number: int
    task: Any
    begun: bool = False
    held: ExitStack = field(default_factory=ExitStack)


class Crew:
    """Hands out the runs of a plan as tasks on the cluster; a context manager that leaves no task running.

    Args:
        dispatch: the runs.
        execution: how each is carried out on a node, from `on_a_node`; the cluster is given `workers` runs at a time,
            or all that wait if that is None.
        in_a_session: whether the connection to Ray is older than the plan.
    """

    def __init__(self, dispatch: Dispatch, execution: Execution, *, in_a_session: bool) -> None:
        self._dispatch, self._execution = dispatch, execution
        self._token = f".here-{uuid4().hex}"
        self._tokens: set[Path] = set()
        self._out: dict[str, Attempt] = {}
        self._attempts = 0
        self._failed_starts: Counter[str] = Counter()
        self._lost, self._lost_mailboxes = False, 0
        self._mailbox, self._letters_read = self._new_mailbox(), 0
        # Ray may keep processes with a user's modules as they were in an earlier plan: a new environment avoids them
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

    def __exit__(self, *_: object) -> None:
        """Keep the files that have been sent, cancel all tasks, and wait until no task holds a folder."""
        tasks = [attempt.task for attempt in self._out.values()] if not self._lost else []
        with suppress(RayError, *GONE):
            if not self._lost:  # a lost cluster has no letters to read
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
        """The mailbox has died with its unread letters: try every run again that is out."""
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
        """Read the letters, then see which tasks have ended: a task sends all its letters before it ends."""
        attempts = {attempt.task: attempt for attempt in self._out.values()}
        ended: list[Any] = []
        if attempts:
            ended, _ = ray.wait(list(attempts), num_returns=1, timeout=_POLL)
        else:
            time.sleep(_POLL)  # only runs of other processes are left
        try:
            self._read_letters()
        except RayActorError:
            self._replace_mailbox()
        for task in ended:
            if self._out.get(attempts[task].run.identity) is attempts[task]:
                self._close(attempts[task])

    def _read_letters(self, *events: str) -> None:
        """Act on the letters that have arrived, or only on these events; a letter counts as read afterwards."""
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
                del self._failed_starts[letter.identity]
                if not attempt.begun and (not letter.report["mailed"] or self._hold(attempt)):
                    attempt.begun = True
                    self._dispatch.begin(attempt.run, letter.report["step"])
            case "files":
                unpack(letter.report["files"], attempt.run.folder)
            case _:
                self._dispatch.heed(attempt.run, letter.report)

    def _hold(self, attempt: Attempt) -> bool:
        """Lock the run directory for a node that cannot; drop the run if another process has it or has ended it."""
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
        (run.folder / OUTCOME).unlink(missing_ok=True)  # of an earlier attempt that failed
        return True

    def _call_back(self, attempt: Attempt) -> None:
        ray.cancel(attempt.task, force=True)
        self._forget(attempt)

    def _forget(self, attempt: Attempt) -> None:
        attempt.held.close()
        del self._out[attempt.run.identity]

    def _close(self, attempt: Attempt) -> None:
        """Handle the end of a task, successful or not."""
        self._forget(attempt)
        try:
            report = ray.get(attempt.task)
        except RayTaskError as error:
            cause = " ".join(str(error.cause or error).split())[:200]
            raise PlanFailed(
                f"a task cannot start on the cluster: {cause}: every node needs this version of svag"
            ) from error
        except RayError as error:
            self._handle_death(attempt, error)
        else:
            self._dispatch.heed(attempt.run, report)

    def _handle_death(self, attempt: Attempt, error: RayError) -> None:
        """Let the run of a task that died be tried again; give up if its tasks die before the run begins."""
        if attempt.begun:
            self._dispatch.died(attempt.run, _how(error))
            return
        # a node that dies takes all its tasks with it, which says nothing about whether they can start
        if not isinstance(error, NodeDiedError):
            self._failed_starts[attempt.run.identity] += 1
        if self._failed_starts[attempt.run.identity] >= DEATHS:
            raise PlanFailed(f"a task cannot start on the cluster, {_how(error)}: see the logs of Ray on its node")
        self._dispatch.put_back(attempt.run)


def _how(error: RayError) -> str:
    match error:
        case NodeDiedError():
            return "its node went away"
        case OutOfMemoryError():
            return "its process was ended because its node is out of memory"
    return "its process died on its node, or its node went away"
