/* SPDX-License-Identifier: BSD-3-Clause
 * fork.h - which descriptors a forked child must not keep.
 *
 * A child (a data loader's worker) that held our sockets would hide the death
 * of its parent from the peers. Every transport therefore watches each
 * descriptor it opens until it closes it; tt_fork_child() closes all of them
 * in the child, and what a watched epoll watches. Shared mappings are excluded
 * by MADV_DONTFORK. */
#ifndef TT_BASE_FORK_H
#define TT_BASE_FORK_H

/* Right after opening fd (negative: ignored). Where numbers run short the limit
 * on them is raised (base/files.h). [any thread] */
void tt_fork_watch(int fd);

/* Right before closing fd (negative: ignored). [any thread] */
void tt_fork_unwatch(int fd);

/* In a forked child: closes every watched descriptor, so that the child keeps
 * no connection alive. Called from an atfork handler: async-signal-safe. */
void tt_fork_child(void);

/* tt_fork_unwatch() and close(); sets *fd to -1; accepts -1. [any thread] */
void tt_fork_close(int *fd);

#endif
