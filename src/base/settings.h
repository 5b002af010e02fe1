/* SPDX-License-Identifier: BSD-3-Clause
 * settings.h - every TUTTI_* variable, in one table (settings.c).
 *
 * Read once, when a communicator opens, into a const struct; a bad value is
 * an error (TUTTI_ECONFIG), an unknown TUTTI_ name a warning with the nearest
 * match. settings.md is printed from the table (`tutti settings --md`).
 */
#ifndef TT_BASE_SETTINGS_H
#define TT_BASE_SETTINGS_H

#include "base/err.h"

#define TT_SETTING_TEXT 256
#define TT_USUAL_WINDOW 4 /* where TUTTI_WINDOW is 0 */

typedef enum tt_setting_kind {
    TT_SETTING_STRING,
    TT_SETTING_COUNT, /* a plain integer                 -> uint64_t      */
    TT_SETTING_BYTES, /* 64KiB, 1MiB, 1GB, plain bytes   -> uint64_t      */
    TT_SETTING_TIME,  /* 10us, 5ms, 300s; plain: seconds -> uint64_t, ns  */
    TT_SETTING_LEVEL, /* error warn info debug trace     -> uint64_t      */
    TT_SETTING_CHECK  /* off crc                         -> uint64_t      */
} tt_setting_kind;

/* What is known of the bits that come. */
enum { TT_CHECK_OFF, TT_CHECK_CRC };

/* Member (a uint64_t, or char[TT_SETTING_TEXT] for strings), variable, kind,
 * default, least, most, help. Texts parse by kind; "" means no limit. */
#define TT_SETTING_LIST(X)                                                     \
    X(address, "TUTTI_ADDR", STRING, "", "", "",                               \
      "where the ranks meet, host:port; set by the launcher")                  \
    X(rank, "TUTTI_RANK", STRING, "", "", "",                                  \
      "this process's rank; set by the launcher")                              \
    X(n_ranks, "TUTTI_SIZE", STRING, "", "", "",                               \
      "the number of ranks; set by the launcher")                              \
    X(job, "TUTTI_JOB", STRING, "", "", "",                                    \
      "a name that all ranks of a job share; keeps two jobs apart")            \
    X(join, "TUTTI_JOIN", STRING, "", "", "",                                  \
      "where a newcomer comes to a running job: host:port, or on one host "    \
      "the job's name; of tutti_comm_join")                                    \
    X(via, "TUTTI_VIA", STRING, "", "", "",                                    \
      "where not every host reaches TUTTI_ADDR: the hosts, separated by "      \
      "commas, of ranks that pass on to it, which have TUTTI_VIA too; for "    \
      "the start")                                                             \
    X(listen_fd, "TUTTI_LISTEN_FD", STRING, "", "", "",                        \
      "rank 0's listening socket, inherited; set by the launcher")             \
    X(transports, "TUTTI_TRANSPORTS", STRING, "auto", "", "",                  \
      "transports that may be used, the preferred one first, of shm, ucx "     \
      "and tcp; auto is shm,tcp, and shm,ucx,tcp between hosts with an "       \
      "active RDMA device")                                                    \
    X(planner, "TUTTI_PLANNER", STRING, "auto", "", "",                        \
      "planner, or rules by size: 0-4K:doubling,4K-:ring; file:PATH is a "     \
      "schedule that somebody wrote, which every rank reads")                  \
    X(topology, "TUTTI_TOPOLOGY", STRING, "", "", "",                          \
      "the network: a generator such as star:8@1Gbit, a topology file, or "    \
      "auto: it is measured; rank 0's counts")                                 \
    X(probe_cache, "TUTTI_PROBE_CACHE", STRING, "", "", "",                    \
      "directory for measured networks and costs, or off; default: tutti "     \
      "in $XDG_CACHE_HOME or ~/.cache; rank 0's counts")                       \
    X(drift, "TUTTI_DRIFT", COUNT, "1", "0", "1",                              \
      "plan anew: on a known network where a link's rate has changed for "     \
      "good; on others where calls take otherwise than predicted, or "         \
      "planners are nearly equal; rank 0's counts")                            \
    X(costs, "TUTTI_COSTS", STRING, "auto", "", "",                            \
      "what a message, a byte and reducing one cost: auto is measured at "     \
      "the start where no network is named, or was within the last hour; "     \
      "measure: anew; off: assumed; or three numbers, such as "                \
      "TUTTI_LOG=info tells, which count beside a named network, too; rank "   \
      "0's counts")                                                            \
    X(log, "TUTTI_LOG", LEVEL, "warn", "", "",                                 \
      "log level: error, warn, info, debug or trace")                          \
    X(log_file, "TUTTI_LOG_FILE", STRING, "", "", "",                          \
      "file that the log goes to, from when the rank is known; %r is the "     \
      "rank, %h the host, %p the process")                                     \
    X(calls_file, "TUTTI_CALLS_FILE", STRING, "", "", "",                      \
      "file for the last 256 calls of a communicator that fails; %r, %h "      \
      "and %p as above; default: TUTTI_LOG=info tells the last 8")             \
    X(status, "TUTTI_STATUS", COUNT, "1", "0", "1",                            \
      "1: `tutti status` of the same user, on this host, is answered")         \
    X(status_signal, "TUTTI_STATUS_SIGNAL", COUNT, "0", "0", "1",              \
      "1: SIGUSR1, unless the program has a use for it, prints what the "      \
      "job is at; set by `tutti run`")                                         \
    X(status_fd, "TUTTI_STATUS_FD", STRING, "", "", "",                        \
      "an inherited pipe, and its inode, by which a launcher on another "      \
      "host asks for `tutti status`; set by it")                               \
    X(metrics, "TUTTI_METRICS", STRING, "", "", "",                            \
      "address:port at which one rank of the host tells Prometheus what "      \
      "the job is at, in clear; :port is on loopback")                         \
    X(trace, "TUTTI_TRACE", STRING, "", "", "",                                \
      "directory, on every host, into which each rank records what it "        \
      "does, for `tutti trace`; rank 0's counts")                              \
    X(timeout_ns, "TUTTI_TIMEOUT", TIME, "300s", "1ms", "",                    \
      "deadline of every wait inside a collective")                            \
    X(patience_ns, "TUTTI_PATIENCE", TIME, "10s", "", "",                      \
      "who waits for so long without progress says in the log for whom, "      \
      "and again after twice as long; 0s: never")                              \
    X(start_timeout_ns, "TUTTI_START_TIMEOUT", TIME, "60s", "1ms", "",         \
      "deadline for all ranks to meet at the start")                           \
    X(liveness_ns, "TUTTI_LIVENESS", TIME, "4s", "", "",                       \
      "a rank that is silent for so long while it is waited for is named "     \
      "in the log, and groups of partial reduce go on without it; 0s: only "   \
      "closed connections count")                                              \
    X(reconnect_ns, "TUTTI_RECONNECT", TIME, "30s", "", "",                    \
      "a rank that is silent, or whose connection to another host has "        \
      "dropped, may come back for so long before it is lost; 0s: it may "      \
      "not")                                                                   \
    X(reconnect_bytes, "TUTTI_RECONNECT_BUFFER", BYTES, "4MiB", "", "1GiB",    \
      "at most so much of what was sent is kept for each socket to another "   \
      "host, to send it again after an outage")                                \
    X(reconnect_near, "TUTTI_RECONNECT_NEAR", COUNT, "0", "0", "1",            \
      "1: sockets inside one host are connected again, too (for tests)")       \
    X(quorum, "TUTTI_QUORUM", COUNT, "0", "0", "",                             \
      "members of a communicator that must be left for tutti_comm_shrink() "   \
      "and tutti_comm_agree(); 0: more than half; rank 0's counts")            \
    X(spin_ns, "TUTTI_SPIN", TIME, "1ms", "0s", "10ms",                        \
      "how long a wait polls before it sleeps")                                \
    X(window, "TUTTI_WINDOW", COUNT, "0", "0", "1024",                         \
      "credit: slices of one transfer on the way at a time; 0: 4, but 16 "     \
      "in a job on one host that has fewer processors than ranks")             \
    X(eager_bytes, "TUTTI_EAGER", BYTES, "68KiB", "", "128KiB",                \
      "calls that send a peer at most so much, headers counted, do not "       \
      "wait until it has called; at most 16KiB on one host, and less in "      \
      "jobs of more than 60 ranks, down to 16KiB; 0: all wait")                \
    X(front_bytes, "TUTTI_FRONT", BYTES, "0", "", "1GiB",                      \
      "bytes of the whole vector in one front of slices; 0: chosen by size")   \
    X(front_window_bytes, "TUTTI_FRONT_WINDOW", BYTES, "0", "", "1GiB",        \
      "front window F: how far new sends may run ahead of the result; "        \
      "0: chosen by size")                                                     \
    X(staging_max_bytes, "TUTTI_STAGING_MAX", BYTES, "64MiB", "64KiB", "",     \
      "most staging memory one collective may use on a rank")                  \
    X(cache_bytes, "TUTTI_CACHE", BYTES, "0", "", "",                          \
      "the cache that the ranks of a host share: results are stored past "     \
      "it when it cannot hold all buffers; 0: as the system says")             \
    X(interfaces, "TUTTI_SOCKET_IFNAME", STRING, "", "", "",                   \
      "network interfaces: prefixes eth,ib; ^docker excludes; =eth0 exact; "   \
      "also mixed, eth,^eth1,=ib0")                                            \
    X(rate, "TUTTI_RATE", STRING, "", "", "",                                  \
      "the most that this host sends by an interface over TCP, and that is "   \
      "planned with: 100Mbit, or eth0=100Mbit,eth1=20Mbit, or both")           \
    X(ports, "TUTTI_PORT_RANGE", STRING, "", "", "",                           \
      "ports to listen on, 40000-40100; default: any free port")               \
    X(sockets, "TUTTI_SOCKETS", COUNT, "0", "0", "16",                         \
      "TCP sockets between two ranks, over all networks that are equally "     \
      "good; 0: one, or as many as the network's file says")                   \
    X(shm_ring_bytes, "TUTTI_SHM_RING", BYTES, "0", "", "64MiB",               \
      "shared-memory ring between two ranks, one direction; from 16KiB, at "   \
      "most 32MiB / ranks; 0: 1MiB for up to 4 ranks, 512KiB for up to 7, "    \
      "else 256KiB")                                                           \
    X(shm_direct_bytes, "TUTTI_SHM_DIRECT", BYTES, "4KiB", "", "",             \
      "messages from so many bytes in memory of tutti_alloc are read in "      \
      "place by ranks of the same host; 0: never")                             \
    X(gpu_ipc, "TUTTI_GPU_IPC", COUNT, "1", "0", "1",                          \
      "1: in large calls the ranks of one host use each other's GPU memory "   \
      "where it is; 0, on any rank: it goes by way of the host")               \
    X(check, "TUTTI_CHECK", CHECK, "off", "", "",                              \
      "crc: what is sent carries checksums; flipped bits are named, and "      \
      "sent again once; the same on all ranks")                                \
    X(secret_file, "TUTTI_SECRET_FILE", STRING, "", "", "",                    \
      "file with the job's secret (`tutti secret`): who has another one, "     \
      "or none, is not let in, and what hosts send is encrypted; "             \
      "`tutti run` sets it")                                                   \
    X(tls_cert, "TUTTI_TLS_CERT", STRING, "", "", "",                          \
      "file with this process's certificate (PEM), in place of a secret; "     \
      "with TUTTI_TLS_KEY and TUTTI_TLS_CA")                                   \
    X(tls_key, "TUTTI_TLS_KEY", STRING, "", "", "",                            \
      "file with the certificate's private key (PEM)")                         \
    X(tls_ca, "TUTTI_TLS_CA", STRING, "", "", "",                              \
      "file with the certificates (PEM) by which those of the others must "    \
      "be signed")                                                             \
    X(tls_crl, "TUTTI_TLS_CRL", STRING, "", "", "",                            \
      "file with the CA's list (PEM) of certificates that count no more; "     \
      "read again when it has changed")                                        \
    X(encrypt, "TUTTI_ENCRYPT", COUNT, "1", "0", "1",                          \
      "0: secret or certificates only prove who comes, and data travels in "   \
      "clear")                                                                 \
    X(ipsec_mb, "TUTTI_IPSEC_MB", COUNT, "1", "0", "1",                        \
      "1: where the processor has VAES and AVX-512 what is sent is encrypted " \
      "by Intel's "                                                            \
      "library ipsec-mb, if it is there; 0: by OpenSSL's ciphers alone")       \
    X(ucx_insecure, "TUTTI_UCX_INSECURE", COUNT, "0", "0", "1",                \
      "1: ucx may be used beside a secret, although it sends in "              \
      "clear")                                                                 \
    X(controller, "TUTTI_CONTROLLER", STRING, "", "", "",                      \
      "where the controller of partial reduce listens, host:port, or "         \
      "several, host:port,host:port; for workers that join one by "            \
      "themselves")                                                            \
    X(as_gloo, "TUTTI_AS_GLOO", COUNT, "0", "0", "1",                          \
      "1: what a PyTorch program makes with the backend \"gloo\" goes over "   \
      "Tutti; read when torch is imported")                                    \
    X(blocking_wait, "TUTTI_BLOCKING_WAIT", COUNT, "0", "0", "1",              \
      "1: wait() of a PyTorch call on CUDA tensors returns when the call "     \
      "is over, and tells how it went")

typedef struct tt_settings {
#define TT_MEMBER_STRING(name) char name[TT_SETTING_TEXT];
#define TT_MEMBER_COUNT(name) uint64_t name;
#define TT_MEMBER_BYTES(name) uint64_t name;
#define TT_MEMBER_TIME(name) uint64_t name;
#define TT_MEMBER_LEVEL(name) uint64_t name;
#define TT_MEMBER_CHECK(name) uint64_t name;
#define TT_X(name, var, kind, fallback, least, most, help) \
    TT_MEMBER_##kind(name)
    TT_SETTING_LIST(TT_X)
#undef TT_X
} tt_settings;

/* Reads the environment. Errors: ECONFIG with the variable and the value. */
tutti_err tt_settings_read(tt_settings *out, tutti_diag *diag);

/* Warns about TUTTI_* names that are no setting, naming the nearest one. */
void tt_settings_warn_unknown(void);

/* "64KiB" "1.5MB" "10us": false when the text is not exactly one value. */
bool tt_parse_bytes(const char *text, uint64_t *out);
bool tt_parse_time_ns(const char *text, uint64_t *out);
bool tt_parse_count(const char *text, uint64_t *out);
bool tt_parse_check(const char *text, uint64_t *out);

#endif
