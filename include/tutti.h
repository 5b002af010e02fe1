/* SPDX-License-Identifier: BSD-3-Clause
 *
 * tutti.h - the one public header of Tutti, a collective-communication
 * library for distributed deep learning on machines and links that are not
 * all alike.
 *
 * The idea.  A collective (all-reduce, broadcast, ...) is performed by a
 * schedule: a plain piece of data that says at which step which rank sends
 * which chunk to whom. The library plans a schedule, proves that it is what
 * it claims, and performs it over shared memory and TCP.
 *
 * The life of a program.  N processes ("ranks" 0..N-1) are started by a
 * launcher: `tutti run -n 4 ./prog`, torchrun, mpirun, srun. Each makes a
 * communicator, calls the same collectives in the same order, destroys it:
 *
 *     tutti_comm *comm;
 *     tutti_err err = tutti_comm_create(NULL, &comm);
 *     if (err)
 *         die(tutti_strerror(err), tutti_last_message());
 *     float x[3] = {1, 2, 3};
 *     err = tutti_all_reduce(comm, x, x, 3, TUTTI_F32, TUTTI_SUM, NULL, NULL);
 *     if (err)
 *         die(tutti_strerror(err), tutti_comm_message(comm));
 *     tutti_comm_destroy(comm);
 *
 * Blocking or not.  The last argument of every collective is a place for a
 * request. NULL: the call blocks and returns the outcome. Otherwise it
 * returns at once; the outcome comes from tutti_test(), tutti_wait(),
 * tutti_wait_any(), a callback or an event descriptor, and the buffers belong
 * to the library until then.
 *
 * In place.  Every collective may work in place; each says how. Buffers that
 * overlap in any other way are refused with TUTTI_EINVAL.
 *
 * Errors.  Every function that can fail returns a tutti_err: 0 is success, 1
 * (TUTTI_AGAIN) is "not yet", negative values are failures. A failure of a
 * communicator is final: every call in progress on it ends with the same
 * error on every rank that can still be reached, later calls return it at
 * once, and tutti_comm_message() says in one sentence what happened and which
 * rank caused it. A call that is refused because of its own arguments
 * (TUTTI_EINVAL) leaves the communicator as it was.
 *
 * Threads.  A communicator is used by one thread at a time (concurrent
 * collectives on one communicator are an error: TUTTI_EBUSY where it is
 * noticed); different communicators may be used by different threads.
 * tutti_comm_abort(), tutti_test() and the wait functions may be called from
 * any thread. After fork() the child may not use the library: TUTTI_EFORK.
 *
 * C99 and C++ clean. Sizes are in elements unless a name ends in _bytes.
 */
#ifndef TUTTI_H
#define TUTTI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define TUTTI_API __attribute__((visibility("default")))
#else
#define TUTTI_API
#endif

/* ------------------------------------------------------------- version -- */

#define TUTTI_VERSION_MAJOR 0
#define TUTTI_VERSION_MINOR 1
#define TUTTI_VERSION_PATCH 0

/* The version of the library that runs, as "0.1.0". [any thread] */
TUTTI_API const char *tutti_version(void);

/* -------------------------------------------------------------- errors -- */

/* Numbers are pinned for ever; gaps are for later. */
#define TUTTI_ERR_LIST(X)                                        \
    X(OK, 0, "success")                                          \
    X(AGAIN, 1, "not finished yet")                              \
    X(EINVAL, -1, "invalid argument")                            \
    X(ENOMEM, -2, "out of memory")                               \
    X(ELIMIT, -3, "a limit was exceeded")                        \
    X(ESYS, -4, "the operating system refused a call")           \
    X(EBUSY, -5, "the communicator is in use by another thread") \
    X(EFORK, -6, "the library cannot be used in a forked child") \
    X(ECONFIG, -7, "a setting or environment variable is wrong") \
    X(EPEER, -20, "a peer failed or left")                       \
    X(EMISMATCH, -21, "ranks called different collectives")      \
    X(ETIMEOUT, -22, "the deadline passed")                      \
    X(EABORTED, -23, "the communicator was aborted")             \
    X(ENET, -24, "the network failed")                           \
    X(EBOOT, -25, "the ranks could not find each other")         \
    X(EPROTO, -26, "a peer sent something that makes no sense")  \
    X(EFORMAT, -40, "the text cannot be read")                   \
    X(EPROOF, -41, "the schedule is not what it claims to be")   \
    X(ENOFIT, -42, "the planner does not fit the problem")

typedef enum tutti_err {
#define TUTTI_X(name, number, text) TUTTI_##name = number,
    TUTTI_ERR_LIST(TUTTI_X)
#undef TUTTI_X
} tutti_err;

/* The name ("EPEER") and the text of an error; never NULL. [any thread] */
TUTTI_API const char *tutti_errname(tutti_err err);
TUTTI_API const char *tutti_strerror(tutti_err err);

/* The sentence that explains the calling thread's last failed call that had
 * no communicator to keep it (tutti_comm_create and the like); "" if none.
 * Valid until the thread's next such call. [any thread] */
TUTTI_API const char *tutti_last_message(void);

/* --------------------------------------------------- types, operations -- */

/* name, number, bytes, text */
#define TUTTI_TYPE_LIST(X) \
    X(I8, 0, 1, "i8")      \
    X(U8, 1, 1, "u8")      \
    X(I32, 2, 4, "i32")    \
    X(U32, 3, 4, "u32")    \
    X(I64, 4, 8, "i64")    \
    X(U64, 5, 8, "u64")    \
    X(F16, 6, 2, "f16")    \
    X(BF16, 7, 2, "bf16")  \
    X(F32, 8, 4, "f32")    \
    X(F64, 9, 8, "f64")    \
    X(BOOL, 10, 1, "bool")

typedef enum tutti_type {
#define TUTTI_X(name, number, bytes, text) TUTTI_##name = number,
    TUTTI_TYPE_LIST(TUTTI_X)
#undef TUTTI_X
        TUTTI_TYPE_COUNT = 11
} tutti_type;

/* name, number, text
 * SUM, PROD: integers wrap; 16-bit floats accumulate in f32 within one
 *   reduction and are rounded once. AVG: the sum, divided once by N (integers
 *   truncate to zero; not for BOOL). MIN, MAX: a NaN wins and is the one
 *   canonical quiet NaN, -0 < +0. BAND, BOR, BXOR: integers and BOOL only.
 * SCALED_SUM: every rank's input is first multiplied by tutti_call_opts.scale
 *   (its own one); floats only. BOOL: SUM and MAX are "or", PROD and MIN are
 *   "and"; values are 0 or 1. */
#define TUTTI_OP_LIST(X) \
    X(SUM, 0, "sum")     \
    X(AVG, 1, "avg")     \
    X(PROD, 2, "prod")   \
    X(MIN, 3, "min")     \
    X(MAX, 4, "max")     \
    X(BAND, 5, "band")   \
    X(BOR, 6, "bor")     \
    X(BXOR, 7, "bxor")   \
    X(SCALED_SUM, 8, "scaled-sum")

typedef enum tutti_op {
#define TUTTI_X(name, number, text) TUTTI_##name = number,
    TUTTI_OP_LIST(TUTTI_X)
#undef TUTTI_X
        TUTTI_OP_COUNT = 9
} tutti_op;

/* name, number, text, has a root, reduces */
#define TUTTI_COLL_LIST(X)                       \
    X(ALL_REDUCE, 0, "all-reduce", 0, 1)         \
    X(REDUCE_SCATTER, 1, "reduce-scatter", 0, 1) \
    X(ALL_GATHER, 2, "all-gather", 0, 0)         \
    X(BROADCAST, 3, "broadcast", 1, 0)           \
    X(REDUCE, 4, "reduce", 1, 1)                 \
    X(ALL_TO_ALL, 5, "all-to-all", 0, 0)         \
    X(GATHER, 6, "gather", 1, 0)                 \
    X(SCATTER, 7, "scatter", 1, 0)               \
    X(BARRIER, 8, "barrier", 0, 0)               \
    X(SENDRECV, 9, "send-recv", 0, 0)

typedef enum tutti_coll {
#define TUTTI_X(name, number, text, rooted, reduces) TUTTI_##name = number,
    TUTTI_COLL_LIST(TUTTI_X)
#undef TUTTI_X
        TUTTI_COLL_COUNT = 10
} tutti_coll;

/* Bytes of one element (0 for a bad type), names, and names back to values.
 * tutti_*_parse() sets *out only when it returns TUTTI_OK. [any thread] */
TUTTI_API size_t tutti_type_bytes(tutti_type type);
TUTTI_API const char *tutti_type_name(tutti_type type);
TUTTI_API const char *tutti_op_name(tutti_op op);
TUTTI_API const char *tutti_coll_name(tutti_coll coll);
TUTTI_API tutti_err tutti_type_parse(const char *text, tutti_type *out);
TUTTI_API tutti_err tutti_op_parse(const char *text, tutti_op *out);
TUTTI_API tutti_err tutti_coll_parse(const char *text, tutti_coll *out);

/* TUTTI_OK when op is defined for type, else TUTTI_EINVAL. [any thread] */
TUTTI_API tutti_err tutti_op_check(tutti_op op, tutti_type type);

/* -------------------------------------------------------- communicators -- */

typedef struct tutti_comm tutti_comm;
typedef struct tutti_request tutti_request;

/* Allocates (ptr NULL), resizes, or frees (new_bytes 0, returns NULL). */
typedef void *(*tutti_alloc_fn)(void *ctx, void *ptr, size_t old_bytes,
                                size_t new_bytes);

/* A place that all ranks of a communicator can write to and read from, for
 * programs that have one (a file system, a key-value service, PyTorch's store):
 * the ranks then meet through it and need no address. Each communicator needs
 * one of its own, or keys of its own in it (a prefix). The functions are called
 * by the thread that is in tutti_comm_create(), until it returns; what they
 * return other than said here ends it with TUTTI_EBOOT.
 *
 * put    makes len bytes (at most 2048) known under key, over what was there:
 *        TUTTI_OK.
 * get    waits until key is known, at most timeout_s seconds; TUTTI_AGAIN when
 *        it is not. Copies the value, if it has at most cap bytes, to buf and
 *        stores its length: TUTTI_OK. */
typedef struct tutti_store {
    tutti_err (*put)(void *ctx, const char *key, const void *bytes, size_t len);
    tutti_err (*get)(void *ctx, const char *key, void *buf, size_t cap,
                     size_t *len, double timeout_s);
    void *ctx;
} tutti_store;

/* All zero means default. `size` is sizeof(tutti_comm_opts). */
typedef struct tutti_comm_opts {
    size_t size;
    /* Where the ranks meet, "host:port" or "[ipv6]:port"; rank 0 listens
     * there. NULL: from the environment (the launcher's variables). */
    const char *address;
    int rank;             /* used only when n_ranks > 0 */
    int n_ranks;          /* 0: rank and size from the environment */
    double timeout_s;     /* deadline of every wait; 0: TUTTI_TIMEOUT */
    tutti_alloc_fn alloc; /* NULL: malloc; called from any thread */
    void *alloc_ctx;
    /* The ranks meet through it, and not at an address; needs n_ranks. NULL:
     * none. Borrowed until tutti_comm_create() returns. */
    const tutti_store *store;
    double start_timeout_s; /* of start-up; 0: TUTTI_START_TIMEOUT */
} tutti_comm_opts;
#define TUTTI_COMM_OPTS_INIT                                        \
    {                                                               \
        sizeof(tutti_comm_opts), NULL, 0, 0, 0, NULL, NULL, NULL, 0 \
    }

/* Makes the communicator of all ranks of the job; collective; blocks until
 * all ranks are there or the start-up deadline (start_timeout_s) passes.
 * opts may be NULL. On success the caller owns *out; on failure *out is left
 * alone and tutti_last_message() explains.
 * Errors: ECONFIG, EBOOT, ENET, ENOMEM, ESYS, ETIMEOUT, EFORK. [any thread] */
TUTTI_API tutti_err tutti_comm_create(const tutti_comm_opts *opts,
                                      tutti_comm **out);

/* Splits comm: ranks that give the same color (>= 0) form a new communicator,
 * ordered by key, ties by rank in comm. color -1: no new communicator,
 * *out = NULL. Collective and blocking. The new one shares comm's connections
 * and may outlive it. */
TUTTI_API tutti_err tutti_comm_split(tutti_comm *comm, int color, int key,
                                     tutti_comm **out);

/* Leaves and frees; accepts NULL. Not collective: does not wait for other
 * ranks, but makes sure that what this rank has sent gets out. Requests still
 * in flight end with TUTTI_EABORTED before it returns (and stay valid until
 * they are waited for); peers that still need this rank get TUTTI_EPEER. */
TUTTI_API void tutti_comm_destroy(tutti_comm *comm);

TUTTI_API int tutti_comm_rank(const tutti_comm *comm);
TUTTI_API int tutti_comm_size(const tutti_comm *comm);

/* The name of the transport ("shm", "tcp", ...) between this rank and
 * `rank`; "self" for the rank itself; NULL for a bad rank. */
TUTTI_API const char *tutti_comm_transport(const tutti_comm *comm, int rank);

/* What made the last call on comm fail, one sentence; "" if none did.
 * The pointer is valid until the next call on comm. */
TUTTI_API const char *tutti_comm_message(const tutti_comm *comm);

/* What has ended comm, TUTTI_OK while it is well: also a failure that this rank
 * was told of and no call of it has seen yet. [any thread] */
TUTTI_API tutti_err tutti_comm_failure(const tutti_comm *comm);

/* Ends every call in progress on comm, here and on the other ranks, with
 * TUTTI_EABORTED and the reason (may be NULL). Never blocks. [any thread] */
TUTTI_API void tutti_comm_abort(tutti_comm *comm, const char *reason);

/* How late `rank` was, on the average over the last calls in which this rank
 * met it: nanoseconds between this rank's entering a call and the sign that
 * `rank` had entered it too (0 when it was there first).
 * Errors: EINVAL. [any thread] */
TUTTI_API tutti_err tutti_comm_lateness(const tutti_comm *comm, int rank,
                                        double *ns);

/* ----------------------------------------------------------- collectives -- */

/* TUTTI_CALL_OPTS_INIT sets the defaults. */
typedef struct tutti_call_opts {
    size_t size;
    int priority;     /* higher is served first; equal on all ranks */
    double timeout_s; /* 0: the communicator's */
    double scale;     /* TUTTI_SCALED_SUM: this rank's factor; default 1 */
    /* Called once, from the completion thread, when the request is done
     * (perhaps before the call that made it returns; *req is set by then); may
     * call tutti_request_free() and start collectives, may not wait. */
    void (*callback)(void *arg, tutti_err err);
    void *callback_arg;
    const char *planner; /* NULL: TUTTI_PLANNER; equal on all ranks */
    int tag;             /* of messages: 0 or more */
    bool waits; /* the caller waits for the request at once: no other thread is
                   woken to perform the call */
    bool
        is_scratch; /* tutti_partial_reduce: no copy is made, the buffer itself is
                        averaged; what it held is lost if the group breaks */
} tutti_call_opts;
#define TUTTI_CALL_OPTS_INIT                                                \
    {                                                                       \
        sizeof(tutti_call_opts), 0, 0, 1, NULL, NULL, NULL, 0, false, false \
    }

/* Common to all: `opts` may be NULL; `req` NULL blocks, otherwise *req is set
 * to a request the caller owns when TUTTI_OK is returned. Buffers are borrowed
 * until the outcome is known. Collectives of one communicator match by the
 * order in which they are issued. Counts may be 0. Errors: EINVAL, ENOMEM,
 * EPEER, EMISMATCH, ETIMEOUT, EABORTED, ENET, EPROTO, EBUSY, EFORK, ENOFIT,
 * ELIMIT (32768 calls of a communicator are in flight: wait for some).
 * N is the number of ranks, r this rank. */

/* out[i] = op over all ranks of in[i], i < count, on every rank.
 * In place: in == out. */
TUTTI_API tutti_err tutti_all_reduce(tutti_comm *comm, const void *in,
                                     void *out, size_t count, tutti_type type,
                                     tutti_op op, const tutti_call_opts *opts,
                                     tutti_request **req);

/* in: N*count elements; out: count elements, the reduction of block r.
 * In place: out == in + r*count elements. */
TUTTI_API tutti_err tutti_reduce_scatter(tutti_comm *comm, const void *in,
                                         void *out, size_t count,
                                         tutti_type type, tutti_op op,
                                         const tutti_call_opts *opts,
                                         tutti_request **req);

/* The same with block sizes: in has counts[0] + ... + counts[N-1] elements,
 * out counts[r]; counts must be equal on all ranks.
 * In place: out == in + (counts[0] + ... + counts[r-1]) elements. */
TUTTI_API tutti_err tutti_reduce_scatter_v(tutti_comm *comm, const void *in,
                                           void *out, const size_t *counts,
                                           tutti_type type, tutti_op op,
                                           const tutti_call_opts *opts,
                                           tutti_request **req);

/* in: count elements; out: N*count elements, block b from rank b.
 * In place: in == out + r*count elements. */
TUTTI_API tutti_err tutti_all_gather(tutti_comm *comm, const void *in,
                                     void *out, size_t count, tutti_type type,
                                     const tutti_call_opts *opts,
                                     tutti_request **req);

/* The same with block sizes; counts must be equal on all ranks. */
TUTTI_API tutti_err tutti_all_gather_v(tutti_comm *comm, const void *in,
                                       void *out, const size_t *counts,
                                       tutti_type type,
                                       const tutti_call_opts *opts,
                                       tutti_request **req);

/* out on every rank = in of root. in is not read on other ranks.
 * In place: in == out. */
TUTTI_API tutti_err tutti_broadcast(tutti_comm *comm, const void *in, void *out,
                                    size_t count, tutti_type type, int root,
                                    const tutti_call_opts *opts,
                                    tutti_request **req);

/* out on root = op over all ranks of in. out is not written on other ranks.
 * In place: in == out on root. */
TUTTI_API tutti_err tutti_reduce(tutti_comm *comm, const void *in, void *out,
                                 size_t count, tutti_type type, tutti_op op,
                                 int root, const tutti_call_opts *opts,
                                 tutti_request **req);

/* in: N blocks of count, block j goes to rank j; out: N blocks, block i came
 * from rank i. In place: in == out. */
TUTTI_API tutti_err tutti_all_to_all(tutti_comm *comm, const void *in,
                                     void *out, size_t count, tutti_type type,
                                     const tutti_call_opts *opts,
                                     tutti_request **req);

/* The same with sizes: in_counts[j] elements go to rank j, out_counts[i] come
 * from rank i (and must equal what rank i sends: EMISMATCH otherwise). Blocks
 * follow each other without gaps. In place: in == out, and in_counts must
 * equal out_counts on every rank. */
TUTTI_API tutti_err tutti_all_to_all_v(tutti_comm *comm, const void *in,
                                       const size_t *in_counts, void *out,
                                       const size_t *out_counts,
                                       tutti_type type,
                                       const tutti_call_opts *opts,
                                       tutti_request **req);

/* out on root: N blocks of count, block b from rank b; ignored elsewhere.
 * In place: on root, in == out + root*count elements. */
TUTTI_API tutti_err tutti_gather(tutti_comm *comm, const void *in, void *out,
                                 size_t count, tutti_type type, int root,
                                 const tutti_call_opts *opts,
                                 tutti_request **req);

/* in on root: N blocks of count, block b goes to rank b; ignored elsewhere.
 * In place: on root, out == in + root*count elements. */
TUTTI_API tutti_err tutti_scatter(tutti_comm *comm, const void *in, void *out,
                                  size_t count, tutti_type type, int root,
                                  const tutti_call_opts *opts,
                                  tutti_request **req);

/* Returns when every rank has entered. */
TUTTI_API tutti_err tutti_barrier(tutti_comm *comm, const tutti_call_opts *opts,
                                  tutti_request **req);

/* The n-th send from rank a to rank b with a tag (opts->tag) matches b's n-th
 * recv from a with that tag; counts and types must agree (EMISMATCH). Messages
 * with other tags, and collectives, may overtake them. A rank may not send to
 * itself. A tag that a pair of ranks has used costs 16 bytes until the
 * communicator ends. */
TUTTI_API tutti_err tutti_send(tutti_comm *comm, const void *buf, size_t count,
                               tutti_type type, int to,
                               const tutti_call_opts *opts,
                               tutti_request **req);
TUTTI_API tutti_err tutti_recv(tutti_comm *comm, void *buf, size_t count,
                               tutti_type type, int from,
                               const tutti_call_opts *opts,
                               tutti_request **req);

/* The same from whoever has sent, or will send, a message with this tag to this
 * rank. *from (may be NULL) is its rank, when the call has returned or the
 * request is done with TUTTI_OK; it is borrowed until then. Among several who
 * have sent, each has its turn. A rank's message goes to a recv that names the
 * rank where one has been called, to a recv_any otherwise, to the one that was
 * called first. count must not be 0. */
TUTTI_API tutti_err tutti_recv_any(tutti_comm *comm, void *buf, size_t count,
                                   tutti_type type, int *from,
                                   const tutti_call_opts *opts,
                                   tutti_request **req);

/* -------------------------------------------------------------- requests -- */

/* TUTTI_AGAIN while it runs, TUTTI_OK or the failure when done. Never blocks;
 * does not free. [any thread] */
TUTTI_API tutti_err tutti_test(tutti_request *req);

/* Blocks until done, frees the request, returns the outcome. [any thread] */
TUTTI_API tutti_err tutti_wait(tutti_request *req);

/* Blocks until one of n requests (NULLs are skipped) is done, and stores its
 * index; does not free it. EINVAL when all are NULL. [any thread] */
TUTTI_API tutti_err tutti_wait_any(tutti_request *const *reqs, size_t n,
                                   size_t *index);

/* A descriptor that becomes readable when the request is done; the request
 * owns it. Errors: ESYS. [any thread] */
TUTTI_API tutti_err tutti_request_fd(tutti_request *req, int *fd);

/* Gives a request a callback (see tutti_call_opts) that it was not made with;
 * it is called also when the request is done already. Errors: EINVAL (it has
 * one), ESYS (no thread). [any thread, one at a time] */
TUTTI_API tutti_err tutti_request_callback(
    tutti_request *req, void (*callback)(void *arg, tutti_err err), void *arg);

/* Gives the request up; the collective itself goes on, and its buffers stay
 * borrowed until it ends. Accepts NULL. [any thread] */
TUTTI_API void tutti_request_free(tutti_request *req);

/* ------------------------------------------------------------- partial -- */

/* Partial reduce: workers that have finished a step average their models in
 * groups of those that are ready, instead of waiting for everybody. A
 * controller decides who is in which group; docs/partial.md has its rules.
 * Workers may leave, die and come back. The life of a worker:
 *
 *     tutti_partial *p;
 *     err = tutti_partial_open(comm, NULL, &p);
 *     for (i = 1; i <= n_steps; i++) {
 *         local_step(model);
 *         err = tutti_partial_announce(p, i, i == n_steps, NULL, NULL);
 *         if (!err)
 *             err = tutti_partial_reduce(p, model, n, TUTTI_F32, NULL, NULL);
 *         if (!err)
 *             err = tutti_partial_commit(p, NULL, NULL);
 *         if (err && tutti_partial_state(p))
 *             die(tutti_partial_message(p));
 *     }
 *     tutti_partial_close(p);
 *
 * Failures.  A group may break: a member died, left, or did something else. The
 * call then fails (EPEER, ETIMEOUT, EMISMATCH, ENET), the buffers are as they
 * were, and the worker goes on: it announces again. When the controller is gone
 * or has counted this worker as dead, tutti_partial_state() is not TUTTI_OK,
 * and every call returns it until tutti_partial_rejoin(). The communicator has
 * no part in all this: it may even be destroyed.
 *
 * Threads.  One at a time; a thread of the library's own moves the data. Types
 * are f16, bf16, f32 and f64. */
typedef struct tutti_partial tutti_partial;

/* All zero means default. `size` is sizeof(tutti_partial_opts). */
typedef struct tutti_partial_opts {
    size_t size;
    /* What the controller goes by. Of a communicator rank 0's count; workers
     * of a controller elsewhere take what it was started with. */
    int group_size;      /* P, 2 to the number of workers; 0: those who come
                            within half a step of the first, at least
                            min_group; with soft_wait_s, P is chosen by
                            what sizes take */
    int min_group;       /* what goes before P are ready; 0: 2 */
    int history;         /* groups that must mix everybody, at least
                            ceil((n-1)/(P-1)); 0: 4 times that */
    bool is_dynamic;     /* weights by staleness; else 1/P each */
    double decay;        /* per iteration behind, up to 1; 0: 0.8 */
    double max_wait_s;   /* nobody waits longer for a group; 0: 10 */
    double soft_wait_s;  /* then min_group go; 0: where P is given, a
                            quarter of a step, as measured, unless P is
                            all, or all go ahead; -1: they never do */
    double join_wait_s;  /* for another component; 0: twice a step */
    int recentre_every;  /* iterations until a group of all; 0: never */
    double end_wait_s;   /* for the last group of all; 0: 300 */
    double start_wait_s; /* for all workers; 0: TUTTI_START_TIMEOUT */
    double liveness_s;   /* silence that means death; 0: TUTTI_LIVENESS */
    const char *log;     /* file for all events and groups; NULL: none */
    /* This worker's own. */
    double timeout_s;    /* of a group; 0: TUTTI_TIMEOUT */
    const char *planner; /* equal on all; NULL: TUTTI_PLANNER */
    bool is_current;     /* it has the others' weights: no newcomer */
    bool goes_ahead;     /* it computes on while its group averages: nobody
                            waits while a group fills, so groups may be better */
} tutti_partial_opts;
#define TUTTI_PARTIAL_OPTS_INIT                                             \
    {                                                                       \
        sizeof(tutti_partial_opts), 0, 0, 0, false, 0, 0, 0, 0, 0, 0, 0, 0, \
            NULL, 0, NULL, false, false                                     \
    }

/* Makes a worker of every rank, by its number, with a controller in rank 0's
 * process; collective, blocks. comm is not needed afterwards. opts may be NULL.
 * On success the caller owns *out; on failure tutti_last_message() explains, on
 * all ranks. Errors: EINVAL, EBOOT, ESYS, ENOMEM, and those of comm. */
TUTTI_API tutti_err tutti_partial_open(tutti_comm *comm,
                                       const tutti_partial_opts *opts,
                                       tutti_partial **out);

/* Joins a controller that runs elsewhere (`tutti controller`, or
 * tutti_controller_open) at host:port; NULL: TUTTI_CONTROLLER. worker -1: any
 * place that is free. Blocks, at most TUTTI_START_TIMEOUT. Errors: EINVAL,
 * ECONFIG, EBOOT, ESYS, ENOMEM. */
TUTTI_API tutti_err tutti_partial_join(const char *controller, int worker,
                                       const tutti_partial_opts *opts,
                                       tutti_partial **out);

/* Leaves and frees; accepts NULL. What is in progress ends with EABORTED. With
 * the controller in this process, all others' partial reduce ends; it waits
 * for them to leave, at most end_wait_s. */
TUTTI_API void tutti_partial_close(tutti_partial *p);

/* This worker has finished a step, its `iteration`-th; the outcome comes when
 * it is in a group. is_last: it will announce no more; the group is that of all
 * who have said so (kind FINAL). Errors: EINVAL (a group is in progress). */
TUTTI_API tutti_err tutti_partial_announce(tutti_partial *p, uint64_t iteration,
                                           bool is_last,
                                           const tutti_call_opts *opts,
                                           tutti_request **req);

/* Averages a buffer with those of the other members: all give the same ones,
 * in the same order, each as soon as it is ready. The buffer is copied before
 * this returns, and is written by tutti_partial_commit() only (but see
 * tutti_call_opts.is_scratch). Done: the
 * average of this buffer is here. It, and the commit, may come as soon as the
 * announcement is made, before the group is known: who hands in everything at
 * once waits once, for the commit. Errors: EINVAL, ENOMEM; those of the group.
 */
TUTTI_API tutti_err tutti_partial_reduce(tutti_partial *p, void *buf,
                                         size_t count, tutti_type type,
                                         const tutti_call_opts *opts,
                                         tutti_request **req);

/* Ends the group: when all its averages are here they are written to the
 * buffers; or, if it breaks, none is. Other members may fare otherwise, until
 * the next group of all. Errors: those of the group. */
TUTTI_API tutti_err tutti_partial_commit(tutti_partial *p,
                                         const tutti_call_opts *opts,
                                         tutti_request **req);

/* Gives the group up: it breaks, for all members that have not committed. Before
 * the group is known: what was handed in ends with EABORTED, the commit too; the
 * announcement stands, so give its group up, too, when it is there. */
TUTTI_API void tutti_partial_abandon(tutti_partial *p, const char *reason);

/* Nobody waits for this worker any more; and: it comes back, in its old place.
 * is_current as in the options. Blocks like tutti_partial_join(). */
TUTTI_API void tutti_partial_leave(tutti_partial *p);
TUTTI_API tutti_err tutti_partial_rejoin(tutti_partial *p, bool is_current);

typedef struct tutti_partial_info {
    uint32_t worker, n_workers, incarnation; /* the last: how often it came */
    bool is_newcomer; /* the others have averaged without it: its model counts
                         for nothing until a group has given it theirs, so it
                         announces before its first step */
    bool is_dynamic;
    bool has_controller;         /* in this process */
    uint64_t n_groups, n_broken; /* that this worker was in */
} tutti_partial_info;
TUTTI_API void tutti_partial_describe(tutti_partial *p,
                                      tutti_partial_info *out);

/* TUTTI_OK, or why this worker is lost. [any thread] */
TUTTI_API tutti_err tutti_partial_state(tutti_partial *p);
/* The sentence of the last failure; "" if none. Valid until the next call. */
TUTTI_API const char *tutti_partial_message(tutti_partial *p);

/* name, number, text
 * ORDINARY: of those that were ready. RECENTRE: of everybody alive, or whoever
 * was there when the wait was over. FINAL: of those who had announced their
 * last. */
#define TUTTI_GROUP_KIND_LIST(X) \
    X(ORDINARY, 0, "ordinary")   \
    X(RECENTRE, 1, "recentre")   \
    X(FINAL, 2, "final")

typedef enum tutti_group_kind {
#define TUTTI_X(name, number, text) TUTTI_GROUP_##name = number,
    TUTTI_GROUP_KIND_LIST(TUTTI_X)
#undef TUTTI_X
        TUTTI_GROUP_KIND_COUNT = 3
} tutti_group_kind;
TUTTI_API const char *tutti_group_kind_name(tutti_group_kind kind);

typedef struct tutti_group_member {
    uint32_t worker, incarnation; /* incarnation: how often it has come */
    uint64_t iteration;
    double weight; /* 0 exactly for newcomers among others */
} tutti_group_member;

/* The group that this worker is in, or was in last. */
typedef struct tutti_partial_group {
    uint64_t id;
    tutti_group_kind kind;
    uint32_t n, rank;   /* members, and this worker's place among them */
    bool is_even;       /* the mean: every weight is 1/n */
    uint64_t iteration; /* the greatest of its members': a dynamic worker goes
                           on from there */
    const tutti_group_member *members; /* by worker; until it announces next */
} tutti_partial_group;
/* Errors: EINVAL: none yet, or it waits for the next. */
TUTTI_API tutti_err tutti_partial_group_of(tutti_partial *p,
                                           tutti_partial_group *out);

#define TUTTI_STALENESS_BINS 16

/* What a controller has seen. */
typedef struct tutti_partial_metrics {
    uint32_t n_workers, n_alive, n_ready;
    uint32_t group_size;          /* P as it is now */
    uint32_t window;              /* of history, as it is now, in groups */
    uint32_t n_components;        /* of those alive, over the window */
    uint32_t most_components;     /* that a full window ever had */
    uint32_t pad;                 /* 0 */
    uint64_t n_groups, n_members; /* n_members: over all groups */
    uint64_t n_broken;            /* members that their group failed */
    uint64_t n_frozen;            /* groups that joined components on purpose */
    uint64_t n_holds, n_late;     /* waits for a second component; in vain */
    uint64_t n_kind[TUTTI_GROUP_KIND_COUNT];
    uint64_t n_joins, n_leaves, n_deaths;
    /* Members by iterations behind the foremost of their group: 0, 1, 2-3, 4-7
     * and so on; the last: and more. */
    uint64_t staleness[TUTTI_STALENESS_BINS];
    double mean_staleness;
    /* 1 - second eigenvalue of the mean averaging matrix of the window: the
     * share of the variance between workers that a group takes away; and what
     * random groups of this size would. */
    double spectral_gap, random_gap;
    double soft_wait_s;
} tutti_partial_metrics;

/* Errors: EINVAL: the controller is in another process. */
TUTTI_API tutti_err tutti_partial_measure(tutti_partial *p,
                                          tutti_partial_metrics *out);
/* Groups of so many members; 0 where the controller is in another process. */
TUTTI_API uint64_t tutti_partial_n_of_size(tutti_partial *p, uint32_t size);

/* A controller by itself, so that no worker is special: `tutti controller`.
 * listen: host:port; NULL: every address, any port. Of opts what the
 * controller goes by counts. It has a thread of its own. Errors: EINVAL, ESYS,
 * ECONFIG, ENOMEM; tutti_last_message() explains. */
typedef struct tutti_controller tutti_controller;
TUTTI_API tutti_err tutti_controller_open(const char *listen,
                                          uint32_t n_workers,
                                          const tutti_partial_opts *opts,
                                          tutti_controller **out);
TUTTI_API int tutti_controller_port(const tutti_controller *c);
TUTTI_API void tutti_controller_measure(tutti_controller *c,
                                        tutti_partial_metrics *out);
/* Groups of so many members. */
TUTTI_API uint64_t tutti_controller_n_of_size(tutti_controller *c,
                                              uint32_t size);
/* TUTTI_OK when workers have come and all have gone; TUTTI_AGAIN when that has
 * not happened within the time. Errors: EFORK. */
TUTTI_API tutti_err tutti_controller_wait(tutti_controller *c, double seconds);
/* Accepts NULL. Workers that are still there are lost. */
TUTTI_API void tutti_controller_close(tutti_controller *c);

/* ---------------------------------------------------------------- memory -- */

/* Memory for buffers: whole pages, zeroed; NULL when out of memory. Any memory
 * may be given to the calls above, but what lies in this one is read by ranks
 * of the same host where it is, without a copy. It may be had before the first
 * communicator, and outlives the last one.
 *
 * After fork() the child has the same addresses. What it writes there it alone
 * sees; what it has not written follows the parent's memory. (Ordinary memory
 * would be a snapshot.) Errors: none but NULL. [any thread] */
TUTTI_API void *tutti_alloc(size_t bytes);

/* Gives it back; accepts NULL. No call may be using it: one that does goes on
 * with wrong data. [any thread] */
TUTTI_API void tutti_free(void *ptr);

/* ------------------------------------------------------------------- log -- */

typedef enum tutti_log_level {
    TUTTI_LOG_ERROR = 0,
    TUTTI_LOG_WARN = 1,
    TUTTI_LOG_INFO = 2,
    TUTTI_LOG_DEBUG = 3,
    TUTTI_LOG_TRACE = 4
} tutti_log_level;

/* Sends log lines (without newline) to fn; NULL: back to stderr. The level
 * comes from TUTTI_LOG (default warn). fn may be called from any thread, also
 * while the library holds locks: it must not call the library. */
typedef void (*tutti_log_fn)(void *arg, tutti_log_level level,
                             const char *line);
TUTTI_API void tutti_log_set(tutti_log_fn fn, void *arg);

/* ------------------------------------------------- unstable: may change -- */
#if defined(TUTTI_UNSTABLE)

/* All of it: [any thread]; networks and schedules are immutable, so threads may
 * share them. A function writes its outputs only when it returns TUTTI_OK. diag
 * may be NULL. Strings in structs of rows and infos are the library's and stay,
 * unless it says otherwise. Option structs begin with their _INIT macro, or
 * all zero but `size`, sizeof; NULL: all zero. Every function that can fail may
 * also return TUTTI_ENOMEM, and TUTTI_ELIMIT beyond a limit of
 * docs/topology.md. */

/* One sentence about what is wrong, and where when that makes sense. */
typedef struct tutti_diag {
    uint32_t rank, chunk, step; /* UINT32_MAX: does not apply */
    uint32_t line, column;      /* of a text; 0: does not apply */
    char text[512];
} tutti_diag;

/* A schedule: immutable, free of user memory. */
typedef struct tutti_schedule tutti_schedule;

typedef struct tutti_schedule_info {
    tutti_coll collective;
    uint32_t n_ranks, root; /* root: UINT32_MAX when there is none */
    uint64_t n_blocks, n_parts, n_chunks, n_transfers;
    uint32_t n_steps;
    uint64_t id;
} tutti_schedule_info;

/* A row of the planner table. */
typedef struct tutti_planner_info {
    const char *name, *blurb, *fits;
    /* Above so many ranks it plans for a minute or more, and `auto` leaves it
     * alone; 0: there is no such number. */
    uint32_t auto_ranks;
} tutti_planner_info;
/* false when index is past the end. */
TUTTI_API bool tutti_planner_at(size_t index, tutti_planner_info *out);

/* ------------------------------------------------------------ topologies -- */

/* A network: immutable. */
typedef struct tutti_topology tutti_topology;

/* spec: a generator ("torus:8x8@16GB/s,150ns"), the name of one of the papers'
 * machines, or the path of a topology file or of NCCL's topology XML. The
 * caller owns *out (tutti_topology_free). Errors: ESYS (no such file), EFORMAT,
 * EINVAL, ELIMIT with line and column, ENOFIT (XML, and built without
 * libxml2). */
TUTTI_API tutti_err tutti_topology_open(const char *spec, tutti_topology **out,
                                        tutti_diag *diag);
/* The same from the text of a file, a generator or XML. */
TUTTI_API tutti_err tutti_topology_parse(const char *text, size_t len,
                                         tutti_topology **out,
                                         tutti_diag *diag);
TUTTI_API void tutti_topology_free(tutti_topology *net); /* accepts NULL */
TUTTI_API uint32_t tutti_topology_ranks(const tutti_topology *net);
/* As a topology file; the caller owns *text (tutti_text_free). */
TUTTI_API tutti_err tutti_topology_text(const tutti_topology *net, char **text,
                                        size_t *len);

typedef struct tutti_topology_info {
    uint32_t n_ranks, n_switches, n_links; /* links: one direction each */
    uint64_t id;                           /* a hash of the network's file */
} tutti_topology_info;
TUTTI_API void tutti_topology_describe(const tutti_topology *net,
                                       tutti_topology_info *out);

/* A vertex of the network. Names live as long as the topology. */
typedef enum tutti_node_kind {
    TUTTI_NODE_HOST,   /* with one rank, or, with none, with slots */
    TUTTI_NODE_SWITCH, /* forwards only */
    TUTTI_NODE_SLOT    /* of one rank of a host of several */
} tutti_node_kind;
typedef struct tutti_node_info {
    const char *name;
    const char *host; /* of a slot: the host's name; else NULL */
    tutti_node_kind kind;
    int rank; /* -1: none */
} tutti_node_info;
/* false when index is past the end. */
TUTTI_API bool tutti_node_at(const tutti_topology *net, size_t index,
                             tutti_node_info *out);

/* A directed link. Names live as long as the topology. */
typedef struct tutti_link_info {
    const char *from, *to;
    double bytes_per_s, latency_s;
    uint64_t rate_bps; /* the same rate, exactly */
    size_t twin;       /* index of the link back; SIZE_MAX: one way only */
    const char *dev;   /* the interface at `from`; NULL: not known */
} tutti_link_info;
/* false when index is past the end. */
TUTTI_API bool tutti_link_at(const tutti_topology *net, size_t index,
                             tutti_link_info *out);

/* The route from every rank to every other, by increasing (src, dst): the
 * indices of its links, which are the callback's while it runs. */
typedef void (*tutti_route_fn)(void *ctx, int src, int dst,
                               const uint32_t *links, uint32_t n_links);
TUTTI_API tutti_err tutti_routes(const tutti_topology *net, tutti_route_fn fn,
                                 void *ctx, tutti_diag *diag);
/* The other routes of each pair, where it has several: rails 1 and up. */
typedef void (*tutti_rail_fn)(void *ctx, int src, int dst, int rail,
                              const uint32_t *links, uint32_t n_links);
TUTTI_API tutti_err tutti_rails(const tutti_topology *net, tutti_rail_fn fn,
                                void *ctx, tutti_diag *diag);

/* The same network as TCP's payload sees it: of every full packet on a link
 * between hosts 1448 of 1514 bytes; links inside a host stay as they are. The
 * caller owns *out. */
TUTTI_API tutti_err tutti_topology_payload(const tutti_topology *net,
                                           tutti_topology **out,
                                           tutti_diag *diag);

/* A row of the table of generators and named machines. */
typedef struct tutti_generator_info {
    const char *name, *form, *blurb;
} tutti_generator_info;
TUTTI_API bool tutti_generator_at(size_t index, tutti_generator_info *out);

/* How far long work is: `what` a phrase; `done` pieces of `total` (0: unknown).
 * Called often, in the caller's thread, while a function works. */
typedef void (*tutti_progress_fn)(void *ctx, const char *what, uint64_t done,
                                  uint64_t total);

/* The least possible times on a network, in seconds per byte of the vector. */
typedef struct tutti_bound_info {
    uint32_t n_ranks;
    double allreduce_s_per_byte;
    bool is_exact; /* else: a lower bound, and the best schedule known takes
                      (1 + gap) times as long; infinite: none is known */
    double gap;
    double allgather_s_per_byte, reducescatter_s_per_byte;
    /* The all-gather's exactly: num / den seconds per bit. den 0: not proven
     * to be the optimum (tens of thousands of ranks); a lower bound. */
    uint64_t allgather_num, allgather_den;
    double cut_s_per_byte, aggregate_s_per_byte; /* lower bounds of the
                                                    all-reduce */
    double latency_s; /* no all-reduce, all-gather, reduce-scatter or
                         all-to-all takes less */
} tutti_bound_info;
typedef struct tutti_bound_opts {
    size_t size;
    double gap;       /* good enough; 0: 1e-7 */
    bool only_bounds; /* no column generation */
    tutti_progress_fn progress;
    void *progress_ctx;
} tutti_bound_opts;
#define TUTTI_BOUND_OPTS_INIT                      \
    {                                              \
        sizeof(tutti_bound_opts), 0, 0, NULL, NULL \
    }
/* Column generation is the long part; only_bounds leaves it out. */
TUTTI_API tutti_err tutti_bound(const tutti_topology *net,
                                const tutti_bound_opts *opts,
                                tutti_bound_info *out, tutti_diag *diag);
/* The least seconds of a collective of so many bytes (as tutti_plan_opts counts
 * them), by `bound` of net. 0: one rank, send-recv, or the root is no rank. */
TUTTI_API double tutti_bound_s(const tutti_topology *net,
                               const tutti_bound_info *bound, tutti_coll coll,
                               int root, uint64_t size_bytes);

/* ---------------------------------------------------------------- probe -- */

/* The network between the hosts of a job, measured. */
typedef struct tutti_probe tutti_probe;

typedef struct tutti_probe_opts {
    size_t size;
    double time_s;              /* measures no longer than this; 0: 10 */
    tutti_progress_fn progress; /* called on rank 0, with per cent of 100 */
    void *progress_ctx;
} tutti_probe_opts;
#define TUTTI_PROBE_OPTS_INIT                   \
    {                                           \
        sizeof(tutti_probe_opts), 0, NULL, NULL \
    }
/* Every rank of a job calls it, started by any launcher, as it would call
 * tutti_comm_create; no communicator is needed or made. The ranks find each
 * other, one of each host finds out which interfaces reach each other and how
 * fast they are alone and together, and rank 0 infers the network. Blocks. The
 * links should be idle. The caller owns *out (tutti_probe_free). Errors, on all
 * ranks: as tutti_comm_create; ENET (hosts that cannot reach each other, by
 * name), EPEER and ETIMEOUT (a rank that has left or does not answer), EINVAL
 * (a time that is none). */
TUTTI_API tutti_err tutti_probe_run(const tutti_probe_opts *opts,
                                    tutti_probe **out, tutti_diag *diag);
TUTTI_API void tutti_probe_free(tutti_probe *probe); /* accepts NULL */

/* What follows is known on rank 0 alone; elsewhere there is no network, no note
 * and no way. Everything lives as long as the probe. */
typedef struct tutti_probe_info {
    uint32_t rank, n_ranks; /* known everywhere */
    uint32_t n_hosts, n_interfaces, n_rounds;
    double seconds;
} tutti_probe_info;
TUTTI_API void tutti_probe_describe(const tutti_probe *probe,
                                    tutti_probe_info *out);
/* NULL where it is not known. Rates are those of the links, with headers. */
TUTTI_API const tutti_topology *tutti_probe_topology(const tutti_probe *probe);

/* Where figures come from, and what could not be found out. */
typedef enum tutti_note_kind {
    TUTTI_NOTE_LINK,    /* what the figures of a link rest on */
    TUTTI_NOTE_UNKNOWN, /* what traffic could not tell */
    TUTTI_NOTE_DOUBT    /* measurements that do not fit together */
} tutti_note_kind;
typedef struct tutti_probe_note {
    tutti_note_kind kind;
    const char *text; /* one line */
} tutti_probe_note;
/* false when index is past the end. */
TUTTI_API bool tutti_probe_note_at(const tutti_probe *probe, size_t index,
                                   tutti_probe_note *out);

/* One address of a host, called from one address of another. */
typedef struct tutti_probe_way {
    const char *from, *to; /* hosts */
    const char *from_dev, *to_dev, *from_address, *to_address;
    const char *outcome; /* "connects, in one subnet", "no answer", ... */
    bool connects;
    bool is_chosen;     /* of all ways from this host to that one */
    const char *why;    /* it is chosen, or not; NULL: it does not connect */
    double latency_s;   /* one way; 0: not known */
    double bytes_per_s; /* of the link; 0: not known */
} tutti_probe_way;
/* By host from and host to; false when index is past the end. */
TUTTI_API bool tutti_probe_way_at(const tutti_probe *probe, size_t index,
                                  tutti_probe_way *out);

/* ---------------------------------------------------------------- plans -- */

typedef struct tutti_plan_opts {
    size_t size;
    tutti_coll collective;
    int root;
    /* Of the vector; decides among planners. Reduce-scatter, all-gather,
     * gather, scatter: all blocks together; all-to-all: what one rank sends. */
    uint64_t size_bytes;
    const char *planner; /* name, rule string ("0-4K:doubling,4K-:ring"), or
                             NULL = auto */
    /* Reduce-scatter, all-gather: bytes of each rank's block, n_ranks of them;
     * NULL: equal. */
    const uint64_t *block_bytes;
    tutti_progress_fn progress;
    void *progress_ctx;
} tutti_plan_opts;
#define TUTTI_PLAN_OPTS_INIT                                               \
    {                                                                      \
        sizeof(tutti_plan_opts), TUTTI_ALL_REDUCE, 0, 0, NULL, NULL, NULL, \
            NULL                                                           \
    }

/* Plans for the network. The caller owns *out (tutti_schedule_free). *chosen
 * (may be NULL) is the planner's name. Errors: ENOFIT (diag says why), ECONFIG
 * (no such planner, or a bad rule), EINVAL (the collective has no schedule, or
 * the root is no rank). */
TUTTI_API tutti_err tutti_plan(const tutti_topology *net,
                               const tutti_plan_opts *opts,
                               tutti_schedule **out, const char **chosen,
                               tutti_diag *diag);

/* The network that calls on comm are planned for, with comm's ranks; NULL: none
 * is known (TUTTI_TOPOLOGY). Lives as long as comm. */
TUTTI_API const tutti_topology *tutti_comm_topology(const tutti_comm *comm);
/* The schedule that such a call on comm is performed by; opts->planner NULL:
 * TUTTI_PLANNER; block_bytes is not looked at. Nothing is sent: no other rank
 * need do the same. The caller owns *out; *chosen (may be NULL) is the planner's
 * name. A barrier is an all-reduce of one byte. Errors: as tutti_plan. */
TUTTI_API tutti_err tutti_comm_plan(const tutti_comm *comm,
                                    const tutti_plan_opts *opts,
                                    tutti_schedule **out, const char **chosen,
                                    tutti_diag *diag);

/* The seconds that the schedule is predicted to take for the vector that opts
 * describe: the fluid model with the engine's slices, credits and window, but
 * fewer slices where that would take long; reducing costs nothing (a topology
 * does not say what it costs; tutti_simulate can be told). The collective and
 * its root are the schedule's. Errors: as tutti_simulate. */
TUTTI_API tutti_err tutti_predict(const tutti_topology *net,
                                  const tutti_schedule *sched,
                                  const tutti_plan_opts *opts, double *seconds,
                                  tutti_diag *diag);

/* -------------------------------------------------------------- simulate -- */

/* What happened to one slice of one transfer. */
typedef struct tutti_event_info {
    double begin_s, sent_s, end_s; /* leaves, has left, has been consumed */
    uint64_t bytes;
    uint32_t step, chunk, src, dst, slice;
    uint8_t rail; /* with src and dst: the connection */
    bool reduces; /* else copies */
} tutti_event_info;
typedef void (*tutti_event_fn)(void *ctx, const tutti_event_info *event);

typedef enum tutti_lockstep {
    TUTTI_LOCKSTEP_OFF,
    TUTTI_LOCKSTEP_RANK, /* a rank waits for its own earlier steps */
    TUTTI_LOCKSTEP_ALL   /* ... and for everybody's */
} tutti_lockstep;

/* All zero but `size` and size_bytes: the fluid model, one slice per chunk.
 * docs/simulator.md says what is modelled. */
typedef struct tutti_sim_opts {
    size_t size;
    uint64_t size_bytes;         /* as in tutti_plan_opts */
    const uint64_t *block_bytes; /* as in tutti_plan_opts */
    uint32_t elem_bytes; /* 0: 1; the part of an element at the end of the
                            vector, or of a block, is left out */
    bool as_engine; /* slices, window and front window as the engine has them;
                       the next four are not looked at */
    uint32_t n_slices; /* per chunk, rounded up to a power of two, fewer where
                          they would fall under 2 KiB; 0: by front_bytes */
    uint64_t front_bytes; /* slices so that one of every chunk is at most so
                             much of the vector; 0: one slice */
    uint32_t window;      /* credit, in slices per transfer; 0: unlimited */
    uint64_t front_window_bytes; /* how far sends of own data run ahead of the
                                    result; 0: any; not with lockstep */
    double overhead_s;           /* of a rank, per slice it sends */
    double gamma_s_per_byte;     /* of a rank, per byte and input it reduces */
    tutti_lockstep lockstep;
    bool by_step;     /* connections, and links (packet), serve the lowest step
                       first */
    bool is_packet;   /* else fluid; the rest is of the packet model */
    bool cut_through; /* else a slice is stored and forwarded */
    uint32_t packet_bytes; /* payload of a packet; 0: no packets */
    uint32_t flit_bytes;   /* payload and headers are whole flits; 0: 1 */
    uint32_t header_bytes; /* of each packet */
    bool message_mode;     /* one header per slice instead */
    /* Called in the caller's thread, in order of consumption. */
    tutti_event_fn on_event;
    void *event_ctx;
    tutti_progress_fn progress;
    void *progress_ctx;
} tutti_sim_opts;

typedef struct tutti_sim_result {
    double time_s;
    /* Busy seconds of the busiest link, and of all on average, by time_s. */
    double max_link_utilisation, mean_link_utilisation;
    uint32_t busiest_link; /* UINT32_MAX: nothing was sent */
    uint64_t n_messages;   /* slices */
    uint64_t bytes;        /* payload over all transfers */
    uint64_t link_bytes;   /* over all links, with headers */
} tutti_sim_result;

/* Errors: EINVAL (the schedule is for another number of ranks; bad options),
 * EPROOF (a transfer that can never start: the schedule is not sound). */
TUTTI_API tutti_err tutti_simulate(const tutti_topology *net,
                                   const tutti_schedule *sched,
                                   const tutti_sim_opts *opts,
                                   tutti_sim_result *out, tutti_diag *diag);

/* The same, and what happens when as a Chrome trace (JSON, for Perfetto or
 * chrome://tracing). The caller owns *text (tutti_text_free). on_event is not
 * looked at. */
TUTTI_API tutti_err tutti_trace(const tutti_topology *net,
                                const tutti_schedule *sched,
                                const tutti_sim_opts *opts,
                                tutti_sim_result *out, char **text, size_t *len,
                                tutti_diag *diag);

/* Does any step load a link beyond its capacity, when all transfers of a step
 * are on the way together? A link's capacity is its rate over the slowest
 * rate that the schedule uses, rounded down. Errors: EINVAL (another number of
 * ranks). */
typedef struct tutti_contention_info {
    bool is_free;
    uint32_t step, link, n_transfers, capacity; /* the worst; when not free */
    uint64_t n_overloaded; /* (step, link) pairs beyond their capacity */
} tutti_contention_info;
TUTTI_API tutti_err tutti_contention(const tutti_topology *net,
                                     const tutti_schedule *sched,
                                     tutti_contention_info *out,
                                     tutti_diag *diag);

/* ------------------------------------------------------------- schedules -- */

TUTTI_API void tutti_schedule_free(tutti_schedule *sched);
TUTTI_API void tutti_schedule_describe(const tutti_schedule *sched,
                                       tutti_schedule_info *out);
/* Reads the text form `tutti-schedule 1`. The caller owns *out. Errors:
 * EFORMAT, EINVAL, ELIMIT with line and column. */
TUTTI_API tutti_err tutti_schedule_read(const char *text, size_t len,
                                        tutti_schedule **out, tutti_diag *diag);
/* Proves the schedule: TUTTI_OK, or TUTTI_EPROOF and the counterexample. */
TUTTI_API tutti_err tutti_verify(const tutti_schedule *sched, tutti_diag *diag);
/* format: "schedule" (the text form), "json", "picture", "dot". The caller owns
 * *text (free with tutti_text_free); it is NUL-terminated. Errors: EINVAL (no
 * such format; diag lists them). */
TUTTI_API tutti_err tutti_export(const tutti_schedule *sched,
                                 const char *format, char **text, size_t *len,
                                 tutti_diag *diag);
TUTTI_API void tutti_text_free(char *text);

/* -------------------------------------------------------------- grouping -- */

/* The rule by which a controller forms groups, by itself: no sockets, no clock.
 * Times are the caller's, in nanoseconds, and must not run backwards; the same
 * events give the same groups. One thread at a time. For simulations. */
typedef struct tutti_grouping tutti_grouping;

typedef struct tutti_group_decision {
    uint64_t id; /* 1, 2, ... */
    tutti_group_kind kind;
    uint32_t n;
    bool is_even;       /* the mean: every weight is 1/n */
    bool has_model;     /* not newcomers alone, where others have a model */
    uint64_t iteration; /* the greatest of its members' */
    const tutti_group_member *members; /* by worker; the callback's */
} tutti_group_decision;
/* Called inside the event that made the group; must not call the grouping. */
typedef void (*tutti_group_fn)(void *ctx, const tutti_group_decision *group);

/* The caller owns *out. Errors: EINVAL (a bad option). */
TUTTI_API tutti_err tutti_grouping_create(const tutti_partial_opts *opts,
                                          uint32_t n_workers, tutti_group_fn fn,
                                          void *ctx, tutti_grouping **out,
                                          tutti_diag *diag);
TUTTI_API void tutti_grouping_free(tutti_grouping *g); /* accepts NULL */
/* Events; EINVAL when the worker is not in the state for one. No group is made
 * before all have joined once, or start_wait_s is over. host: equal for
 * workers of one host; its upper half: for those of one rack (0: not known). */
TUTTI_API tutti_err tutti_grouping_join(tutti_grouping *g, uint32_t worker,
                                        uint64_t host, uint64_t now_ns);
TUTTI_API tutti_err tutti_grouping_announce(tutti_grouping *g, uint32_t worker,
                                            uint64_t iteration, bool is_last,
                                            uint64_t now_ns);
TUTTI_API tutti_err tutti_grouping_done(tutti_grouping *g, uint32_t worker,
                                        uint64_t group, bool well,
                                        uint64_t now_ns);
TUTTI_API tutti_err tutti_grouping_leave(tutti_grouping *g, uint32_t worker,
                                         uint64_t now_ns);
TUTTI_API void tutti_grouping_tick(tutti_grouping *g, uint64_t now_ns);
/* When a tick could make a group next; UINT64_MAX: only an event can. */
TUTTI_API uint64_t tutti_grouping_deadline(const tutti_grouping *g);
TUTTI_API void tutti_grouping_measure(tutti_grouping *g,
                                      tutti_partial_metrics *out);
/* Groups of so many members. */
TUTTI_API uint64_t tutti_grouping_n_of_size(const tutti_grouping *g,
                                            uint32_t size);
/* Feeds the events of a log (`tutti controller --log`) to a new rule and
 * compares every group; fn (may be NULL) hears of them. Errors: EFORMAT,
 * EMISMATCH (the rule decides otherwise), with the line. */
TUTTI_API tutti_err tutti_grouping_replay(const char *text, size_t len,
                                          tutti_group_fn fn, void *ctx,
                                          tutti_partial_metrics *out,
                                          tutti_diag *diag);

/* A row of the settings table, with its value and source as seen now. */
typedef struct tutti_setting_info {
    const char *name, *type, *fallback, *help;
    const char *least, *most; /* "" when there is no limit */
    const char *source;       /* "default", "environment", "invalid" */
    char value[256];
} tutti_setting_info;
TUTTI_API bool tutti_setting_at(size_t index, tutti_setting_info *out);

#endif /* TUTTI_UNSTABLE */

#ifdef __cplusplus
}
#endif
#endif /* TUTTI_H */
