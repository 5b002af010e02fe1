/* SPDX-License-Identifier: BSD-3-Clause
 * fingerprint.c - by what a job recognises the hosts and interfaces that it has
 * measured before.
 *
 * Every rank makes a print of its host; rank 0 joins them, in order of the
 * ranks, with which ranks share a host. A reboot changes nothing; an address,
 * a speed, another card, another order of the hosts, another TUTTI_RATE does.
 * Next: cache.c. */
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/hash.h"
#include "probe/learn.h"

#define MOST_ADDRESSES 256

static uint64_t hash_text(uint64_t hash, const char *text)
{
    return tt_fnv1a(hash, text, strlen(text) + 1);
}

/* What the kernel says beside the addresses; what it does not say is 0. */
static uint64_t hash_card(uint64_t hash, int sock, const char *dev)
{
    struct ifreq req;
    memset(&req, 0, sizeof(req));
    memcpy(req.ifr_name, dev, strnlen(dev, sizeof(req.ifr_name) - 1));
    if (sock >= 0 && ioctl(sock, SIOCGIFMTU, &req) == 0)
        hash = tt_fnv1a_u64(hash, (uint64_t)req.ifr_mtu);
    memset(&req.ifr_ifru, 0, sizeof(req.ifr_ifru));
    if (sock >= 0 && ioctl(sock, SIOCGIFHWADDR, &req) == 0)
        hash = tt_fnv1a(hash, req.ifr_hwaddr.sa_data, 6);
    return hash;
}

static uint64_t hash_iface(const tt_iface *iface, int sock)
{
    uint64_t hash = hash_text(TT_FNV1A_START, iface->name);
    if (iface->addr.u.sa.sa_family == AF_INET)
        hash = tt_fnv1a(hash, &iface->addr.u.v4.sin_addr, 4);
    else
        hash = tt_fnv1a(hash, &iface->addr.u.v6.sin6_addr, 16);
    hash = tt_fnv1a_u64(hash, iface->prefix);
    hash = tt_fnv1a_u64(hash, iface->mbit);
    return hash_card(hash, sock, iface->name);
}

uint64_t tt_fingerprint_host(const tt_settings *settings, const char *name)
{
    tt_iface all[MOST_ADDRESSES];
    size_t n = tt_ifaces_list(settings->interfaces, all, MOST_ADDRESSES);
    int sock = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    uint64_t sum = 0; /* the order in which the kernel lists them is nothing */
    for (size_t i = 0; i < n; i++) {
        if (all[i].order != TT_IFACE_LOOPBACK)
            sum += hash_iface(&all[i], sock);
    }
    if (sock >= 0)
        close(sock);
    uint64_t hash = hash_text(TT_FNV1A_START, name);
    hash = hash_text(hash, settings->interfaces);
    hash = hash_text(hash, settings->rate);
    return tt_fnv1a_u64(hash, sum);
}

/* What a rank tells: of its host, and which host that is today. */
typedef struct print {
    uint64_t lasting, today;
} print;

static print own_print(const tt_settings *settings)
{
    tt_host_id id;
    tt_host_id_get(&id);
    uint64_t today = tt_fnv1a(TT_FNV1A_START, id.boot_id, sizeof(id.boot_id));
    return (print){.lasting = tt_fingerprint_host(settings, id.name),
                   .today = tt_fnv1a_u64(today, id.netns)};
}

static uint64_t join(const print *prints, uint32_t n)
{
    uint64_t hash = tt_fnv1a_u64(TT_FNV1A_START, TT_LEARN_VERSION);
    hash = tt_fnv1a_u64(hash, n);
    for (uint32_t r = 0; r < n; r++) {
        uint32_t first = 0;
        while (prints[first].today != prints[r].today)
            first++;
        hash = tt_fnv1a_u64(hash, first);
        hash = tt_fnv1a_u64(hash, prints[r].lasting);
    }
    return hash;
}

tutti_err tt_fingerprint(const tt_probe_job *job, uint64_t *out,
                         tutti_diag *diag)
{
    *out = 0;
    print mine = own_print(job->settings);
    uint32_t n = job->rank == 0 ? job->n_ranks : 0;
    print *all = tt_new(job->mem, n, sizeof(*all));
    tutti_err err = TUTTI_OK;
    if (n && !all) {
        err = tt_fail(diag, TUTTI_ENOMEM, "no memory for a fingerprint");
        tt_boot_fail(job->boot, err, diag);
    }
    if (!err)
        err = tt_boot_collect(job->boot, &mine, sizeof(mine), all, diag);
    if (!err && n)
        *out = join(all, n);
    tt_free(job->mem, all, n, sizeof(*all));
    return err;
}
