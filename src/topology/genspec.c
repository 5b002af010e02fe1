/* SPDX-License-Identifier: BSD-3-Clause
 * genspec.c - reads a generator spec, `racks:5+3@nic=400Mbit,trunk=200Mbit`.
 *
 *     spec     = generator ":" shape [ "@" args ] | machine [ "@" args ]
 *     shape    = number { separator number }     "+", "x" or "," by generator
 *     args     = arg { "," arg }
 *     arg      = speed                           of all links
 *              | kind "=" speed                  of one kind of link
 *              | kind "." index "=" speed        of one link
 *              | "latency" "=" latency           of all links
 *              | "order" "=" ("given" | "interleaved" | "random:" seed)
 *              | "forwards" "=" ("yes" | "no")   of all hosts
 *     speed    = rate [ "/" rate ] | latency     the same, or up/down
 *
 * Of two arguments the more special wins, whatever their order: one link, one
 * kind, all links. A machine is a spec with a name; arguments after its name
 * win over its own. What was said twice is an error. Columns count from 1 in
 * the spec as it was given.
 *
 * Next       generate.c, which makes what was read.
 */
#include "topology/genspec.h"

#include <string.h>

#include "base/heap.h"
#include "base/nearest.h"

typedef struct reader {
    const char *spec; /* columns count from here */
    const char *at, *end;
    tutti_diag *diag;
    tt_genspec *out;
    /* Bits of what has been said: of kind k rate 2k, latency 2k + 1; then of
     * all links, then the order, then forwards. */
    uint32_t said;
    bool is_special; /* pass 2: only what names a kind; pass 1: the rest */
} reader;

enum { SAID_ALL = 2 * TT_MAX_KINDS, SAID_ORDER = SAID_ALL + 2, SAID_FORWARDS };

static tt_spot spot(const reader *r, const char *at)
{
    return (tt_spot){0, (uint32_t)(at - r->spec) + 1};
}

static tutti_err no_memory(const reader *r)
{
    return tt_fail(r->diag, TUTTI_ENOMEM, "no memory for the network");
}

/* ---------------------------------------------------------------- shape -- */

/* Decimal digits at *at, moved on; stops counting above `most` + 1. false:
 * there are none. */
static bool digits(const char **at, const char *end, uint64_t most,
                   uint64_t *out)
{
    const char *start = *at;
    uint64_t value = 0;
    for (; *at < end && **at >= '0' && **at <= '9'; ++*at) {
        unsigned digit = (unsigned)(**at - '0');
        bool fits = value <= most && value <= (UINT64_MAX - digit) / 10;
        value = fits ? value * 10 + digit : most + 1;
    }
    *out = value;
    return *at > start;
}

static tutti_err bad_shape(const reader *r, const char *at)
{
    const tt_generator *g = r->out->generator;
    return tt_fail_at(r->diag, TUTTI_EFORMAT, spot(r, at),
                      "the shape of `%s` is written %s, but here is `%s`",
                      g->name, g->form,
                      tt_quoted(at, (size_t)(r->end - at)).text);
}

static tutti_err read_number(reader *r)
{
    tt_genspec *s = r->out;
    const char *start = r->at;
    uint64_t value = 0;
    if (!digits(&r->at, r->end, TT_MAX_RANKS, &value))
        return bad_shape(r, start);
    if (value == 0)
        return tt_fail_at(r->diag, TUTTI_EINVAL, spot(r, start),
                          "a number of the shape must be at least 1");
    if (value > TT_MAX_RANKS)
        return tt_fail_at(r->diag, TUTTI_ELIMIT, spot(r, start),
                          "a network can have at most %u ranks", TT_MAX_RANKS);
    s->numbers = tt_arena_grow(&s->arena, s->numbers, &s->cap_numbers,
                               (size_t)s->n_numbers + 1, sizeof(*s->numbers));
    if (s->arena.err)
        return no_memory(r);
    s->numbers[s->n_numbers++] = (uint32_t)value;
    return TUTTI_OK;
}

static tutti_err read_factor(reader *r)
{
    tt_genspec *s = r->out;
    tt_decimal d = tt_decimal_read(r->at, (size_t)(r->end - r->at));
    if (d.len == 0 || d.is_long)
        return bad_shape(r, r->at);
    if (d.digits == 0)
        return tt_fail_at(r->diag, TUTTI_EINVAL, spot(r, r->at),
                          "a multiple of the rate must be above zero");
    if (s->n_numbers >= TT_MAX_RANKS)
        return tt_fail_at(r->diag, TUTTI_ELIMIT, spot(r, r->at),
                          "a network can have at most %u ranks", TT_MAX_RANKS);
    s->factors = tt_arena_grow(&s->arena, s->factors, &s->cap_factors,
                               (size_t)s->n_numbers + 1, sizeof(*s->factors));
    if (s->arena.err)
        return no_memory(r);
    s->factors[s->n_numbers++] = d;
    r->at += d.len;
    return TUTTI_OK;
}

/* r->at is after the colon; ends at the end of the spec or on the '@'. */
static tutti_err read_shape(reader *r)
{
    tt_genspec *s = r->out;
    const tt_generator *g = s->generator;
    s->shape_at = spot(r, r->at);
    size_t rest = (size_t)(r->end - r->at);
    const char *stop = memchr(r->at, '@', rest);
    const char *shape_end = stop ? stop : r->end;
    bool scales = g->may_scale &&
                  memchr(r->at, ',', (size_t)(shape_end - r->at));
    for (;;) {
        if (g->most && s->n_numbers == g->most)
            return bad_shape(r, r->at);
        tutti_err err = scales ? read_factor(r) : read_number(r);
        if (err)
            return err;
        if (r->at == shape_end)
            break;
        if (*r->at != g->separator)
            return bad_shape(r, r->at);
        r->at++;
    }
    return s->n_numbers < g->least ? bad_shape(r, r->at) : TUTTI_OK;
}

/* ----------------------------------------------------------------- args -- */

/* One argument, cut in pieces. */
typedef struct arg {
    tt_word whole, value;
    tt_word key; /* at NULL: a bare value */
} arg;

static arg cut(const char *at, size_t len)
{
    arg a = {.whole = {at, len}, .value = {at, len}};
    const char *equals = memchr(at, '=', len);
    if (equals) {
        a.key = (tt_word){at, (size_t)(equals - at)};
        a.value = (tt_word){equals + 1, len - a.key.len - 1};
    }
    return a;
}

static tutti_err twice(const reader *r, const arg *a)
{
    return tt_fail_at(r->diag, TUTTI_EINVAL, spot(r, a->whole.at),
                      "`%s` says again what another argument has said",
                      tt_quoted(a->whole.at, a->whole.len).text);
}

/* Has what these bits mean been said before? */
static bool say(reader *r, uint32_t bit)
{
    bool is_new = !(r->said >> bit & 1);
    r->said |= 1u << bit;
    return is_new;
}

static tutti_err bad_amount(const reader *r, const char *at, size_t len,
                            const tt_amount *x)
{
    return tt_fail_at(r->diag, x->err ? x->err : TUTTI_EFORMAT,
                      spot(r, at + x->len), "`%s` is no rate or latency: %s",
                      tt_quoted(at, len).text,
                      x->error ? x->error : "nothing may follow it");
}

/* A speed: RATE, RATE/RATE or LATENCY. */
static tutti_err read_speed(const reader *r, const arg *a, tt_speed *out,
                            bool *is_latency)
{
    const char *at = a->value.at;
    size_t len = a->value.len;
    tt_amount x = tt_amount_read(at, len);
    if (x.error)
        return bad_amount(r, at, len, &x);
    *is_latency = x.is_latency;
    *out = (tt_speed){.latency_ps = x.value};
    if (!x.is_latency)
        *out = (tt_speed){.up_bps = x.value, .down_bps = x.value};
    bool has_down = !x.is_latency && x.len < len && at[x.len] == '/';
    if (has_down) {
        at += x.len + 1;
        len -= x.len + 1;
        x = tt_amount_read(at, len);
        out->down_bps = x.value;
        if (!x.error && x.is_latency)
            x = (tt_amount){.error = "a rate must follow the '/'"};
    }
    return x.error || x.len < len ? bad_amount(r, at, len, &x) : TUTTI_OK;
}

static void set_speed(tt_speed *to, const tt_speed *from, bool is_latency)
{
    if (is_latency) {
        to->latency_ps = from->latency_ps;
    } else {
        to->up_bps = from->up_bps;
        to->down_bps = from->down_bps;
    }
}

static tutti_err read_bare(reader *r, const arg *a)
{
    tt_speed speed;
    bool is_latency = false;
    tutti_err err = read_speed(r, a, &speed, &is_latency);
    if (err)
        return err;
    if (a->key.at && !is_latency)
        return tt_fail_at(r->diag, TUTTI_EFORMAT, spot(r, a->value.at),
                          "a latency must follow `latency=`, such as 20us");
    if (!say(r, SAID_ALL + is_latency))
        return twice(r, a);
    for (int i = 0; i < TT_MAX_KINDS; i++) {
        bool follows = r->out->generator->kinds[i].rate_bps == 0;
        if (is_latency || !follows)
            set_speed(&r->out->speeds[i], &speed, is_latency);
    }
    return TUTTI_OK;
}

static tutti_err read_order(reader *r, const arg *a)
{
    tt_genspec *s = r->out;
    static const char random_head[] = "random:";
    size_t head = strlen(random_head);
    if (!say(r, SAID_ORDER))
        return twice(r, a);
    if (tt_word_is(a->value, "given")) {
        s->order = TT_ORDER_GIVEN;
        return TUTTI_OK;
    }
    if (tt_word_is(a->value, "interleaved")) {
        s->order = TT_ORDER_INTERLEAVED;
        return TUTTI_OK;
    }
    const char *at = a->value.at + head, *end = a->value.at + a->value.len;
    if (a->value.len > head && memcmp(a->value.at, random_head, head) == 0 &&
        digits(&at, end, UINT64_MAX - 1, &s->seed) && at == end) {
        if (s->seed == UINT64_MAX)
            return tt_fail_at(
                r->diag, TUTTI_ELIMIT, spot(r, a->value.at + head),
                "a seed must be below %llu", (unsigned long long)UINT64_MAX);
        s->order = TT_ORDER_RANDOM;
        return TUTTI_OK;
    }
    return tt_fail_at(r->diag, TUTTI_EFORMAT, spot(r, a->value.at),
                      "an order is `given`, `interleaved` or `random:SEED`, "
                      "but here is `%s`",
                      tt_quoted(a->value.at, a->value.len).text);
}

static tutti_err read_forwards(reader *r, const arg *a)
{
    bool is_no = tt_word_is(a->value, "no");
    if (!say(r, SAID_FORWARDS))
        return twice(r, a);
    if (!is_no && !tt_word_is(a->value, "yes"))
        return tt_fail_at(r->diag, TUTTI_EFORMAT, spot(r, a->value.at),
                          "hosts forward or do not: `yes` or `no`, but here is "
                          "`%s`",
                          tt_quoted(a->value.at, a->value.len).text);
    r->out->ends_routes = is_no;
    return TUTTI_OK;
}

/* Names the keys of the generator. */
static tutti_err bad_key(const reader *r, const arg *a)
{
    const tt_link_kind *k = r->out->generator->kinds;
    char keys[64] = "";
    for (; k->name; k++) {
        strcat(keys, k->name);
        strcat(keys, "=, ");
    }
    return tt_fail_at(r->diag, TUTTI_EFORMAT, spot(r, a->whole.at),
                      "`%s` has no argument `%s`; it has %slatency=, order=, "
                      "forwards=, a rate and a latency",
                      r->out->generator->name,
                      tt_quoted(a->key.at, a->key.len).text, keys);
}

static tutti_err add_override(reader *r, const tt_override *o)
{
    tt_genspec *s = r->out;
    s->overrides = tt_arena_grow(&s->arena, s->overrides, &s->cap_overrides,
                                 s->n_overrides + 1, sizeof(*s->overrides));
    if (s->arena.err)
        return no_memory(r);
    s->overrides[s->n_overrides++] = *o;
    return TUTTI_OK;
}

/* `nic=...` and `nic.7=...` */
static tutti_err read_kind(reader *r, const arg *a)
{
    const tt_link_kind *kinds = r->out->generator->kinds;
    const char *dot = memchr(a->key.at, '.', a->key.len);
    tt_word name = a->key;
    name.len = dot ? (size_t)(dot - name.at) : name.len;
    uint32_t k = 0;
    while (kinds[k].name && !tt_word_is(name, kinds[k].name))
        k++;
    if (!kinds[k].name)
        return bad_key(r, a);
    tt_override o = {.kind = k, .at = spot(r, a->whole.at)};
    uint64_t index = 0;
    const char *at = dot ? dot + 1 : NULL;
    if (dot && (!digits(&at, a->value.at - 1, TT_MAX_LINKS, &index) ||
                at != a->value.at - 1))
        return tt_fail_at(r->diag, TUTTI_EFORMAT, spot(r, dot + 1),
                          "a number from 0 must follow the '.', as in `%s.0=`",
                          kinds[k].name);
    if (index >= TT_MAX_LINKS)
        return tt_fail_at(r->diag, TUTTI_ELIMIT, spot(r, dot + 1),
                          "a network can have at most %u links", TT_MAX_LINKS);
    o.index = (uint32_t)index;
    tutti_err err = read_speed(r, a, &o.speed, &o.has_latency);
    if (err)
        return err;
    if (dot)
        return add_override(r, &o);
    if (!say(r, 2 * k + o.has_latency))
        return twice(r, a);
    set_speed(&r->out->speeds[k], &o.speed, o.has_latency);
    return TUTTI_OK;
}

static tutti_err read_arg(reader *r, const arg *a)
{
    bool is_order = a->key.at && tt_word_is(a->key, "order");
    bool is_latency = a->key.at && tt_word_is(a->key, "latency");
    bool is_forwards = a->key.at && tt_word_is(a->key, "forwards");
    bool is_special = a->key.at && !is_order && !is_latency && !is_forwards;
    if (is_special != r->is_special)
        return TUTTI_OK;
    if (is_order)
        return read_order(r, a);
    if (is_forwards)
        return read_forwards(r, a);
    return is_special ? read_kind(r, a) : read_bare(r, a);
}

/* r->at is the end, or at the '@'. First what is of all links, then the rest.
 */
static tutti_err read_args(reader *r)
{
    if (r->at == r->end)
        return TUTTI_OK;
    tutti_err err = TUTTI_OK;
    r->said = 0;
    for (int pass = 0; pass < 2 && !err; pass++) {
        r->is_special = pass == 1;
        const char *at = r->at + 1;
        for (bool more = true; more && !err;) {
            const char *comma = memchr(at, ',', (size_t)(r->end - at));
            const char *stop = comma ? comma : r->end;
            arg a = cut(at, (size_t)(stop - at));
            err = read_arg(r, &a);
            more = comma != NULL;
            at = stop + 1;
        }
    }
    return err;
}

/* ------------------------------------------------------------- overrides -- */

/* By kind, index, what is said, and the place in the spec. */
static uint64_t subject(const tt_override *o)
{
    return (uint64_t)o->kind << 40 | (uint64_t)o->index << 1 | o->has_latency;
}

static bool goes_after(const void *none, const void *a, const void *b)
{
    const tt_override *u = a, *v = b;
    uint64_t x = subject(u), y = subject(v);
    (void)none;
    return x != y ? x > y : u->at.column > v->at.column;
}

static const tt_heap_items last_first = {sizeof(tt_override), goes_after, NULL};
_Static_assert(sizeof(tt_override) <= TT_HEAP_ITEM_MAX, "a heap's item");

/* Heap sort: no worst case, whatever the text. */
static tutti_err sort_overrides(const reader *r)
{
    tt_override *list = r->out->overrides;
    size_t n = r->out->n_overrides;
    tt_heap_make(&last_first, NULL, list, n);
    for (size_t i = n; i-- > 1;) {
        tt_override last = list[0];
        tt_heap_pop(&last_first, NULL, list, i + 1);
        list[i] = last;
    }
    for (size_t i = 1; i < n; i++) {
        if (subject(&list[i - 1]) == subject(&list[i]))
            return tt_fail_at(
                r->diag, TUTTI_EINVAL, list[i].at, "`%s.%u` is given twice",
                r->out->generator->kinds[list[i].kind].name, list[i].index);
    }
    return TUTTI_OK;
}

/* ----------------------------------------------------------------- spec -- */

/* What a spec begins with. */
static tt_word name_of(const char *spec)
{
    return (tt_word){spec, strcspn(spec, ":@")};
}

static const tt_generator *find_generator(tt_word name)
{
    const tt_generator *g = tt_generators;
    while (g->name && !tt_word_is(name, g->name))
        g++;
    return g->name ? g : NULL;
}

static const tt_machine *find_machine(tt_word name)
{
    const tt_machine *m = tt_machines;
    while (m->name && !tt_word_is(name, m->name))
        m++;
    return m->name ? m : NULL;
}

static tutti_err no_such(tt_word name, tutti_diag *diag)
{
    size_t best = 4;
    const char *found = NULL;
    tutti_generator_info info;
    for (size_t i = 0; tt_generator_at(i, &info); i++) {
        size_t d = tt_letters_apart(name.at, name.len, info.name);
        if (d < best) {
            best = d;
            found = info.name;
        }
    }
    return tt_fail_at(diag, TUTTI_EINVAL, (tt_spot){0, 1},
                      "no generator or machine has the name `%s`%s%s%s",
                      tt_quoted(name.at, name.len).text,
                      found ? "; did you mean `" : "", found ? found : "",
                      found ? "`?" : "");
}

/* A spec that begins with the name of a generator. */
static tutti_err read_whole(reader *r, const char *spec)
{
    tt_word name = name_of(spec);
    tt_genspec *s = r->out;
    s->generator = find_generator(name);
    if (!s->generator)
        return no_such(name, r->diag);
    r->spec = spec;
    r->at = spec + name.len;
    r->end = spec + strlen(spec);
    if (*r->at != ':')
        return tt_fail_at(r->diag, TUTTI_EFORMAT, spot(r, r->at),
                          "`%s` needs a shape: %s", s->generator->name,
                          s->generator->form);
    r->at++;
    for (int i = 0; i < TT_MAX_KINDS; i++) {
        const tt_link_kind *k = &s->generator->kinds[i];
        s->speeds[i] = (tt_speed){k->rate_bps, k->rate_bps, k->latency_ps};
    }
    tutti_err err = read_shape(r);
    return err ? err : read_args(r);
}

tutti_err tt_genspec_read(const tt_mem *mem, const char *spec, tt_genspec *out,
                          tutti_diag *diag)
{
    *out = (tt_genspec){.arena = {.mem = mem}};
    reader r = {.diag = diag, .out = out};
    size_t len = name_of(spec).len;
    const tt_machine *m = find_machine(name_of(spec));
    tutti_err err = read_whole(&r, m ? m->spec : spec);
    if (m && !err && spec[len] == ':')
        err = tt_fail_at(diag, TUTTI_EFORMAT, (tt_spot){0, (uint32_t)len + 1},
                         "`%s` has a shape of its own", m->name);
    if (m && !err) {
        r.spec = spec;
        r.at = spec + len;
        r.end = spec + strlen(spec);
        out->shape_at = (tt_spot){0, 1};
        err = read_args(&r);
    }
    return err ? err : sort_overrides(&r);
}

bool tt_topology_is_generator(const char *spec)
{
    tt_word name = name_of(spec);
    return find_generator(name) || find_machine(name);
}

bool tt_generator_at(size_t index, tutti_generator_info *out)
{
    size_t i = 0;
    for (const tt_generator *g = tt_generators; g->name; g++) {
        if (i++ == index) {
            *out = (tutti_generator_info){g->name, g->form, g->blurb};
            return true;
        }
    }
    for (const tt_machine *m = tt_machines; m->name; m++) {
        if (i++ == index) {
            *out = (tutti_generator_info){m->name, m->name, m->blurb};
            return true;
        }
    }
    return false;
}
