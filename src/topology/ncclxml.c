/* SPDX-License-Identifier: BSD-3-Clause
 * ncclxml.c - reads the topology that NCCL writes (NCCL_TOPO_DUMP_FILE).
 *
 *     <system version="1">
 *       <cpu numaid="0" arch="x86_64" vendor="GenuineIntel" ...>
 *         <pci busid="0000:11:00.0" class="0x060400" link_speed=".." ..>
 *           <pci busid="0000:12:00.0" class="0x030200" ...>
 *             <gpu dev="0" sm="90" rank="0"> <nvlink target=".." .../> </gpu>
 *
 * What becomes what
 *   gpu      a host gpuN of one rank, numbered by `rank`; those without one
 *            come after, in order of the text
 *   cpu      a switch cpuN; two of one host are joined by what such CPUs have
 *   pci      a switch pciN when there is something below it that is no GPU or
 *            NIC; of these the link to what is above, link_speed x link_width
 *   nvlink   a link between two GPUs, or to the CPU, or to the switch nvs,
 *            which stands for all NVSwitches; those to the same place are one
 *            link
 *   c2c      a link to the CPU
 *   nic      a switch nicN. Each `net` of it is joined to a switch `network`,
 *            but only where the text has CPUs of several hosts: of one host
 *            the network outside is not known, and its NICs lead nowhere
 * Rates are those that NCCL takes; latencies it does not know, and all links
 * inside a host get 500 ns.
 *
 * Safety     libxml2's SAX2 parser in its default limits: no network, no files,
 *            no entities (a DOCTYPE is an error), no tree, and UTF-8 whatever
 *            the text says of itself (converters of libxml2 write what they
 *            find wrong to standard error). Its own memory is malloc's. Nothing
 *            in the text is trusted for a size.
 * Next       netfile.c, whose format says the same in the open.
 */
#include "topology/network.h"

#ifndef TT_HAVE_XML2
#define TT_HAVE_XML2 0
#endif

#if TT_HAVE_XML2

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include <libxml/parser.h>
#include <libxml/parserInternals.h>

enum { MAX_DEPTH = 64, MAX_BUSID = 32, MAX_LANES = 64, MAX_COUNT = 1024 };
/* Things of one sort; what looks for one among them may look at all. */
enum { MAX_THINGS = 8192 };
#define MAX_TEXT ((size_t)16 << 20)
#define MBIT UINT64_C(1000000)
#define GBIT (1000 * MBIT)
#define INSIDE_PS UINT64_C(500000)

typedef enum tag {
    TAG_OTHER,
    TAG_SYSTEM,
    TAG_CPU,
    TAG_PCI,
    TAG_GPU,
    TAG_NIC,
    TAG_NET,
    TAG_NVLINK,
    TAG_C2C,
    TAG_PCILINK
} tag;

typedef struct busid {
    char text[MAX_BUSID];
} busid;

/* An open element. */
typedef struct level {
    tag tag;
    uint32_t node; /* made for it, or TT_NONE */
    busid id;      /* of a pci */
    uint64_t bps;  /* of a pci: to what is above */
} level;

typedef struct gpu {
    uint32_t node, rank, cpu; /* cpu: index, or TT_NONE */
    uint64_t nvlink_bps;      /* of one of its links */
    busid id;
} gpu;

typedef struct cpu {
    uint32_t node;
    uint64_t host; /* its hash */
    uint64_t bps;  /* to another like it */
} cpu;

/* Something of one bus id joined to another, of which we know its id. */
typedef struct peer {
    uint32_t node;
    uint32_t index; /* nvlink: of the GPU */
    uint64_t host;  /* on which it looks for its target */
    busid target;
    char tclass[12];
    uint64_t bps;
    tt_spot at;
} peer;

typedef struct net {
    uint32_t nic;
    uint64_t bps, latency_ps;
} net;

typedef struct pci_switch {
    uint32_t node;
    uint64_t host;
    busid id;
} pci_switch;

typedef struct list {
    void *items;
    size_t n, cap;
} list;

/* A tag that was passed: its place, and its distance from the beginning. */
typedef struct mark {
    tt_spot at;
    uint64_t offset;
} mark;

typedef struct import {
    tt_arena arena; /* of the lists */
    tt_topo_builder *b;
    tutti_diag *diag;
    tutti_err err;
    xmlParserCtxtPtr xml;
    level levels[MAX_DEPTH];
    uint32_t depth;
    mark last;
    uint32_t n_nics, n_pcis, n_gpus, n_nvlinks;
    list gpus, cpus, nvlinks, pcilinks, nets, pcis;
} import;

/* --------------------------------------------------------------- errors -- */

/* Where the tag that is being read begins. libxml2 forgets what it has read,
 * and a text may be one line of 16 MiB: on the line of the tag before, columns
 * go on from there. */
static tt_spot here(import *m)
{
    const xmlParserInput *in = m->xml->input;
    if (!in || !in->base || !in->cur)
        return (tt_spot){1, 1};
    const xmlChar *at = in->cur;
    uint32_t line = in->line > 0 ? (uint32_t)in->line : 1;
    while (at > in->base && *at != '<') {
        at--;
        line -= *at == '\n' && line > 1;
    }
    const uint64_t offset = in->consumed + (uint64_t)(at - in->base);
    uint64_t column = 1;
    if (line == m->last.at.line)
        column = m->last.at.column + (offset - m->last.offset);
    else
        for (; at > in->base && at[-1] != '\n'; at--)
            column++;
    m->last.at = (tt_spot){line,
                           column < UINT32_MAX ? (uint32_t)column : UINT32_MAX};
    m->last.offset = offset;
    return m->last.at;
}

static void stop(import *m, tutti_err err)
{
    if (err && !m->err)
        m->err = err;
    if (err)
        xmlStopParser(m->xml);
}

static void refuse(import *m, tutti_err err, const char *text)
{
    if (!m->err)
        stop(m, tt_fail_at(m->diag, err, here(m), "%s", text));
}

/* May there be one more of a sort of which there are n? */
static bool may_count(import *m, size_t n)
{
    if (n >= MAX_THINGS)
        refuse(m, TUTTI_ELIMIT,
               "there can be at most 8192 elements of one sort");
    return n < MAX_THINGS;
}

static void *add(import *m, list *l, size_t size)
{
    if (!may_count(m, l->n))
        return NULL;
    l->items = tt_arena_grow(&m->arena, l->items, &l->cap, l->n + 1, size);
    if (m->arena.err) {
        refuse(m, TUTTI_ENOMEM, "no memory for the network");
        return NULL;
    }
    char *item = (char *)l->items + l->n++ * size;
    memset(item, 0, size);
    return item;
}

/* ----------------------------------------------------------- attributes -- */

/* The attributes of an element as SAX2 hands them over: five pointers each. */
typedef struct attributes {
    const xmlChar **list;
    int n;
} attributes;

/* Copies the value, cut to the buffer; "" and false when there is none. */
static bool get(const attributes *a, const char *name, char *out, size_t size)
{
    out[0] = 0;
    for (int i = 0; i < a->n; i++) {
        const xmlChar *const *one = a->list + 5 * i;
        if (strcmp((const char *)one[0], name) != 0)
            continue;
        size_t len = (size_t)(one[4] - one[3]);
        len = len < size ? len : size - 1;
        memcpy(out, one[3], len);
        out[len] = 0;
        return true;
    }
    return false;
}

/* A decimal number at the start of the value, in units of 1/1000; fallback
 * when there is none or it is above `most`. */
static uint64_t get_milli(const attributes *a, const char *name, uint64_t most,
                          uint64_t fallback)
{
    char text[64];
    uint64_t value = 0;
    bool is_large = false;
    if (!get(a, name, text, sizeof(text)))
        return fallback;
    tt_decimal d = tt_decimal_read(text, strlen(text));
    if (d.len == 0 || d.is_long || d.n_places > 18)
        return fallback;
    tt_decimal_times(&d, 1000, most * 1000, &value, &is_large);
    return is_large ? fallback : value;
}

static uint32_t get_count(const attributes *a, const char *name, uint32_t most,
                          uint32_t fallback)
{
    return (uint32_t)(get_milli(a, name, most, (uint64_t)fallback * 1000) /
                      1000);
}

static uint64_t get_hex(const attributes *a, const char *name)
{
    char text[32];
    get(a, name, text, sizeof(text));
    const char *p = text[0] == '0' && (text[1] == 'x' || text[1] == 'X')
                        ? text + 2
                        : text;
    uint64_t value = 0;
    for (; *p; p++) {
        int digit = *p >= '0' && *p <= '9'   ? *p - '0'
                    : *p >= 'a' && *p <= 'f' ? *p - 'a' + 10
                    : *p >= 'A' && *p <= 'F' ? *p - 'A' + 10
                                             : -1;
        if (digit < 0)
            break;
        value = value << 4 | (uint64_t)digit;
    }
    return value;
}

/* -------------------------------------------------------------- the rates */

typedef struct rate_row {
    uint32_t key;
    uint64_t bps;
} rate_row;

/* The last row whose key is not above `key`. */
static uint64_t look_up(const rate_row *rows, size_t n, uint32_t key)
{
    uint64_t bps = rows[0].bps;
    for (size_t i = 0; i < n && rows[i].key <= key; i++)
        bps = rows[i].bps;
    return bps;
}

/* A lane, by transfers per millisecond / 1000 (16.0 GT/s: 16000). */
static const rate_row lane_rates[] = {
    {0, 1500 * MBIT},      {5000, 3000 * MBIT},   {8000, 6000 * MBIT},
    {16000, 12000 * MBIT}, {32000, 24000 * MBIT}, {64000, 48000 * MBIT}};

/* One NVLink, by compute capability. */
static const rate_row nvlink_rates[] = {{0, 144 * GBIT},
                                        {70, 160 * GBIT},
                                        {86, 96 * GBIT},
                                        {87, 160 * GBIT},
                                        {90, 164 * GBIT + 800 * MBIT},
                                        {100, 320 * GBIT + 800 * MBIT}};

/* Between two Intel CPUs, by model: Broadwell, Skylake, Sapphire Rapids,
 * Emerald Rapids. */
static const rate_row intel_rates[] = {
    {0, 48 * GBIT}, {85, 80 * GBIT}, {143, 176 * GBIT}, {207, 320 * GBIT}};

static uint64_t pci_rate(const attributes *a)
{
    uint64_t speed = get_milli(a, "link_speed", 1000, 8000);
    uint32_t width = get_count(a, "link_width", MAX_LANES, 16);
    size_t n = sizeof(lane_rates) / sizeof(lane_rates[0]);
    if (speed == 0)
        speed = 8000;
    return look_up(lane_rates, n, (uint32_t)speed) * (width ? width : 16);
}

static uint64_t cpu_rate(const attributes *a)
{
    char arch[16], vendor[32];
    get(a, "arch", arch, sizeof(arch));
    get(a, "vendor", vendor, sizeof(vendor));
    uint32_t model = get_count(a, "modelid", 100000, 0);
    size_t n = sizeof(intel_rates) / sizeof(intel_rates[0]);
    if (strcmp(arch, "ppc64") == 0)
        return 256 * GBIT;
    if (strcmp(arch, "arm64") == 0)
        return 48 * GBIT;
    if (strcmp(vendor, "AuthenticAMD") == 0)
        return 128 * GBIT;
    if (strcmp(vendor, "GenuineIntel") == 0)
        return look_up(intel_rates, n, model);
    return 48 * GBIT;
}

/* ------------------------------------------------------------- elements -- */

static uint32_t named(import *m, const char *head, uint32_t i, bool is_host)
{
    char name[32];
    snprintf(name, sizeof(name), "%s%u", head, i);
    tt_topo_at(m->b, here(m));
    uint32_t node = is_host ? tt_topo_host(m->b, name)
                            : tt_topo_switch(m->b, name);
    stop(m, tt_topo_error(m->b, m->err ? NULL : m->diag));
    return node;
}

static void link(import *m, uint32_t a, uint32_t z, uint64_t up, uint64_t down,
                 uint64_t latency_ps)
{
    tt_wire w = {.up_bps = up, .down_bps = down, .latency_ps = latency_ps};
    if (m->err || a == TT_NONE || z == TT_NONE || a == z)
        return;
    tt_topo_link(m->b, a, z, &w);
    stop(m, tt_topo_error(m->b, m->diag));
}

/* The host of the CPU that was begun last. */
static uint64_t present_host(const import *m)
{
    return m->cpus.n ? ((const cpu *)m->cpus.items)[m->cpus.n - 1].host : 0;
}

/* The innermost open element that is a cpu, or -1. */
static int open_cpu(const import *m)
{
    int i = (int)m->depth - 1;
    while (i >= 0 && m->levels[i].tag != TAG_CPU)
        i--;
    return i;
}

/* The node above level i: that of the nearest pci or cpu around it, which is
 * made if it has none yet. */
static uint32_t node_above(import *m, uint32_t i)
{
    /* From the outermost without a node inwards: no recursion. */
    uint32_t base = i;
    while (base > 0 && m->levels[base - 1].node == TT_NONE)
        base--;
    uint32_t above = base > 0 ? m->levels[base - 1].node : TT_NONE;
    for (uint32_t k = base; k < i; k++) {
        level *l = &m->levels[k];
        if (l->tag != TAG_PCI)
            continue;
        l->node = named(m, "pci", m->n_pcis++, false);
        link(m, l->node, above, l->bps, l->bps, INSIDE_PS);
        above = l->node;
        pci_switch *s = add(m, &m->pcis, sizeof(*s));
        if (s)
            *s = (pci_switch){l->node, present_host(m), l->id};
    }
    return above;
}

static void begin_cpu(import *m, const attributes *a, level *l)
{
    cpu *c = add(m, &m->cpus, sizeof(*c));
    if (!c)
        return;
    l->node = named(m, "cpu", (uint32_t)m->cpus.n - 1, false);
    *c = (cpu){l->node, get_hex(a, "host_hash"), cpu_rate(a)};
}

static void begin_pci(import *m, const attributes *a, level *l)
{
    (void)m;
    get(a, "busid", l->id.text, sizeof(l->id.text));
    l->bps = pci_rate(a);
}

/* A GPU or NIC inside a pci is one thing with it: the pci's link is its own. */
static void link_device(import *m, uint32_t node)
{
    uint32_t inner = m->depth - 1; /* the device's own level */
    bool in_pci = inner > 0 && m->levels[inner - 1].tag == TAG_PCI &&
                  m->levels[inner - 1].node == TT_NONE;
    uint64_t bps = in_pci ? m->levels[inner - 1].bps : 192 * GBIT;
    uint32_t above = node_above(m, in_pci ? inner - 1 : inner);
    link(m, node, above, bps, bps, INSIDE_PS);
}

static void begin_gpu(import *m, const attributes *a, level *l)
{
    uint32_t inner = m->depth - 1;
    if (open_cpu(m) < 0) {
        refuse(m, TUTTI_EFORMAT, "a `gpu` must be inside a `cpu`");
        return;
    }
    gpu *g = add(m, &m->gpus, sizeof(*g));
    if (!g)
        return;
    l->node = named(m, "gpu", m->n_gpus++, true);
    size_t n = sizeof(nvlink_rates) / sizeof(nvlink_rates[0]);
    *g = (gpu){.node = l->node,
               .rank = get_count(a, "rank", TT_NONE - 1, TT_NONE),
               .cpu = (uint32_t)m->cpus.n - 1};
    g->nvlink_bps = look_up(nvlink_rates, n, get_count(a, "sm", 1000, 0));
    if (m->levels[inner - 1].tag == TAG_PCI)
        g->id = m->levels[inner - 1].id;
    link_device(m, l->node);
}

static void begin_nic(import *m, const attributes *a, level *l)
{
    (void)a;
    if (open_cpu(m) < 0) {
        refuse(m, TUTTI_EFORMAT, "a `nic` must be inside a `cpu`");
        return;
    }
    if (!may_count(m, m->n_nics))
        return;
    l->node = named(m, "nic", m->n_nics++, false);
    link_device(m, l->node);
}

static void begin_net(import *m, const attributes *a, level *l)
{
    (void)l;
    uint32_t inner = m->depth - 1;
    if (inner == 0 || m->levels[inner - 1].tag != TAG_NIC)
        return;
    net *n = add(m, &m->nets, sizeof(*n));
    if (!n)
        return;
    uint64_t kbit = get_milli(a, "speed", 100000000, 0);
    n->nic = m->levels[inner - 1].node;
    n->bps = kbit ? kbit * 1000 : 100 * GBIT;
    /* In microseconds. */
    n->latency_ps = get_milli(a, "latency", 1000000, 0) * 1000;
}

/* The GPU that is open, or NULL: the last one. */
static gpu *open_gpu(import *m)
{
    uint32_t inner = m->depth - 1;
    if (inner == 0 || m->levels[inner - 1].tag != TAG_GPU || m->gpus.n == 0)
        return NULL;
    return (gpu *)m->gpus.items + (m->gpus.n - 1);
}

/* Does it lead to an NVSwitch? All of these are one switch here. */
static bool is_nvs(const peer *p)
{
    return strcmp(p->tclass, "0x068001") != 0 &&
           strncmp(p->tclass, "0x03", 4) != 0;
}

/* Links of one GPU to the same place are one link. */
static void add_nvlink(import *m, const peer *p)
{
    peer *old = m->nvlinks.items;
    for (size_t i = m->nvlinks.n; i-- > 0 && old[i].index == p->index;) {
        bool is_same = strcmp(old[i].target.text, p->target.text) == 0 ||
                       (is_nvs(&old[i]) && is_nvs(p));
        if (!is_same)
            continue;
        uint64_t sum = old[i].bps + p->bps;
        old[i].bps = sum < TT_MAX_RATE_BPS ? sum : TT_MAX_RATE_BPS;
        return;
    }
    peer *fresh = add(m, &m->nvlinks, sizeof(*fresh));
    if (fresh)
        *fresh = *p;
}

static void begin_nvlink(import *m, const attributes *a, level *l)
{
    (void)l;
    const gpu *g = open_gpu(m);
    uint32_t count = get_count(a, "count", MAX_COUNT, 1);
    if (!g || count == 0 || !may_count(m, m->n_nvlinks++))
        return;
    peer p = {.node = g->node,
              .index = (uint32_t)m->gpus.n - 1,
              .host = present_host(m),
              .bps = g->nvlink_bps * count,
              .at = here(m)};
    get(a, "target", p.target.text, sizeof(p.target.text));
    get(a, "tclass", p.tclass, sizeof(p.tclass));
    add_nvlink(m, &p);
}

static void begin_c2c(import *m, const attributes *a, level *l)
{
    (void)l;
    const gpu *g = open_gpu(m);
    /* `bw` is in MB/s, of each of `count`. */
    uint64_t bps = get_milli(a, "bw", 100000000, 0) * 8000;
    bps *= get_count(a, "count", MAX_COUNT, 1);
    if (!g || bps == 0 || bps > TT_MAX_RATE_BPS)
        return;
    const cpu *c = (const cpu *)m->cpus.items + g->cpu;
    link(m, g->node, c->node, bps, bps, INSIDE_PS);
}

static void begin_pcilink(import *m, const attributes *a, level *l)
{
    (void)l;
    uint32_t inner = m->depth - 1;
    if (inner == 0 || m->levels[inner - 1].tag != TAG_PCI)
        return;
    uint32_t node = node_above(m, inner);
    peer *p = add(m, &m->pcilinks, sizeof(*p));
    if (!p)
        return;
    p->node = node;
    p->host = present_host(m);
    p->bps = m->levels[inner - 1].bps;
    p->at = here(m);
    get(a, "target", p->target.text, sizeof(p->target.text));
}

static void begin_system(import *m, const attributes *a, level *l)
{
    (void)l;
    char version[16];
    get(a, "version", version, sizeof(version));
    if (m->depth != 1)
        refuse(m, TUTTI_EFORMAT, "a `system` inside another element");
    else if (strcmp(version, "1") != 0)
        refuse(m, TUTTI_EFORMAT,
               "expected `system version=\"1\"`, the only one that can be "
               "read");
}

static const struct {
    const char *name;
    void (*begin)(import *m, const attributes *a, level *l);
} tags[] = {
    [TAG_OTHER] = {"", NULL},       [TAG_SYSTEM] = {"system", begin_system},
    [TAG_CPU] = {"cpu", begin_cpu}, [TAG_PCI] = {"pci", begin_pci},
    [TAG_GPU] = {"gpu", begin_gpu}, [TAG_NIC] = {"nic", begin_nic},
    [TAG_NET] = {"net", begin_net}, [TAG_NVLINK] = {"nvlink", begin_nvlink},
    [TAG_C2C] = {"c2c", begin_c2c}, [TAG_PCILINK] = {"pcilink", begin_pcilink},
};

static tag find_tag(const char *name)
{
    size_t i = sizeof(tags) / sizeof(tags[0]) - 1;
    while (i > TAG_OTHER && strcmp(name, tags[i].name) != 0)
        i--;
    return (tag)i;
}

static void on_begin(void *ctx, const xmlChar *name, const xmlChar *prefix,
                     const xmlChar *uri, int n_namespaces,
                     const xmlChar **namespaces, int n_attributes,
                     int n_defaulted, const xmlChar **list_of)
{
    import *m = ctx;
    (void)prefix;
    (void)uri;
    (void)n_namespaces;
    (void)namespaces;
    (void)n_defaulted;
    tag kind = find_tag((const char *)name);
    if (m->err)
        return;
    if (m->depth == 0 && kind != TAG_SYSTEM) {
        refuse(m, TUTTI_EFORMAT,
               "expected `system`, with which a topology of NCCL begins");
        return;
    }
    if (m->depth == MAX_DEPTH) {
        refuse(m, TUTTI_ELIMIT, "elements can be nested at most 64 deep");
        return;
    }
    here(m); /* so that the next tag's column is found from this one */
    level *l = &m->levels[m->depth++];
    *l = (level){.tag = kind, .node = TT_NONE};
    attributes a = {list_of, n_attributes};
    if (tags[kind].begin)
        tags[kind].begin(m, &a, l);
}

static void on_end(void *ctx, const xmlChar *name, const xmlChar *prefix,
                   const xmlChar *uri)
{
    import *m = ctx;
    (void)name;
    (void)prefix;
    (void)uri;
    m->depth -= m->depth > 0;
}

static void on_doctype(void *ctx, const xmlChar *name, const xmlChar *id,
                       const xmlChar *system)
{
    (void)name;
    (void)id;
    (void)system;
    refuse(ctx, TUTTI_EFORMAT, "a document type is not allowed here");
}

/* ---------------------------------------------------- when all is known -- */

static void join_cpus(import *m)
{
    const cpu *c = m->cpus.items;
    for (size_t i = 0; i < m->cpus.n && !m->err; i++) {
        for (size_t k = i + 1; k < m->cpus.n && !m->err; k++) {
            uint64_t bps = c[i].bps < c[k].bps ? c[i].bps : c[k].bps;
            if (c[i].host == c[k].host)
                link(m, c[i].node, c[k].node, bps, bps, INSIDE_PS);
        }
    }
}

static void join_nets(import *m)
{
    const cpu *c = m->cpus.items;
    const net *n = m->nets.items;
    bool is_one_host = true;
    for (size_t i = 1; i < m->cpus.n; i++)
        is_one_host = is_one_host && c[i].host == c[0].host;
    if (is_one_host || m->nets.n == 0 || m->err)
        return;
    uint32_t outside = tt_topo_switch(m->b, "network");
    for (size_t i = 0; i < m->nets.n; i++)
        link(m, n[i].nic, outside, n[i].bps, n[i].bps, n[i].latency_ps);
}

/* Bus ids are those of one host: every host may have the same. */
static const gpu *find_gpu(const import *m, const peer *p)
{
    const gpu *g = m->gpus.items;
    const cpu *c = m->cpus.items;
    for (size_t i = 0; i < m->gpus.n; i++) {
        if (g[i].id.text[0] && c[g[i].cpu].host == p->host &&
            strcmp(g[i].id.text, p->target.text) == 0)
            return &g[i];
    }
    return NULL;
}

/* Both GPUs of an NVLink list it: the rate that the other one lists, 0 when it
 * does not; *is_first: this is the one to be made. */
static uint64_t other_way(const import *m, size_t i, const gpu *to,
                          bool *is_first)
{
    const peer *p = m->nvlinks.items;
    const gpu *from = (const gpu *)m->gpus.items + p[i].index;
    *is_first = true;
    for (size_t k = 0; k < m->nvlinks.n; k++) {
        if (p[k].node != to->node ||
            strcmp(p[k].target.text, from->id.text) != 0)
            continue;
        *is_first = i < k;
        return p[k].bps;
    }
    return 0;
}

static void join_nvlinks(import *m)
{
    const peer *p = m->nvlinks.items;
    uint32_t nvs = TT_NONE;
    for (size_t i = 0; i < m->nvlinks.n && !m->err; i++) {
        const gpu *g = (const gpu *)m->gpus.items + p[i].index;
        const gpu *to = find_gpu(m, &p[i]);
        bool is_first = true;
        tt_topo_at(m->b, p[i].at);
        if (to) {
            uint64_t back = other_way(m, i, to, &is_first);
            if (is_first)
                link(m, g->node, to->node, p[i].bps, back ? back : p[i].bps,
                     INSIDE_PS);
        } else if (is_nvs(&p[i])) {
            if (nvs == TT_NONE)
                nvs = tt_topo_switch(m->b, "nvs");
            link(m, g->node, nvs, p[i].bps, p[i].bps, INSIDE_PS);
        } else if (strncmp(p[i].tclass, "0x03", 4) != 0) {
            const cpu *c = (const cpu *)m->cpus.items + g->cpu;
            link(m, g->node, c->node, p[i].bps, p[i].bps, INSIDE_PS);
        }
    }
}

static void join_pcilinks(import *m)
{
    const peer *p = m->pcilinks.items;
    const pci_switch *s = m->pcis.items;
    for (size_t i = 0; i < m->pcilinks.n && !m->err; i++) {
        uint32_t to = TT_NONE;
        for (size_t k = 0; k < m->pcis.n; k++) {
            if (s[k].host == p[i].host &&
                strcmp(s[k].id.text, p[i].target.text) == 0)
                to = s[k].node;
        }
        /* Both ends list it: the one that was made first makes it. */
        if (to != TT_NONE && p[i].node < to)
            link(m, p[i].node, to, p[i].bps, p[i].bps, INSIDE_PS);
    }
}

/* GPUs by `rank`, those without one after them. */
static void place_ranks(import *m)
{
    const gpu *g = m->gpus.items;
    uint32_t n = (uint32_t)m->gpus.n;
    uint32_t *place = tt_arena_new(&m->arena, n, sizeof(*place));
    if (!place && n) {
        refuse(m, TUTTI_ENOMEM, "no memory for the network");
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < n; k++)
            place[i] += g[k].rank < g[i].rank ||
                        (g[k].rank == g[i].rank && k < i);
    }
    tt_topo_place(m->b, place, n);
}

static void finish(import *m)
{
    join_cpus(m);
    join_nvlinks(m);
    join_pcilinks(m);
    join_nets(m);
    if (!m->err)
        place_ranks(m);
}

/* ---------------------------------------------------------------- parse -- */

/* What libxml2 found wrong, in one sentence; the first counts. */
static void xml_error(import *m)
{
    const xmlError *e = xmlCtxtGetLastError(m->xml);
    const char *text = e && e->message ? e->message : "it ends too early";
    int n = (int)strcspn(text, "\n");
    tt_spot at = {e && e->line > 0 ? (uint32_t)e->line : 1,
                  e && e->int2 > 0 ? (uint32_t)e->int2 : 1};
    bool no_memory = e && e->code == XML_ERR_NO_MEMORY;
    if (!m->err)
        m->err = tt_fail_at(m->diag, no_memory ? TUTTI_ENOMEM : TUTTI_EFORMAT,
                            at, "this is not XML: %.*s", n < 200 ? n : 200,
                            text);
}

static void on_error(void *ctx, const char *format, ...)
{
    (void)format;
    xml_error(ctx);
}

static void parse(import *m)
{
    xmlSAXHandler sax = {.initialized = XML_SAX2_MAGIC,
                         .internalSubset = on_doctype,
                         .startElementNs = on_begin,
                         .endElementNs = on_end,
                         .error = on_error,
                         .fatalError = on_error};
    xmlCtxtUseOptions(m->xml, XML_PARSE_NONET | XML_PARSE_NOWARNING |
                                  XML_PARSE_IGNORE_ENC);
    memcpy(m->xml->sax, &sax, sizeof(sax));
    m->xml->userData = m;
    int rc = xmlParseDocument(m->xml);
    if (!m->err && (rc || !m->xml->wellFormed))
        xml_error(m);
    if (!m->err && m->gpus.n == 0)
        refuse(m, TUTTI_EINVAL, "there is no `gpu`, so there are no ranks");
    if (!m->err)
        finish(m);
}

tutti_err tt_topology_import_nccl(const tt_mem *mem, const char *text,
                                  size_t len, tutti_topology **out,
                                  tutti_diag *diag)
{
    if (!text || len == 0)
        return tt_fail_at(diag, TUTTI_EFORMAT, (tt_spot){1, 1},
                          "the text is empty");
    if (len > MAX_TEXT)
        return tt_fail_at(diag, TUTTI_ELIMIT, (tt_spot){1, 1},
                          "a topology of NCCL can be at most 16 MiB");
    if (memchr(text, 0, len < 4 ? len : 4))
        return tt_fail_at(diag, TUTTI_EFORMAT, (tt_spot){1, 1},
                          "this is not XML in UTF-8");
import m = {.arena = {.mem = mem }, .diag = diag };
    tutti_err err = tt_topo_builder_create(mem, &m.b, diag);
    if (err)
        return err;
    m.xml = xmlCreateMemoryParserCtxt(text, (int)len);
    if (m.xml)
        parse(&m);
    else
        m.err = tt_fail(diag, TUTTI_ENOMEM, "no memory for the network");
    /* libxml2 makes one for the entities of a DOCTYPE. */
    if (m.xml && m.xml->myDoc)
        xmlFreeDoc(m.xml->myDoc);
    xmlFreeParserCtxt(m.xml);
    tt_arena_free(&m.arena);
    if (!m.err)
        return tt_topo_seal(m.b, out, diag);
    tt_topo_builder_free(m.b);
    return m.err;
}

#else

tutti_err tt_topology_import_nccl(const tt_mem *mem, const char *text,
                                  size_t len, tutti_topology **out,
                                  tutti_diag *diag)
{
    (void)mem;
    (void)text;
    (void)len;
    (void)out;
    return tt_fail(diag, TUTTI_ENOFIT,
                   "this build cannot read NCCL's topology XML: libxml2 was "
                   "not there when it was built");
}

#endif
