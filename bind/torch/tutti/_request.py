# SPDX-License-Identifier: BSD-3-Clause
"""A call in flight."""

from __future__ import annotations

import collections
import ctypes
import select
import time
from typing import TYPE_CHECKING, Any, Deque, List, Optional, Sequence, Tuple

from tutti._library import AGAIN, InvalidArgument, error, lib

if TYPE_CHECKING:
    from tutti._comm import Comm

# wait_any() takes descriptors for so many requests: a process has 1024 or so.
_MOST_WATCHED = 128
_LOOK_MS = 5
# Requests that nobody waits for any more, with the memory that they still use.
_given_up: Deque[Tuple[Any, Any]] = collections.deque()


def _sweep() -> None:
    """Gives back those that are done by now. Other threads may sweep at the same time, and
    so may the garbage collector in between: who looks at one has taken it out."""
    for _ in range(len(_given_up)):
        try:
            entry = _given_up.popleft()
        except IndexError:
            return
        if lib().tutti_test(entry[0]) == AGAIN:
            _given_up.append(entry)
        else:
            lib().tutti_request_free(entry[0])


class Request:
    """What an asynchronous call returns: it is under way, and its arrays belong to it.

    Wait for it before reading the result, or changing what was handed in. Who drops it
    gives it up: the call goes on, and its outcome is not told. One thread at a time may
    use it.
    """

    def __init__(self, comm: "Comm", handle: Any, result: Any, keep: Any) -> None:
        if _given_up:
            _sweep()
        self._comm, self._handle = comm, handle
        self._result, self._keep = result, keep
        self._outcome: Optional[int] = None
        self._sentence = b""
        self._fd = -1

    def done(self) -> bool:
        """Whether it is over, well or not. Never blocks."""
        return self._handle is None or lib().tutti_test(self._handle) != AGAIN

    def fileno(self) -> int:
        """A descriptor that is readable when it is over, for select, asyncio's
        add_reader and the like. It is the request's, until wait() returns."""
        if self._handle is None:
            raise InvalidArgument("the request is over")
        if self._fd < 0:
            fd = ctypes.c_int()
            self._comm._check(lib().tutti_request_fd(self._handle, ctypes.byref(fd)))
            self._fd = fd.value
        return self._fd

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Blocks until it is over; what the blocking call would have returned.

        timeout: seconds; then TimeoutError, and the call goes on (the deadline of the
        call itself is its option `timeout`). Errors: those of the call, every time.
        Ctrl-C interrupts it.
        """
        if self._handle is not None:
            self._sleep(timeout)
            handle, self._handle = self._handle, None
            self._outcome = lib().tutti_wait(handle)
            self._keep = None
            if self._outcome:
                self._sentence = self._comm._sentence()
        if self._outcome:
            raise error(self._outcome, self._sentence)
        return self._result() if callable(self._result) else self._result

    def _sleep(self, timeout: Optional[float]) -> None:
        """By the descriptor: C's wait would not hear of signals."""
        deadline = None if timeout is None else time.monotonic() + timeout
        for _ in range(20):
            if self.done():
                return
        poll = select.poll()
        poll.register(self.fileno(), select.POLLIN)
        while not self.done():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                raise TimeoutError(f"the call is not done after {timeout} s")
            poll.poll(None if left is None else left * 1000 + 1)

    def __del__(self) -> None:
        try:
            if self._handle is not None and self._comm._is_ours():
                _given_up.append((self._handle, self._keep))
                self._handle = None
                _sweep()
        except (AttributeError, TypeError):  # Python itself is ending
            pass


def wait_any(requests: Sequence[Optional[Request]]) -> int:
    """Blocks until one of them is over (None are skipped); its index. Its wait() then
    returns at once. Ctrl-C interrupts it. Errors: InvalidArgument when all are None."""
    left = [(index, request) for index, request in enumerate(requests) if request is not None]
    if not left:
        raise InvalidArgument("all requests are None")
    # As in _sleep(). What has no descriptor is looked at again and again.
    pause_ms = None if len(left) <= _MOST_WATCHED else _LOOK_MS
    poll = None
    while True:
        for index, request in left:
            if request.done():
                return index
        if poll is None:
            poll = select.poll()
            for _, request in left[:_MOST_WATCHED]:
                poll.register(request.fileno(), select.POLLIN)
        poll.poll(pause_ms)


def wait_all(requests: Sequence[Optional[Request]]) -> List[Any]:
    """The results of all, in their order. All are waited for, also when one fails; the
    first failure is raised then."""
    results: List[Any] = []
    failure: Optional[BaseException] = None
    for request in requests:
        try:
            results.append(None if request is None else request.wait())
        except Exception as why:  # noqa: BLE001  raised below
            failure = failure or why
    if failure:
        raise failure
    return results
