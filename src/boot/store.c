/* SPDX-License-Identifier: BSD-3-Clause
 * store.c - ranks that meet through a store of the program's (tutti_store).
 *
 * Idea       Rank 0 listens on any free port and puts its addresses under one
 *            key; the others read them there. All else is as without a store.
 * The value  One line of text:
 *              tutti-meet 1 TOKEN BOOT NETNS PORT IP IP ...
 *            TOKEN  16 hexadecimal digits, new for each communicator: the job's
 *                   name, so that only those who have read it are let in, and
 *                   who has read an old value is sent away
 *            BOOT, NETNS  rank 0's host (base/hostid.h): loopback addresses
 *                   are for ranks of the same host only
 * Rules      (1) A value that is not of this form is refused; (2) it may be
 *            that of a communicator that was: until WELCOME the value is read
 *            again before every round of tries (join.c), because rank 0 writes
 *            over it.
 * Next       join.c. */
#include <inttypes.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/ifaces.h"
#include "base/log.h"
#include "base/random.h"
#include "boot/meet.h"

#define FIRST_WORDS "tutti-meet 1 "
#define HEX_TOKEN (TT_STORE_TOKEN - 1)
#define HEX_BOOT 32
#define VALUE_MAX 2048

typedef struct place {
    char token[HEX_TOKEN + 1];
    char host[HEX_BOOT + 32]; /* BOOT NETNS */
    uint16_t port;
    uint32_t n;
    tt_addr addrs[TT_BOOT_WAYS];
} place;

static void print_host(char *out, size_t size)
{
    tt_host_id id;
    tt_host_id_get(&id);
    size_t used = 0;
    for (size_t i = 0; i < sizeof(id.boot_id); i++)
        used += (size_t)snprintf(out + used, size - used, "%02x",
                                 id.boot_id[i]);
    snprintf(out + used, size - used, " %" PRIu64, id.netns);
}

/* Without the port; a link-local address means nothing elsewhere. */
static bool print_ip(const tt_iface *iface, char *out, size_t size)
{
    const tt_addr *a = &iface->addr;
    return iface->order != TT_IFACE_LINK_LOCAL &&
           getnameinfo(&a->u.sa, a->len, out, (socklen_t)size, NULL, 0,
                       NI_NUMERICHOST) == 0;
}

/* ------------------------------------------------------------------ rank 0 */

static tutti_err print_value(const tt_settings *set, uint16_t port,
                             const char *token, char *out, tutti_diag *diag)
{
    tt_iface ifaces[TT_BOOT_WAYS];
    char host[HEX_BOOT + 32];
    size_t n = tt_ifaces_list(set->interfaces, ifaces, TT_BOOT_WAYS);
    bool has_any = false;
    print_host(host, sizeof(host));
    size_t used = (size_t)snprintf(out, VALUE_MAX, FIRST_WORDS "%s %s %u",
                                   token, host, port);
    for (size_t i = 0; i < n; i++) {
        char ip[TT_SOCK_TEXT];
        if (!print_ip(&ifaces[i], ip, sizeof(ip)))
            continue;
        used += (size_t)snprintf(out + used, VALUE_MAX - used, " %s", ip);
        has_any = true;
    }
    if (has_any)
        return TUTTI_OK;
    return tt_ifaces_fail(set->interfaces, diag);
}

static tutti_err fail_store(const tt_boot *boot, const char *what,
                            tutti_err err, tutti_diag *diag)
{
    return tt_fail(diag, TUTTI_EBOOT,
                   "the store that the program has given failed when rank %u "
                   "%s (%s)",
                   boot->rank, what, tutti_strerror(err));
}

static void take_token(tt_boot *boot, const char *token)
{
    boot->like.job = tt_fnv1a(TT_FNV1A_START, token, strlen(token));
}

tutti_err tt_store_begin(tt_boot *boot, char token[TT_STORE_TOKEN],
                         tutti_diag *diag)
{
    uint64_t random;
    tutti_err err = tt_random(&random, sizeof(random), diag);
    if (err)
        return err;
    snprintf(token, TT_STORE_TOKEN, "%016" PRIx64, random);
    take_token(boot, token);
    return TUTTI_OK;
}

tutti_err tt_store_tell(tt_boot *boot, const char *token,
                        const tt_settings *set, uint16_t port, tutti_diag *diag)
{
    const tutti_store *store = boot->store;
    char value[VALUE_MAX];
    tutti_err err = print_value(set, port, token, value, diag);
    if (err)
        return err;
    snprintf(boot->where, sizeof(boot->where),
             "port %u of rank 0, told in the program's store", port);
    err = store->put(store->ctx, boot->key, value, strlen(value));
    return err ? fail_store(boot, "told its addresses", err, diag) : TUTTI_OK;
}

/* -------------------------------------------------------- the other ranks */

/* The next word, ended; NULL when there is none. */
static char *cut_word(char **at)
{
    char *word = *at;
    if (*word == '\0')
        return NULL;
    char *end = strchr(word, ' ');
    *at = end ? end + 1 : word + strlen(word);
    if (end)
        *end = '\0';
    return word;
}

static bool is_hex(const char *word, size_t len)
{
    return word && strlen(word) == len &&
           strspn(word, "0123456789abcdef") == len;
}

static bool parse_number(const char *word, uint64_t most, uint64_t *out)
{
    return word && tt_parse_count(word, out) && *out <= most;
}

static bool parse(char *text, place *out)
{
    size_t first = strlen(FIRST_WORDS);
    if (strncmp(text, FIRST_WORDS, first) != 0)
        return false;
    char *at = text + first;
    const char *token = cut_word(&at);
    const char *boot_id = cut_word(&at);
    const char *netns = cut_word(&at);
    uint64_t inode;
    uint64_t port;
    if (!is_hex(token, HEX_TOKEN) || !is_hex(boot_id, HEX_BOOT) ||
        !parse_number(netns, UINT64_MAX, &inode) ||
        !parse_number(cut_word(&at), UINT16_MAX, &port) || port == 0)
        return false;
    *out = (place){.port = (uint16_t)port};
    snprintf(out->token, sizeof(out->token), "%s", token);
    snprintf(out->host, sizeof(out->host), "%s %" PRIu64, boot_id, inode);
    for (char *ip = cut_word(&at); ip; ip = cut_word(&at))
        if (out->n == TT_BOOT_WAYS ||
            !tt_addr_numeric(ip, out->port, &out->addrs[out->n++]))
            return false;
    return out->n > 0;
}

/* On this rank's host or a network of its own before what is farther. */
static int distance(const tt_addr *addr, bool is_here, const tt_iface *mine,
                    size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (mine[i].order != TT_IFACE_LOOPBACK &&
            tt_iface_reaches(&mine[i], addr))
            return is_here ? 0 : 1;
    return 2;
}

static size_t order_ways(const tt_boot *boot, const place *p, tt_addr *out)
{
    char here[sizeof(p->host)];
    tt_iface mine[TT_BOOT_WAYS];
    print_host(here, sizeof(here));
    bool is_here = strcmp(here, p->host) == 0;
    size_t n_mine = tt_ifaces_list(boot->interfaces, mine, TT_BOOT_WAYS);
    size_t n = 0;
    for (uint32_t i = 0; i < p->n; i++)
        if (is_here && tt_addr_is_loopback(&p->addrs[i]))
            out[n++] = p->addrs[i];
    for (int d = 0; d <= 2; d++)
        for (uint32_t i = 0; i < p->n; i++)
            if (!tt_addr_is_loopback(&p->addrs[i]) &&
                distance(&p->addrs[i], is_here, mine, n_mine) == d)
                out[n++] = p->addrs[i];
    return n;
}

tutti_err tt_store_find(tt_boot *boot, uint64_t deadline_ns, tt_addr *out,
                        size_t *n, tutti_diag *diag)
{
    const tutti_store *store = boot->store;
    char value[VALUE_MAX];
    size_t len = 0;
    place p;
    uint64_t now = tt_now_ns();
    double left_s = now < deadline_ns
                        ? (double)(deadline_ns - now) / TT_NS_PER_S
                        : 0;
    tutti_err err = store->get(store->ctx, boot->key, value, sizeof(value) - 1,
                               &len, left_s);
    if (err == TUTTI_AGAIN)
        return err;
    if (err)
        return fail_store(boot, "looked for rank 0", err, diag);
    if (len >= sizeof(value))
        len = 0;
    value[len] = '\0';
    if (!parse(value, &p))
        return tt_fail(diag, TUTTI_EBOOT,
                       "what the program's store has under \"%s\" is not from "
                       "rank 0 of this Tutti; all ranks need the same Tutti, "
                       "and each communicator a store of its own",
                       boot->key);
    take_token(boot, p.token);
    *n = order_ways(boot, &p, out);
    char text[TT_SOCK_TEXT];
    snprintf(boot->where, sizeof(boot->where),
             *n > 1 ? "%s (or at others of its addresses)" : "%s",
             tt_addr_text(*n > 0 ? &out[0] : &p.addrs[0], text));
    return TUTTI_OK;
}
