# SPDX-License-Identifier: BSD-3-Clause
"""Averaging while the next gradients are computed (PartialReduce(..., ahead=n)).

A worker announces and goes on from the weights that it has. When its group's
average is there, what averaging has changed is added to the weights as they are
then: average - weights when announced. With constant weights these changes sum to
nothing over the members, so the mean over all workers stays as it is, as when all
wait. No worker waits for others before it is `ahead` steps past an announcement.
"""

import threading


def result_of(asked):
    """Waits, and lets Python hear of signals meanwhile."""
    while not asked.wait_for(0.2):
        pass
    return asked.wait()


class Retreat(threading.Thread):
    """Somebody gave up after he had announced: the group that he will be in is told. A
    signal may stop begin() and end() anywhere; end() does what is left."""

    brings_average = False

    def __init__(self, session, asked, why):
        super().__init__(name="tutti-partial", daemon=True)
        self.n_steps = 0
        self.session, self.asked, self.why = session, asked, why
        self.has_told = False

    def begin(self):
        self.session.abandon(self.why)
        if not self.asked.is_over():
            self.start()

    def run(self):
        # wait() is for one thread only.
        while not self.asked.wait_for(0.2):
            pass
        if not self.has_told:
            self._tell()

    def _tell(self):
        try:
            self.session.abandon(self.why)
        except RuntimeError:  # closed meanwhile: there is no group to come
            pass
        self.has_told = True

    def is_due(self, most_steps):
        return True

    def end(self):
        while not self.asked.wait_for(0.2):  # signals are heard
            pass
        while self.is_alive():
            self.join(0.2)
        if not self.has_told:
            self._tell()


class Flight:
    """One averaging, from the announcement to its result: all is handed over before the
    group is known, and the library's thread does the rest."""

    brings_average = True

    def __init__(self, session, asked, buckets, iteration):
        """The buckets have been read."""
        self.asked, self.iteration = asked, iteration
        self.n_steps = 0  # made since
        self.done = None  # the commit; None: it has failed before
        self.error = asked.wait() if asked.is_over() else 0
        for bucket in buckets:
            bucket.remember()
            self.error = self.error or session.reduce(bucket.flat)
        if not self.error:
            self.done = session.commit()

    def is_due(self, most_steps):
        """Its result is there, or must be waited for."""
        return self.done is None or self.done.is_over() or self.n_steps >= most_steps

    def end(self):
        """Waits; an error of the library, 0: the buckets have the averages."""
        if self.done:
            self.error, self.done = result_of(self.done), None
        return self.error
