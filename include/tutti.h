/* SPDX-License-Identifier: BSD-3-Clause
 *
 * tutti.h - communicators and collectives: the public header of Tutti, a
 * collective-communication library for distributed deep learning on machines
 * and links that are not all alike. It brings two more along:
 *
 *     tutti_partial.h   partial reduce: training that waits for no straggler
 *     tutti_plan.h      networks and schedules: bounds, plans, proofs,
 *                       predictions, measured networks. Unstable: a program
 *                       that wants it defines TUTTI_UNSTABLE first.
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
 * by the thread that is in tutti_comm_create(), tutti_comm_grow() (put: once,
 * by rank 0's) or tutti_comm_join() (get), until it returns; what they return
 * other than said here ends it with TUTTI_EBOOT.
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

/* By what ranks know each other, in place of the variables of the same meaning;
 * all zero: these count. With a secret, or certificates, who has none is let in
 * nowhere, and what goes from host to host is encrypted (security.md). What
 * is named here is read when it is used, and borrowed for the call. */
typedef struct tutti_trust {
    const char *secret_file; /* TUTTI_SECRET_FILE */
    const void *secret; /* or the secret itself: n_secret bytes, 32 to 1024 */
    size_t n_secret;
    const char *tls_cert, *tls_key, *tls_ca; /* TUTTI_TLS_CERT, _KEY, _CA */
    bool is_plain;                           /* TUTTI_ENCRYPT=0 */
    const char *tls_crl;                     /* TUTTI_TLS_CRL */
} tutti_trust;
#define TUTTI_TRUST_INIT                             \
    {                                                \
        NULL, NULL, 0, NULL, NULL, NULL, false, NULL \
    }

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
    tutti_trust trust;
    const char *check; /* "crc", "off"; all ranks alike; NULL: TUTTI_CHECK */
} tutti_comm_opts;
#define TUTTI_COMM_OPTS_INIT                                         \
    {                                                                \
        sizeof(tutti_comm_opts), NULL, 0, 0, 0, NULL, NULL, NULL, 0, \
            TUTTI_TRUST_INIT, NULL                                   \
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

/* The same, by a rank that wants all to come to tutti_comm_shrink() (a machine
 * is to be freed): the sentence says "revoked". [any thread] */
TUTTI_API void tutti_comm_revoke(tutti_comm *comm, const char *reason);

/* Agrees, among the ranks of comm that are left, on the AND of what each has in
 * *mask: the same on all of them, whoever is lost meanwhile, also of a
 * communicator that has failed. Blocking; all that are left must call it, in
 * the same order as tutti_comm_shrink(). Who does not come within the
 * communicator's timeout_s is lost to the others (and fails comm). A call that
 * fails leaves *mask alone.
 * Errors: EPEER (fewer ranks are left than the quorum, see tutti_shrink_opts;
 * or the others have gone on without this one), EMISMATCH, EINVAL, ELIMIT (more
 * than 1856 ranks), ENOMEM, EBUSY, EFORK. */
TUTTI_API tutti_err tutti_comm_agree(tutti_comm *comm, uint64_t *mask);

/* TUTTI_SHRINK_OPTS_INIT sets the defaults. */
typedef struct tutti_shrink_opts {
    size_t size;
    /* Ranks that must be left, the same on all, at most all (EINVAL); 0:
     * TUTTI_QUORUM, of which a number above comm's size means all, and whose
     * default is more than half of comm's. With less, the halves of a network
     * that is cut may both go on. */
    int quorum;
    double timeout_s; /* for others to come; 0: the communicator's */
    int *old_ranks;   /* [size of comm] of rank r of the new one: its rank in
                         comm; NULL: not wanted */
    /* [n_exclude] ranks to leave out whether they live or not, the same on all
     * that call: these do not wait for them. They do not call, and are lost to
     * comm's agreements from then on. NULL: none. */
    const int *exclude;
    int n_exclude;
    /* Every rank of comm that is not in the new one is put out, those of
     * exclude and those that are lost: what it proves itself by counts no more,
     * so it does not come back by tutti_comm_join() or any other way. The same
     * on all. With a secret those that are left take a fresh one in its place,
     * which they tell each other; with certificates each refuses those that it
     * has shown. Both for what comes of this tutti_comm_create(), as long as it
     * lasts; security.md says who then comes in, and how it is made to last.
     * Needs a secret that is encrypted, or a certificate for each host:
     * ECONFIG, and nothing is changed. */
    bool puts_out;
} tutti_shrink_opts;
#define TUTTI_SHRINK_OPTS_INIT                                \
    {                                                         \
        sizeof(tutti_shrink_opts), 0, 0, NULL, NULL, 0, false \
    }

/* Makes a communicator of the ranks of comm that are left, in the same
 * processes, over the same connections, in the same order; opts may be NULL.
 * Blocking; all that are left must call it. Its plans are made anew for them.
 * comm may have failed, and need not; it stays as it is, to be destroyed.
 * Either all who are left have the same new one, or all get the same error; who
 * was lost only to others gets EPEER and a sentence. Then *out is left alone,
 * and comm may be shrunk again. The caller owns *out. failures.md has the loop.
 * Errors: as tutti_comm_agree(); ECONFIG. */
TUTTI_API tutti_err tutti_comm_shrink(tutti_comm *comm,
                                      const tutti_shrink_opts *opts,
                                      tutti_comm **out);

/* TUTTI_GROW_OPTS_INIT sets the defaults. */
typedef struct tutti_grow_opts {
    size_t size;
    /* Where newcomers come to; rank 0's counts, when it first listens there.
     * "host:port" of rank 0's host, or on one host a name. NULL: where the job
     * has met (TUTTI_ADDR, TUTTI_JOB). */
    const char *address;
    /* Or a store that newcomers have, too; borrowed for the call. NULL:
     * none. */
    const tutti_store *store;
    /* For newcomers that are there to start; 0: 15 s, or TUTTI_START_TIMEOUT
     * where that is less. */
    double timeout_s;
} tutti_grow_opts;
#define TUTTI_GROW_OPTS_INIT                   \
    {                                          \
        sizeof(tutti_grow_opts), NULL, NULL, 0 \
    }

/* Takes in processes that have called tutti_comm_join(): a larger communicator,
 * in which the ranks of comm keep their numbers, and newcomers come behind
 * them. All ranks call it now and then, between two steps, in the same order as
 * collectives; opts may be NULL. It does not wait for newcomers: a small
 * broadcast while nobody is there (rank 0 listens from the first call on), an
 * agreement while somebody starts, which goes on in the background of the calls
 * on comm, in a thread that ends in tutti_comm_destroy() at the latest.
 *
 * TUTTI_OK     all have *out, at this call, and newcomers return from theirs.
 *              comm stays as it is: it may be used on, until the newcomers have
 *              what they need, and is destroyed like any other. The caller owns
 *              *out.
 * TUTTI_AGAIN  not yet: nobody has come, or they are on the way.
 * TUTTI_EBOOT  who came was not taken in, or rank 0 cannot listen: the sentence
 *              of tutti_comm_message() says why. comm is as well as before.
 * Others       as of collectives, and tutti_comm_agree(): comm has failed.
 * The same on all ranks; but for TUTTI_OK *out is left alone. At most 64
 * newcomers start together, and no communicator has more than 1856 ranks.
 * docs/explanation/failures.md has the loop. */
TUTTI_API tutti_err tutti_comm_grow(tutti_comm *comm,
                                    const tutti_grow_opts *opts,
                                    tutti_comm **out);

/* A process comes to a communicator that is there, whose ranks call
 * tutti_comm_grow(): at opts->address, or through opts->store (n_ranks and rank
 * do not count), or as TUTTI_JOIN says; with the secret, if the job has one.
 * opts may be NULL. Blocks until it is taken in, or start_timeout_s has passed;
 * who was not taken in because another newcomer died, say, tries again
 * meanwhile. On success the caller owns *out; on failure *out is left alone and
 * tutti_last_message() explains. Errors: those of tutti_comm_create().
 * [any thread] */
TUTTI_API tutti_err tutti_comm_join(const tutti_comm_opts *opts,
                                    tutti_comm **out);

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
    /* tutti_partial_reduce: no copy is made, the buffer itself is averaged;
     * what it held is lost if the group breaks. */
    bool is_scratch;
    /* in and out are memory of one GPU (CUDA); other ranks' may be anywhere.
     * Not of tutti_partial_reduce. gpu.md has more. */
    bool on_device;
    /* With on_device: a CUevent (a cudaEvent_t is one) that was recorded; in is
     * not read, nor out written, before it has happened. Borrowed until the
     * call that begins it returns. NULL: they may be used at once. */
    void *after;
} tutti_call_opts;
#define TUTTI_CALL_OPTS_INIT                                                 \
    {                                                                        \
        sizeof(tutti_call_opts), 0, 0, 1, NULL, NULL, NULL, 0, false, false, \
            false, NULL                                                      \
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

/* ------------------------------------------------------------- comparing -- */

/* The XXH64 of `bytes` bytes at buf: equal on every machine, and made about as
 * fast as memory is read. It finds accidents, not attacks. seed: any number, or
 * the hash of what came before. [any thread] */
TUTTI_API uint64_t tutti_hash(const void *buf, size_t bytes, uint64_t seed);

/* Something that should be the same on all ranks: weights, say. Arrays are made
 * of it, so it never gets further members. */
typedef struct tutti_shared {
    const char *name; /* for the sentence; NULL: its number says enough */
    const void *buf;
    size_t bytes;
} tutti_shared;

/* What tutti_comm_compare() has found: the same on all ranks, but for names.
 * TUTTI_DIFFERENCE_INIT before it. */
typedef struct tutti_difference {
    size_t size;
    int *ranks;    /* [N], the caller's: those that differ, n_ranks of them,
                        are stored here; NULL: not wanted */
    int n_ranks;   /* that have not what most have; 0: nothing differs */
    int rank;      /* the lowest of them */
    int like;      /* the lowest of most; of halves, of that with rank 0 */
    size_t buffer; /* the number of the first buffer that is not equal */
    uint64_t hash, like_hash; /* tutti_hash(.., 0) of it at these two ranks */
    uint64_t bytes, like_bytes;
    char text[240]; /* a sentence that says all this */
} tutti_difference;
#define TUTTI_DIFFERENCE_INIT                                      \
    {                                                              \
        sizeof(tutti_difference), NULL, 0, 0, 0, 0, 0, 0, 0, 0, "" \
    }

/* Are n buffers the same, byte by byte, on all ranks? Each rank hashes its own;
 * only hashes travel, 16 bytes per rank where all is equal. A difference is no
 * failure: TUTTI_OK, out->n_ranks > 0, and the first buffer that differs is
 * told. Ranks may even give other numbers of buffers (that is told, with buffer
 * = the smaller number). n is at most 65536. Collective and blocking; buffers
 * are only read. On an error *out is left alone. Errors: as those of
 * collectives. */
TUTTI_API tutti_err tutti_comm_compare(tutti_comm *comm,
                                       const tutti_shared *buffers, size_t n,
                                       tutti_difference *out);

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

/* Of a call with on_device: *event is a CUevent that happens when the request
 * is over, well or not, so that a stream of that GPU can wait for it without
 * its thread (cuStreamWaitEvent); NULL: it is over, and nothing is to be waited
 * for. The request's, until it is freed. tutti_test() tells how it went. Where
 * ranks reach each other's memory it waits until all have made the call, and
 * while memory of the GPU is freed until that is done.
 * Errors: EINVAL (it is no such call's), ESYS. [any thread] */
TUTTI_API tutti_err tutti_request_event(tutti_request *req, void **event);

/* Gives a request a callback (see tutti_call_opts) that it was not made with;
 * it is called also when the request is done already. Errors: EINVAL (it has
 * one), ESYS (no thread). [any thread, one at a time] */
TUTTI_API tutti_err tutti_request_callback(
    tutti_request *req, void (*callback)(void *arg, tutti_err err), void *arg);

/* Gives the request up; the collective itself goes on, and its buffers stay
 * borrowed until it ends. Accepts NULL. [any thread] */
TUTTI_API void tutti_request_free(tutti_request *req);

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

/* A row of the settings table, with its value and source as seen now. */
typedef struct tutti_setting_info {
    const char *name, *type, *fallback, *help;
    const char *least, *most; /* "" when there is no limit */
    const char *source;       /* "default", "environment", "invalid" */
    char value[256];
} tutti_setting_info;
TUTTI_API bool tutti_setting_at(size_t index, tutti_setting_info *out);

typedef enum tutti_status_form {
    TUTTI_STATUS_TABLE,
    TUTTI_STATUS_JSON,
    TUTTI_STATUS_PROMETHEUS
} tutti_status_form;
/* The value of a SIGUSR1 that a launcher only passes on to the program: it has
 * shown this itself (TUTTI_STATUS_SIGNAL). */
#define TUTTI_SIGNAL_MARK 0x74757474
/* What the jobs of this user are at that have a process on this host: a table,
 * JSON, or Prometheus' text. job: its name, or the number of one of its
 * processes; NULL: all. A few seconds at most. The caller owns *text
 * (tutti_text_free). Errors: EINVAL; ESYS; ENOMEM. [any thread] */
TUTTI_API tutti_err tutti_status(const char *job, tutti_status_form form,
                                 char **text, size_t *n_jobs);

/* Where a launcher answers tutti_status() on its host for ranks on others: it
 * asks one of them through the pipes that it has to it (TUTTI_STATUS_FD). One
 * thread at a time. Errors: ESYS, ENOMEM. */
typedef struct tutti_desk tutti_desk;
TUTTI_API tutti_err tutti_desk_open(tutti_desk **out);
TUTTI_API void tutti_desk_close(tutti_desk *desk); /* accepts NULL */
/* Readable when somebody has come. */
TUTTI_API int tutti_desk_fd(const tutti_desk *desk);
/* Lets in who has come. Not NULL: a line for a rank, without its end, to be
 * sent now; good until the next call. */
TUTTI_API const char *tutti_desk_question(tutti_desk *desk);
/* For so long an answer is awaited; less than 0: there is no question. */
TUTTI_API double tutti_desk_waits(const tutti_desk *desk);
/* A line that a rank has written. True: there is a part of an answer in it;
 * *n_own bytes before that are the program's. */
TUTTI_API bool tutti_desk_hear(tutti_desk *desk, const char *line, size_t len,
                               size_t *n_own);
/* There will be no answer: who waits is told so. */
TUTTI_API void tutti_desk_give_up(tutti_desk *desk);

#endif /* TUTTI_UNSTABLE */

#ifdef __cplusplus
}
#endif

#include "tutti_partial.h"
#if defined(TUTTI_UNSTABLE)
#include "tutti_plan.h"
#endif
#endif /* TUTTI_H */
