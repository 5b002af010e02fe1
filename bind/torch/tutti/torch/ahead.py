# SPDX-License-Identifier: BSD-3-Clause
"""Averaging while the next gradients are computed (PartialReduce(..., ahead=n)).

A worker announces and goes on from the weights that it has. When its group's
average is there, what averaging has changed is added to the weights as they are
then: average - weights when announced. With constant weights these changes sum to
nothing over the members, so the mean over all workers stays as it is, as when all
wait. No worker waits for others before it is `ahead` steps past an announcement.
"""

import threading


class Flight(threading.Thread):
    """One averaging, from the announcement to its result, in a thread."""

    def __init__(self, session, buckets, iteration):
        super().__init__(name="tutti-partial", daemon=True)
        self.session, self.buckets, self.iteration = session, buckets, iteration
        self.n_steps = 0  # made since
        self.error = self.failure = None
        for bucket in buckets:
            bucket.read()
            bucket.remember()
        self.asked = session.announce(iteration, False)
        self.start()

    def run(self):
        try:
            err = self.asked.wait()
            for bucket in self.buckets:
                err = err or self.session.reduce(bucket.flat)
            self.error = err or self.session.commit()
        except BaseException as failure:  # end() raises it
            self.failure = failure
            self.session.abandon(f"an average failed: {type(failure).__name__}")

    def is_due(self, most_steps):
        """Its result is there, or must be waited for."""
        return not self.is_alive() or self.n_steps >= most_steps

    def end(self):
        """Waits; an error of the library, 0: the buckets have the averages."""
        self.join()
        if self.failure:
            raise self.failure
        return self.error
