# SPDX-License-Identifier: BSD-3-Clause
"""Averaging while the next gradients are computed (PartialReduce(..., ahead=n)).

A worker announces and goes on from the weights that it has. When its group's
average is there, what averaging has changed is added to the weights as they are
then: average - weights when announced. With constant weights these changes sum to
nothing over the members, so the mean over all workers stays as it is, as when all
wait. No worker waits for others before it is `ahead` steps past an announcement.
"""

import threading


class Thread(threading.Thread):
    def __init__(self):
        super().__init__(name="tutti-partial", daemon=True)
        self.n_steps = 0  # made since

    def wait(self):
        while self.is_alive():  # signals are heard
            self.join(0.2)


class Retreat(Thread):
    """Somebody gave up after he had announced: the group that he will be in is told."""

    brings_average = False

    def __init__(self, session, asked, why):
        super().__init__()
        self.session, self.asked, self.why = session, asked, why
        self.start()

    def run(self):
        self.asked.wait()
        self.session.abandon(self.why)

    def is_due(self, most_steps):
        return True

    def end(self, raises=True):
        self.wait()


class Flight(Thread):
    """One averaging, from the announcement to its result, in a thread."""

    brings_average = True

    def __init__(self, session, buckets, iteration):
        """The buckets have been read."""
        super().__init__()
        self.session, self.buckets, self.iteration = session, buckets, iteration
        self.error = None  # of the library, or an exception
        for bucket in buckets:
            bucket.remember()
        self.asked = session.announce(iteration, False)
        self.start()

    def run(self):
        try:
            self.error = self._average()
        except BaseException as error:  # noqa: BLE001  end() raises it
            self.error = error
            self.session.abandon(f"a worker failed: {type(error).__name__}")

    def _average(self):
        err = self.asked.wait()
        for bucket in self.buckets:
            err = err or self.session.reduce(bucket.flat)
        return err or self.session.commit().wait()

    def is_due(self, most_steps):
        """Its result is there, or must be waited for."""
        return not self.is_alive() or self.n_steps >= most_steps

    def end(self, raises=True):
        """Waits; an error of the library, 0: the buckets have the averages."""
        self.wait()
        if raises and isinstance(self.error, BaseException):
            raise self.error
        return self.error
