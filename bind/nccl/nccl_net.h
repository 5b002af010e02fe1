/* SPDX-License-Identifier: BSD-3-Clause
 * nccl_net.h - what NCCL wants of a net plugin, versions 10 and 11.
 *
 * NCCL loads a shared library and looks for the table ncclNetPlugin_v11, or
 * ncclNetPlugin_v10 where it is older than 2.28. The order of the members is
 * the interface; the names are ours. Results are ncclResult_t's numbers. */
#ifndef TUTTI_NCCL_NET_H
#define TUTTI_NCCL_NET_H

#include <stddef.h>
#include <stdint.h>

enum {
    NET_OK = 0,
    NET_SYSTEM_ERROR = 2,
    NET_INTERNAL_ERROR = 3,
    NET_INVALID_ARGUMENT = 4,
    NET_INVALID_USAGE = 5,
    NET_REMOTE_ERROR = 6
};

enum { NET_LOG_WARN = 2, NET_LOG_INFO = 3 };
enum { NET_LOG_INIT = 0x1, NET_LOG_NET = 0x10 };
typedef void (*net_log_fn)(int level, unsigned long parts, const char *file,
                           int line, const char *fmt, ...);

enum {
    NET_HANDLE_BYTES = 128, /* what listen() may fill */
    NET_MOST_REQUESTS = 32, /* of a connection, in flight */
    NET_POINTER_HOST = 1
};

typedef struct net_virtual {
    int n;
    int devices[4];
} net_virtual;

typedef struct net_properties_v10 {
    char *name;
    char *pci_path;
    uint64_t guid;
    int pointers; /* NET_POINTER_HOST */
    int registers_globally;
    int forces_flush;
    int mbit; /* per second */
    int port;
    float latency_us;
    int most_connections;
    int most_grouped; /* receives of one call */
    int offload;      /* 0: the host does it */
    int offload_version;
    net_virtual parts;
    size_t most_p2p_bytes, most_coll_bytes;
} net_properties_v10;

typedef struct net_properties_v11 {
    net_properties_v10 base;
    int most_multi_requests;
} net_properties_v11;

/* What is the same in both versions, from accept() on. */
#define NET_CALLS                                                              \
    int (*accept)(void *listener, void **receiver, void **device);             \
    int (*reg)(void *conn, void *data, size_t bytes, int type, void **mr);     \
    int (*reg_dmabuf)(void *conn, void *data, size_t bytes, int type,          \
                      uint64_t offset, int fd, void **mr);                     \
    int (*dereg)(void *conn, void *mr);                                        \
    int (*isend)(void *sender, void *data, size_t bytes, int tag, void *mr,    \
                 void *profile, void **request);                               \
    int (*irecv)(void *receiver, int n, void **data, size_t *bytes, int *tags, \
                 void **mrs, void **profiles, void **request);                 \
    int (*iflush)(void *receiver, int n, void **data, int *bytes, void **mrs,  \
                  void **request);                                             \
    int (*test)(void *request, int *is_done, int *bytes);                      \
    int (*close_send)(void *sender);                                           \
    int (*close_recv)(void *receiver);                                         \
    int (*close_listen)(void *listener);                                       \
    int (*device_mr)(void *conn, void *mr, void **device_mr);                  \
    int (*consumed)(void *receiver, int n, void *request);                     \
    int (*make_virtual)(int *device, net_virtual *parts);

typedef struct net_v10 {
    const char *name;
    int (*init)(net_log_fn log, void *profiler);
    int (*devices)(int *n);
    int (*properties)(int device, net_properties_v10 *out);
    int (*listen)(int device, void *handle, void **listener);
    int (*connect)(int device, void *config, void *handle, void **sender,
                   void **device_handle);
    NET_CALLS
} net_v10;

typedef struct net_v11 {
    const char *name;
    int (*init)(void **ctx, uint64_t comm, void *config, net_log_fn log,
                void *profiler);
    int (*devices)(int *n);
    int (*properties)(int device, net_properties_v11 *out);
    int (*listen)(void *ctx, int device, void *handle, void **listener);
    int (*connect)(void *ctx, int device, void *handle, void **sender,
                   void **device_handle);
    NET_CALLS
    int (*finalize)(void *ctx);
    int (*set_attributes)(void *ctx, void *attributes);
} net_v11;

#endif
