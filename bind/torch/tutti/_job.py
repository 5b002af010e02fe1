# SPDX-License-Identifier: BSD-3-Clause
"""Starts jobs: ranks that are processes of this host, or a command by `tutti run`."""

from __future__ import annotations

import ctypes
import os
import secrets
import signal
import time
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

from tutti import _program
from tutti._comm import Comm
from tutti._library import InvalidArgument, PeerLost

# Where ranks meet by these, they do not by the job's name.
_PLACES = ("TUTTI_ADDR", "TUTTI_JOIN", "MASTER_ADDR", "MASTER_PORT")
# Seconds for the others to say what happened to them, when one has failed.
_GRACE = 3.0
_PR_SET_PDEATHSIG = 1  # of prctl(2)


class JobFailed(Exception):
    """A rank of run() has raised, or died.

    rank        that failed first (None: a command did)
    status      of the process: negative for a signal; None: it raised
    """

    def __init__(self, text: str, rank: Optional[int], status: Optional[int]) -> None:
        super().__init__(text)
        self.rank, self.status = rank, status


def _end_with_parent() -> None:
    """Who starts ranks and is killed cannot end them. Of a fork server's the parent is
    that, which lives on."""
    import multiprocessing

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
    parent = multiprocessing.parent_process()
    if parent is None or not parent.is_alive():  # it was before that
        os._exit(1)


def _rank(work: Callable[..., Any], rank: int, size: int, job: str, args: Any, kwargs: Any, pipe: Any) -> None:
    """One rank. Its outcome goes into the pipe: (result, None, whether others failed)."""
    _end_with_parent()
    for name in _PLACES:
        os.environ.pop(name, None)
    os.environ.update(TUTTI_RANK=str(rank), TUTTI_SIZE=str(size), TUTTI_JOB=job)
    try:
        with Comm() as comm:
            outcome: Tuple[Any, Optional[str], bool] = (work(comm, *args, **kwargs), None, False)
        pipe.send(outcome)
    except BaseException as why:  # noqa: BLE001  told by run()
        import traceback

        pipe.send((None, traceback.format_exc(), isinstance(why, PeerLost)))
    pipe.close()


class _Ranks:
    """The processes of a job, and what they have told."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.processes: List[Any] = []
        self.pipes: Dict[Any, int] = {}
        self.results: List[Any] = [None] * size
        self.failures: List[JobFailed] = []
        self.blamed: List[JobFailed] = []  # who failed because others did

    def start(self, context: Any, work: Callable[..., Any], args: Any, kwargs: Any) -> None:
        job = f"python-{secrets.token_hex(8)}"
        for rank in range(self.size):
            mine, its = context.Pipe(duplex=False)
            process = context.Process(
                target=_rank, args=(work, rank, self.size, job, args, kwargs, its), name=f"tutti rank {rank}",
                daemon=True,
            )
            process.start()
            its.close()
            self.processes.append(process)
            self.pipes[mine] = rank

    def hear(self, pipe: Any) -> None:
        """What a rank tells, or that it is gone."""
        rank = self.pipes.pop(pipe)
        try:
            result, text, by_others = pipe.recv()
        except (EOFError, OSError):  # OSError: it died while it told
            self.processes[rank].join(_GRACE)
            status = self.processes[rank].exitcode
            how = f"was ended by signal {-status}" if status is not None and status < 0 else f"ended with status {status}"
            self.failures.append(JobFailed(f"rank {rank} {how}", rank, status))
            return
        finally:
            pipe.close()
        if text is None:
            self.results[rank] = result
        else:
            (self.blamed if by_others else self.failures).append(
                JobFailed(f"rank {rank} failed:\n{text}", rank, None))

    def wait(self, timeout: Optional[float]) -> None:
        """Until all have told, or one has failed and the rest had their chance."""
        from multiprocessing import connection

        end = None if timeout is None else time.monotonic() + timeout
        while self.pipes:
            if (self.failures or self.blamed) and (end is None or end > time.monotonic() + _GRACE):
                end = time.monotonic() + _GRACE
            left = None if end is None else max(0.0, end - time.monotonic())
            ready = connection.wait(list(self.pipes), left)
            if not ready:
                break
            for pipe in ready:
                self.hear(pipe)
        if self.failures or self.blamed:
            raise (self.failures + self.blamed)[0]
        if self.pipes:
            late = ", ".join(str(rank) for rank in sorted(self.pipes.values()))
            raise TimeoutError(f"rank {late} of {self.size} has not ended within {timeout} s")

    def end(self) -> None:
        """Nobody is left."""
        patience = time.monotonic() + (_GRACE if not self.pipes else 0)
        for process in self.processes:
            process.join(max(0.0, patience - time.monotonic()))
        for process in self.processes:
            if process.is_alive():
                process.kill()
            process.join()


def run(
    work: Union[Callable[..., Any], Sequence[str]], n_ranks: int, *args: Any, hosts: Optional[str] = None,
    timeout: Optional[float] = None, start_method: str = "spawn", **kwargs: Any,
) -> List[Any]:
    """Runs a job of n_ranks and returns when all have ended.

        def work(comm, x):
            return comm.all_reduce([x * comm.rank])

        if __name__ == "__main__":
            print(tutti.run(work, 4, 10.0))

    work        a function: each rank is a process of this host that calls
                work(comm, *args, **kwargs), where comm has all of them. It must be
                known by name to a new process, as everywhere in multiprocessing. Or a
                command, as a list: it is run by `tutti run`
    hosts       of a command: "alpha:2,beta:2", as `tutti run -H`
    timeout     seconds for the whole job; then TimeoutError, and the ranks are ended

    Returns the results of the ranks, in their order; of a command, nothing. Errors:
    JobFailed with the traceback of the rank that failed first; the others are ended. All
    are when this process is killed (but not with start_method "forkserver").
    """
    if n_ranks < 1:
        raise InvalidArgument(f"a job has 1 rank at least, not {n_ranks}")
    if not callable(work):
        if args or kwargs:
            raise InvalidArgument("a command has its arguments in the list")
        return _run_command(list(work), n_ranks, hosts, timeout)
    if hosts is not None:
        raise InvalidArgument("a function runs on this host; a command runs on others")
    import multiprocessing  # takes longer to import than all of tutti

    ranks = _Ranks(n_ranks)
    try:
        ranks.start(multiprocessing.get_context(start_method), work, args, kwargs)
        ranks.wait(timeout)
    finally:
        ranks.end()
    return ranks.results


def _run_command(command: List[str], n_ranks: int, hosts: Optional[str], timeout: Optional[float]) -> List[Any]:
    import subprocess

    where = ["-H", hosts] if hosts else []
    line = [_program.path(), "run", "-n", str(n_ranks), *where, *command]
    try:
        status = subprocess.run(line, timeout=timeout).returncode
    except subprocess.TimeoutExpired:
        raise TimeoutError(f"the job has not ended within {timeout} s") from None
    if status:
        raise JobFailed(f"{' '.join(line)}: status {status}", None, status)
    return []
