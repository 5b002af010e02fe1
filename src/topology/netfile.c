/* SPDX-License-Identifier: BSD-3-Clause
 * netfile.c - reads a network from a file.
 *
 *     tutti-topology 1
 *     switch core rack0          # forwards, never reduces
 *     host   a b                 # one rank each; forwards=no: only its own
 *     host   c ranks=4 memory=20GB/s,500ns
 *     link   a rack0 400Mbit/100Mbit 20us dev=eth1   # up/down
 *     link   b rack0 400Mbit
 *     link   rack0 core 200Mbit 30us
 *     link   c core 1GB/s 10us
 *
 * topology.md has the grammar. Lines are read one after the other and
 * handed to the builder at once; memory is taken for nodes, links and names
 * only, so whatever a text claims, it costs no more than the limits allow, and
 * reading ends at the first error. Every error has its line and column.
 *
 * Next       netwrite.c (the other way), network.c (what is checked).
 */
#include "topology/network.h"

#include <string.h>

/* Memory of a host with several ranks, unless told. */
static const tt_wire default_memory = {.up_bps = UINT64_C(80000000000),
                                       .down_bps = UINT64_C(80000000000),
                                       .latency_ps = 1000000};

typedef struct reader {
    tt_words words;
    tutti_diag *diag;
    tt_topo_builder *b;
    uint32_t *place; /* ranks listed by `rank=`, in order of declaration */
    size_t n_place, cap_place;
    tt_spot with_rank, without_rank; /* the first host of either */
    bool has_grid, has_sockets;
} reader;

/* ---------------------------------------------------------------- words -- */

static tt_spot spot(const reader *r, const char *at)
{
    return tt_words_spot(&r->words, at);
}

static tutti_err unexpected(const reader *r, tt_word w, const char *expected)
{
    return tt_words_unexpected(&r->words, w, expected);
}

/* The word begins with "key="; *value is the rest. */
static bool is_option(tt_word w, const char *key, tt_word *value)
{
    size_t n = strlen(key);
    if (w.len <= n || memcmp(w.at, key, n) != 0 || w.at[n] != '=')
        return false;
    *value = (tt_word){w.at + n + 1, w.len - n - 1};
    return true;
}

static tutti_err twice(const reader *r, tt_word w)
{
    return tt_fail_at(r->diag, TUTTI_EFORMAT, spot(r, w.at),
                      "`%s` says what has been said already",
                      tt_quoted(w.at, w.len).text);
}

/* Decimal digits, the whole word, up to `most`. */
static tutti_err read_number(const reader *r, tt_word w, const char *what,
                             uint32_t most, uint32_t *out)
{
    const tt_number n = {what, 0, most, TUTTI_ELIMIT};
    uint64_t value = 0;
    tutti_err err = tt_words_number(&r->words, w, &n, &value);
    *out = (uint32_t)value;
    return err;
}

/* The piece of a word before `separator`, taken off its front; the whole word
 * when there is none. */
static tt_word cut(tt_word *w, char separator)
{
    const char *stop = w->len ? memchr(w->at, separator, w->len) : NULL;
    tt_word piece = {w->at, stop ? (size_t)(stop - w->at) : w->len};
    size_t used = piece.len + (stop != NULL);
    *w = (tt_word){w->at + used, w->len - used};
    return piece;
}

/* -------------------------------------------------------------- amounts -- */

static tutti_err bad_amount(const reader *r, tt_word w, bool is_latency,
                            const tt_amount *a)
{
    tutti_err err = a->error ? a->err : TUTTI_EFORMAT;
    const char *what = is_latency ? "a latency such as 20us"
                                  : "a rate such as 400Mbit or 16GB/s";
    return tt_fail_at(r->diag, err, spot(r, w.at), "`%s` is not %s%s%s",
                      tt_quoted(w.at, w.len).text, what, a->error ? ": " : "",
                      a->error ? a->error : "");
}

/* The amount at the front of w, which is taken off it. */
static tutti_err take_amount(const reader *r, tt_word *w, bool is_latency,
                             uint64_t *out)
{
    if (w->len == 0)
        return unexpected(r, *w, is_latency ? "a latency" : "a rate");
    tt_amount a = tt_amount_read(w->at, w->len);
    if (!a.error && a.is_latency && !is_latency && a.value == 0)
        a = (tt_amount){.error = "a rate must be above zero",
                        .err = TUTTI_EINVAL};
    if (a.error || a.is_latency != is_latency)
        return bad_amount(r, *w, is_latency, &a);
    *out = a.value;
    *w = (tt_word){w->at + a.len, w->len - a.len};
    return TUTTI_OK;
}

/* RATE or RATE/RATE at the front of w. */
static tutti_err take_rates(const reader *r, tt_word *w, tt_wire *out,
                            bool *has_down)
{
    tutti_err err = take_amount(r, w, false, &out->up_bps);
    *has_down = !err && w->len && w->at[0] == '/';
    if (!err)
        out->down_bps = out->up_bps;
    if (*has_down) {
        *w = (tt_word){w->at + 1, w->len - 1};
        err = take_amount(r, w, false, &out->down_bps);
    }
    return err;
}

/* What is left of a word after all that it may be. */
static tutti_err end_word(const reader *r, tt_word rest)
{
    return rest.len ? unexpected(r, rest, "the end of the word") : TUTTI_OK;
}

/* ------------------------------------------------------ switches, hosts -- */

/* The word as a name, in a buffer of TT_MAX_NAME + 1. */
static tutti_err copy_name(const reader *r, tt_word w, char *name)
{
    if (!tt_name_is_good(w.at, w.len))
        return tt_fail_at(r->diag, TUTTI_EFORMAT, spot(r, w.at),
                          "`%s` is not a name: letters, digits, '.', '_' and "
                          "'-', at most %d of them",
                          tt_quoted(w.at, w.len).text, (int)TT_MAX_NAME);
    memcpy(name, w.at, w.len);
    name[w.len] = 0;
    return TUTTI_OK;
}

static tutti_err read_switches(reader *r)
{
    tt_word w = tt_words_next(&r->words);
    if (w.len == 0)
        return unexpected(r, w, "the name of a switch");
    tutti_err err = TUTTI_OK;
    for (; w.len && !err; w = tt_words_next(&r->words)) {
        char name[TT_MAX_NAME + 1];
        err = copy_name(r, w, name);
        if (err)
            break;
        tt_topo_at(r->b, spot(r, w.at));
        tt_topo_switch(r->b, name);
        err = tt_topo_error(r->b, r->diag);
    }
    return err;
}

/* A `host` line. */
typedef struct hosts {
    const char *names; /* where they begin */
    size_t n_names, n_ranks_listed;
    uint32_t ranks_each;
    bool has_ranks, has_list, has_memory, has_forwards;
    bool is_end; /* does not forward */
    tt_spot list_at;
    tt_wire memory;
} hosts;

/* Adds one number to the ranks in order of declaration. */
static tutti_err add_place(reader *r, uint32_t rank)
{
    if (tt_grow(tt_topo_mem(r->b), (void **)(void *)&r->place, &r->cap_place,
                r->n_place + 1, sizeof(*r->place)))
        return tt_fail(r->diag, TUTTI_ENOMEM, "no memory for the ranks");
    r->place[r->n_place++] = rank;
    return TUTTI_OK;
}

static tutti_err read_rank_list(reader *r, hosts *h, tt_word list)
{
    h->list_at = spot(r, list.at);
    tutti_err err = TUTTI_OK;
    for (bool more = true; more && !err;) {
        uint32_t rank = 0;
        const char *end = list.at + list.len;
        tt_word one = cut(&list, ',');
        more = one.at + one.len < end;
        err = read_number(r, one, "the number of a rank", TT_MAX_RANKS - 1,
                          &rank);
        if (!err)
            err = add_place(r, rank);
        h->n_ranks_listed++;
    }
    return err;
}

static tutti_err read_memory(const reader *r, hosts *h, tt_word value)
{
    bool has_down;
    tutti_err err = take_rates(r, &value, &h->memory, &has_down);
    if (!err && value.len && value.at[0] == ',') {
        value = (tt_word){value.at + 1, value.len - 1};
        err = take_amount(r, &value, true, &h->memory.latency_ps);
    }
    return err ? err : end_word(r, value);
}

static tutti_err read_ranks_each(const reader *r, hosts *h, tt_word value)
{
    tutti_err err = read_number(r, value, "the number of ranks", TT_MAX_RANKS,
                                &h->ranks_each);
    if (!err && h->ranks_each == 0)
        return tt_fail_at(r->diag, TUTTI_EINVAL, spot(r, value.at),
                          "a host has at least one rank");
    return err;
}

static tutti_err read_host_option(reader *r, hosts *h, tt_word w)
{
    tt_word value;
    bool *said = NULL;
    tutti_err err = TUTTI_OK;
    if (is_option(w, "ranks", &value)) {
        said = &h->has_ranks;
        err = read_ranks_each(r, h, value);
    } else if (is_option(w, "rank", &value)) {
        said = &h->has_list;
        err = *said ? TUTTI_OK : read_rank_list(r, h, value);
    } else if (is_option(w, "memory", &value)) {
        said = &h->has_memory;
        err = read_memory(r, h, value);
    } else if (is_option(w, "forwards", &value)) {
        said = &h->has_forwards;
        h->is_end = tt_word_is(value, "no");
        if (!h->is_end && !tt_word_is(value, "yes"))
            return unexpected(r, value, "`yes` or `no`");
    } else {
        return unexpected(r, w, "`ranks=`, `rank=`, `memory=` or `forwards=`");
    }
    if (!err && *said)
        return twice(r, w);
    *said = true;
    return err;
}

/* How many ranks each host of the line has. */
static tutti_err share_ranks(const reader *r, hosts *h)
{
    if (!h->has_list)
        return TUTTI_OK;
    size_t each = h->n_ranks_listed / h->n_names;
    if (each * h->n_names != h->n_ranks_listed ||
        (h->has_ranks && each != h->ranks_each))
        return tt_fail_at(
            r->diag, TUTTI_EFORMAT, h->list_at,
            "`rank=` lists %zu, which is not %s for each of the line's hosts "
            "(%zu)",
            h->n_ranks_listed,
            h->has_ranks ? "what `ranks=` says" : "the same number",
            h->n_names);
    h->ranks_each = (uint32_t)each;
    return TUTTI_OK;
}

static bool is_assignment(tt_word w)
{
    return w.len && memchr(w.at, '=', w.len);
}

static tutti_err read_host_line(reader *r, hosts *h)
{
    h->names = r->words.next;
    tt_word w = tt_words_next(&r->words);
    for (; w.len && !is_assignment(w); w = tt_words_next(&r->words))
        h->n_names++;
    if (h->n_names == 0)
        return unexpected(r, w, "the name of a host");
    tutti_err err = TUTTI_OK;
    for (; w.len && !err; w = tt_words_next(&r->words))
        err = is_assignment(w) ? read_host_option(r, h, w)
                               : unexpected(r, w,
                                            "an option, as names come "
                                            "before options");
    return err ? err : share_ranks(r, h);
}

static tutti_err read_hosts(reader *r)
{
    hosts h = {.ranks_each = 1, .memory = default_memory};
    tutti_err err = read_host_line(r, &h);
    r->words.next = h.names;
    tt_spot *first = h.has_list ? &r->with_rank : &r->without_rank;
    for (size_t i = 0; i < h.n_names && !err; i++) {
        char name[TT_MAX_NAME + 1];
        tt_word w = tt_words_next(&r->words);
        err = copy_name(r, w, name);
        if (err)
            break;
        tt_topo_at(r->b, spot(r, w.at));
        if (first->line == 0)
            *first = spot(r, w.at);
        tt_topo_forwards(r->b, !h.is_end);
        tt_topo_big_host(r->b, name, h.ranks_each, &h.memory);
        err = tt_topo_error(r->b, r->diag);
    }
    if (!err)
        r->words.next = r->words.line_end;
    return err;
}

/* ---------------------------------------------------------------- links -- */

typedef struct link_line {
    tt_word names[2];
    uint32_t nodes[2];
    tt_wire wire;
    char devs[2][TT_MAX_DEV + 1];
    bool has_down, has_latency, has_dev, has_cap, has_least, has_far_rate;
    bool is_one_way;
} link_line;

static tutti_err read_end(reader *r, link_line *l, int i)
{
    tt_word w = tt_words_next(&r->words);
    l->names[i] = w;
    if (w.len == 0)
        return unexpected(r, w, "the names of two nodes");
    l->nodes[i] = tt_topo_find(r->b, w.at, w.len);
    if (l->nodes[i] != TT_NONE)
        return TUTTI_OK;
    const char *like = tt_topo_nearest(r->b, w.at, w.len);
    return tt_fail_at(r->diag, TUTTI_EINVAL, spot(r, w.at),
                      "no node declared before has the name `%s`%s%.64s%s",
                      tt_quoted(w.at, w.len).text,
                      like ? "; did you mean `" : "", like ? like : "",
                      like ? "`?" : "");
}

/* The interface's name at the front of the value, perhaps none. */
static tutti_err take_dev(const reader *r, tt_word *value, char *out)
{
    tt_word one = cut(value, '/');
    if (one.len && !tt_dev_is_good(one.at, one.len))
        return tt_fail_at(r->diag, TUTTI_EFORMAT, spot(r, one.at),
                          "`%s` is not the name of an interface",
                          tt_quoted(one.at, one.len).text);
    memcpy(out, one.at, one.len);
    out[one.len] = 0;
    return TUTTI_OK;
}

/* `dev=eth0`: at the first node that is no switch. `dev=eth0/eth1`: at both;
 * `dev=/eth1`: at the second. */
static tutti_err read_dev(const reader *r, link_line *l, tt_word value)
{
    tt_word whole = value;
    bool is_pair = value.len && memchr(value.at, '/', value.len);
    bool is_switch[2];
    for (int i = 0; i < 2; i++)
        is_switch[i] = tt_topo_kind(r->b, l->nodes[i]) == TT_NODE_SWITCH;
    int at = is_pair || !is_switch[0] ? 0 : 1;
    tutti_err err = take_dev(r, &value, l->devs[at]);
    if (!err && is_pair)
        err = take_dev(r, &value, l->devs[1]);
    err = err ? err : end_word(r, value);
    if (err)
        return err;
    if (!l->devs[0][0] && !l->devs[1][0])
        return unexpected(r, whole, "the name of an interface");
    for (int i = 0; i < 2; i++) {
        if (l->devs[i][0] && is_switch[i])
            return tt_fail_at(r->diag, TUTTI_EINVAL, spot(r, whole.at),
                              "`dev=` names the interface of a host, and `%s` "
                              "is a switch",
                              tt_quoted(l->names[i].at, l->names[i].len).text);
    }
    return TUTTI_OK;
}

/* RATE, or `-` for none, at the front of the value. */
static tutti_err take_rate_or_none(const reader *r, tt_word *value,
                                   uint64_t *out)
{
    if (value->len == 0 || value->at[0] != '-')
        return take_amount(r, value, false, out);
    *value = (tt_word){value->at + 1, value->len - 1};
    return TUTTI_OK;
}

/* `20Mbit`: both ways; `20Mbit/-`: only from the first node on. */
static tutti_err read_both_ways(const reader *r, link_line *l, tt_word value,
                                uint64_t *up_bps, uint64_t *down_bps)
{
    const tt_word whole = value;
    tutti_err err = take_rate_or_none(r, &value, up_bps);
    bool has_far = !err && value.len && value.at[0] == '/';
    *down_bps = has_far ? 0 : *up_bps;
    if (has_far) {
        value = (tt_word){value.at + 1, value.len - 1};
        err = take_rate_or_none(r, &value, down_bps);
    }
    l->has_far_rate |= has_far;
    err = err ? err : end_word(r, value);
    if (!err && !*up_bps && !*down_bps)
        return unexpected(r, whole, "a rate such as 20Mbit");
    return err;
}

static tutti_err read_cap(const reader *r, link_line *l, tt_word value)
{
    const tt_word whole = value;
    bool is_host = false;
    for (int i = 0; i < 2; i++)
        is_host |= tt_topo_kind(r->b, l->nodes[i]) != TT_NODE_SWITCH;
    tutti_err err = read_both_ways(r, l, value, &l->wire.up_cap_bps,
                                   &l->wire.down_cap_bps);
    if (!err && !is_host)
        return tt_fail_at(r->diag, TUTTI_EINVAL, spot(r, whole.at),
                          "`rate=` says how much a host may send, and both "
                          "ends of this link are switches");
    return err;
}

static tutti_err read_least(const reader *r, link_line *l, tt_word value)
{
    tt_wire *w = &l->wire;
    tutti_err err = read_both_ways(r, l, value, &w->up_least_bps,
                                   &w->down_least_bps);
    if (!err &&
        (w->up_least_bps >= w->up_bps || w->down_least_bps >= w->down_bps))
        return tt_fail_at(r->diag, TUTTI_EINVAL, spot(r, value.at),
                          "`least=` is what the link may carry only, so it is "
                          "less than the link's rate");
    return err;
}

static tutti_err read_link_option(const reader *r, link_line *l, tt_word w)
{
    tt_word value = w;
    bool *said = &l->has_latency;
    tutti_err err = TUTTI_OK;
    if (tt_word_is(w, "oneway")) {
        said = &l->is_one_way;
    } else if (is_option(w, "dev", &value)) {
        said = &l->has_dev;
        err = *said ? TUTTI_OK : read_dev(r, l, value);
    } else if (is_option(w, "rate", &value)) {
        said = &l->has_cap;
        err = *said ? TUTTI_OK : read_cap(r, l, value);
    } else if (is_option(w, "least", &value)) {
        said = &l->has_least;
        err = *said ? TUTTI_OK : read_least(r, l, value);
    } else if ((w.at[0] >= '0' && w.at[0] <= '9') || w.at[0] == '-') {
        err = take_amount(r, &value, true, &l->wire.latency_ps);
        err = err ? err : end_word(r, value);
    } else {
        return unexpected(
            r, w,
            "a latency, `dev=`, `rate=`, `least=`, `oneway` or the "
            "end of the line");
    }
    if (!err && *said)
        return twice(r, w);
    *said = true;
    return err;
}

static tutti_err check_one_way(const reader *r, const link_line *l,
                               tt_word rate)
{
    if (l->is_one_way && (l->has_down || l->has_far_rate))
        return tt_fail_at(r->diag, TUTTI_EINVAL, spot(r, rate.at),
                          "a one-way link has one rate");
    if (l->is_one_way && l->devs[1][0])
        return tt_fail_at(r->diag, TUTTI_EINVAL, spot(r, rate.at),
                          "`dev=` of a one-way link is at its first node");
    return TUTTI_OK;
}

/* The line after its keyword. */
static tutti_err read_link_line(reader *r, link_line *l)
{
    tutti_err err = read_end(r, l, 0);
    if (!err)
        err = read_end(r, l, 1);
    if (err)
        return err;
    tt_word rate = tt_words_next(&r->words), rest = rate;
    err = take_rates(r, &rest, &l->wire, &l->has_down);
    if (!err)
        err = end_word(r, rest);
    for (tt_word w; !err && (w = tt_words_next(&r->words)).len;)
        err = read_link_option(r, l, w);
    return err ? err : check_one_way(r, l, rate);
}

static tutti_err read_link(reader *r, tt_word keyword)
{
    link_line l = {.is_one_way = false};
    tutti_err err = read_link_line(r, &l);
    if (err)
        return err;
    if (l.is_one_way)
        l.wire.down_bps = l.wire.down_cap_bps = l.wire.down_least_bps = 0;
    l.wire.dev = l.devs[0][0] ? l.devs[0] : NULL;
    l.wire.far_dev = l.devs[1][0] ? l.devs[1] : NULL;
    tt_topo_at(r->b, spot(r, keyword.at));
    tt_topo_link(r->b, l.nodes[0], l.nodes[1], &l.wire);
    return tt_topo_error(r->b, r->diag);
}

/* ----------------------------------------------------------------- grid -- */

static tutti_err read_sizes(const reader *r, tt_word sizes, tt_grid *g)
{
    const char *start = sizes.at, *end = sizes.at + sizes.len;
    tutti_err err = sizes.len ? TUTTI_OK : unexpected(r, sizes, "a size: 8x8");
    for (bool more = true; more && !err;) {
        if (g->n_dims == TT_MAX_DIMS)
            return tt_fail_at(r->diag, TUTTI_ELIMIT, spot(r, start),
                              "a grid can have at most %u dimensions",
                              TT_MAX_DIMS);
        tt_word one = cut(&sizes, 'x');
        more = one.at + one.len < end;
        err = read_number(r, one, "the size of a grid", TT_MAX_RANKS,
                          &g->dims[g->n_dims++]);
    }
    return err;
}

static tutti_err read_grid(reader *r, tt_word keyword)
{
    tt_grid g = {0};
    if (r->has_grid)
        return twice(r, keyword);
    tt_word sizes = tt_words_next(&r->words);
    tutti_err err = read_sizes(r, sizes, &g);
    if (err)
        return err;
    tt_word kind = tt_words_next(&r->words);
    g.wraps = tt_word_is(kind, "torus");
    if (!g.wraps && !tt_word_is(kind, "mesh"))
        return unexpected(r, kind, "`torus` or `mesh`");
    r->has_grid = true;
    tt_topo_at(r->b, spot(r, sizes.at));
    tt_topo_grid(r->b, &g);
    return tt_words_end_line(&r->words);
}

static tutti_err read_sockets(reader *r, tt_word keyword)
{
    uint32_t n;
    if (r->has_sockets)
        return twice(r, keyword);
    tt_word number = tt_words_next(&r->words);
    tutti_err err = read_number(r, number, "the number of sockets",
                                TT_MAX_SOCKETS, &n);
    if (err)
        return err;
    if (n == 0)
        return unexpected(r, number, "how many sockets fill a link, 1 to 16");
    r->has_sockets = true;
    tt_topo_sockets(r->b, n);
    return tt_words_end_line(&r->words);
}

/* ----------------------------------------------------------------- file -- */

static tutti_err read_header(reader *r)
{
    tt_word name = tt_words_line(&r->words);
    if (!tt_word_is(name, "tutti-topology"))
        return unexpected(r, name, "`tutti-topology 1`");
    tt_word version = tt_words_next(&r->words);
    if (!tt_word_is(version, "1"))
        return unexpected(r, version,
                          "version 1, the only one that can be read");
    return tt_words_end_line(&r->words);
}

static tutti_err read_lines(reader *r)
{
    tutti_err err = TUTTI_OK;
    for (tt_word w; !err && (w = tt_words_line(&r->words)).len;) {
        if (tt_word_is(w, "switch"))
            err = read_switches(r);
        else if (tt_word_is(w, "host"))
            err = read_hosts(r);
        else if (tt_word_is(w, "link"))
            err = read_link(r, w);
        else if (tt_word_is(w, "grid"))
            err = read_grid(r, w);
        else if (tt_word_is(w, "sockets"))
            err = read_sockets(r, w);
        else
            err = unexpected(r, w,
                             "`switch`, `host`, `link`, `grid` or `sockets`");
    }
    return err;
}

static tutti_err place_ranks(reader *r)
{
    if (r->with_rank.line == 0)
        return TUTTI_OK;
    if (r->without_rank.line)
        return tt_fail_at(r->diag, TUTTI_EFORMAT, r->without_rank,
                          "this host has no `rank=`, but the one of line %u "
                          "has; either all have or none",
                          r->with_rank.line);
    tt_topo_place(r->b, r->place, (uint32_t)r->n_place);
    return TUTTI_OK;
}

tutti_err tt_topology_parse(const tt_mem *mem, const char *text, size_t len,
                            tutti_topology **out, tutti_diag *diag)
{
    if (!text)
        text = "";
    reader r = {.words = tt_words_of(text, len, diag), .diag = diag};
    tutti_err err = tt_topo_builder_create(mem, &r.b, diag);
    if (err)
        return err;
    err = read_header(&r);
    if (!err)
        err = read_lines(&r);
    if (!err)
        err = place_ranks(&r);
    tt_free(mem, r.place, r.cap_place, sizeof(*r.place));
    if (err) {
        tt_topo_builder_free(r.b);
        return err;
    }
    tt_topo_at(r.b, spot(&r, r.words.line_end));
    return tt_topo_seal(r.b, out, diag);
}

/* -------------------------------------------------------- any of the three */

static bool is_space(char c)
{
    return c && strchr(" \t\r\n\f\v", c);
}

static tutti_err generate(const tt_mem *mem, const char *text, size_t len,
                          tutti_topology **out, tutti_diag *diag)
{
    char *spec = tt_new(mem, len + 1, 1);
    if (!spec)
        return tt_fail(diag, TUTTI_ENOMEM, "no memory for the network");
    memcpy(spec, text, len);
    tutti_err err = tt_topology_generate(mem, spec, out, diag);
    tt_free(mem, spec, len + 1, 1);
    return err;
}

tutti_err tt_topology_read(const tt_mem *mem, const char *text, size_t len,
                           tutti_topology **out, tutti_diag *diag)
{
    static const char mark[] = "\xef\xbb\xbf", header[] = "tutti-topology";
    if (!text)
        text = "";
    size_t skip = len >= 3 && memcmp(text, mark, 3) == 0 ? 3 : 0;
    size_t start = skip, end = len;
    while (start < end && is_space(text[start]))
        start++;
    while (end > start && is_space(text[end - 1]))
        end--;
    const char *at = text + start;
    size_t n = end - start;
    if (n > 0 && *at == '<')
        return tt_topology_import_nccl(mem, text, len, out, diag);
    /* A spec is one line, and nothing but a spec. */
    bool is_file =
        n == 0 || *at == '#' || memchr(at, '\n', n) || memchr(at, 0, n) ||
        (n >= strlen(header) && memcmp(at, header, strlen(header)) == 0);
    if (!is_file)
        return generate(mem, at, n, out, diag);
    return tt_topology_parse(mem, text + skip, len - skip, out, diag);
}
