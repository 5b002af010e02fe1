/* SPDX-License-Identifier: BSD-3-Clause
 * fuzz_engine.c - what a peer may send to an engine in the middle of a call.
 *
 * Rank 0 of three begins an all-reduce, at once or when three messages have
 * come; the input is what ranks 1 and 2 send: records of a control byte, a
 * header, and a payload. Property: nothing is read or written outside its
 * buffers (sanitizers), a call ends only once, and the communicator can be left
 * afterwards. */
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"
#include "support/fuzz_main.h"
#include "support/rig.h"

/* A transport that takes everything and brings only what the test feeds. All
 * others call in the first progress(). */
static tt_conn *conns[3];

static tutti_err sink_dial(tt_conn *conn, const void *addr, size_t len,
                           uint64_t deadline_ns, tutti_diag *diag)
{
    (void)addr;
    (void)len;
    (void)conn;
    (void)deadline_ns;
    (void)diag;
    return TUTTI_OK;
}

static tutti_err sink_open(tt_net *net, tutti_diag *diag)
{
    (void)diag;
    net->max_payload = 4096;
    net->fd = -1;
    return TUTTI_OK;
}

static tt_sent sink_send(tt_conn *conn, const tt_msg *m,
                         const struct iovec *iov, int n_iov)
{
    volatile unsigned char sum = 0;
    size_t len = 0;
    for (int i = 0; i < n_iov; i++) {
        const unsigned char *from = iov[i].iov_base;
        for (size_t j = 0; j < iov[i].iov_len; j++)
            sum = (unsigned char)(sum + from[j]);
        len += iov[i].iov_len;
    }
    if (len != m->len)
        tt_fuzz_fail("a message of another length");
    (void)conn;
    return TT_LEFT;
}

static bool sink_progress(tt_net *net, bool has_event)
{
    (void)has_event;
    for (uint32_t r = 1; r < 3; r++) {
        if (conns[r])
            continue;
        conns[r] = net->up->called(net, r, &net->id);
        conns[r]->is_up = true;
        net->up->up(conns[r]);
    }
    return false;
}

static bool sink_arm(tt_net *net, bool on)
{
    (void)net;
    (void)on;
    return true;
}

static bool sink_cancel(tt_conn *conn, bool drops_input, bool is_final)
{
    (void)drops_input;
    (void)is_final;
    (void)conn;
    return true;
}

static void sink_close(tt_conn *conn, uint64_t linger_ns)
{
    (void)conn;
    (void)linger_ns;
}

static void sink_fini(tt_net *net)
{
    (void)net;
}

/* Buffers within reach: a peer's are memory of the test; some numbers make no
 * sense, some are withdrawn. */
enum { RANKS = 3, ELEMS = 3000 };
static uint32_t far_in[ELEMS], far_out[ELEMS];

static bool sink_grant(tt_conn *conn, const tt_buffers *mine, tt_grant *out)
{
    (void)conn;
    (void)mine;
    *out = (tt_grant){1, 1, 1};
    return true;
}

static bool sink_withdraw(tt_conn *conn, const tt_buffers *mine,
                          uint64_t number, bool is_final)
{
    (void)conn;
    (void)mine;
    (void)number;
    (void)is_final;
    return true;
}

static bool sink_reach(tt_conn *conn, const tt_grant *theirs, tt_buffers *out)
{
    (void)conn;
    if (theirs->number % 8 == 0 || out->bytes > sizeof(far_in))
        return false;
    out->in = theirs->in ? far_in : NULL;
    out->out = theirs->out ? far_out : NULL;
    return true;
}

static bool sink_hold(tt_conn *conn, uint64_t number)
{
    (void)conn;
    return number % 4 != 3;
}

static void sink_release(tt_conn *conn)
{
    (void)conn;
}

#define SINK                                                                  \
    .name = "sink", .net_size = sizeof(tt_net), .conn_size = sizeof(tt_conn), \
    .same_host = true, .open = sink_open, .dial = sink_dial,                  \
    .send = sink_send, .progress = sink_progress, .arm = sink_arm,            \
    .cancel = sink_cancel, .close = sink_close, .fini = sink_fini
static const tt_net_ops sink = {SINK};
static const tt_net_within sink_within = {
    .grant = sink_grant,
    .withdraw = sink_withdraw,
    .reach = sink_reach,
    .hold = sink_hold,
    .release = sink_release,
};
static const tt_net_ops granting_sink = {
    SINK,
    .within = &sink_within,
};

typedef struct stage {
    tt_engine *engine;
    tt_mesh *mesh;
    tt_team *team, *group, *pair; /* rank 2 is not in the last one */
    tt_part *part;
    tt_program *program;
    uint32_t in[ELEMS], out[ELEMS];
    uint64_t fingerprint;
    int n_done;
} stage;

static void set_up(stage *s, uint64_t eager_bytes, const tt_net_ops *ops)
{
    tt_engine_opts opts = {0};
    tutti_diag diag;
    const uint32_t members[RANKS] = {0, 1, 2};
    tt_net *net = tt_new(&tt_mem_std, 1, sizeof(*net));
    *net = (tt_net){
        .ops = ops, .up = &tt_engine_up, .mem = &tt_mem_std, .n_ranks = 3};
    sink_open(net, &diag);
    static tt_access access;
    access = (tt_access){.net = net};
    tt_port_opts ports[RANKS];
    for (uint32_t r = 0; r < RANKS; r++)
        ports[r] =
            (tt_port_opts){.rank = r, .accesses = &access, .n_accesses = r > 0};
    memset(conns, 0, sizeof(conns));
    tt_mesh_opts mesh = {.rank = 0,
                         .n_ranks = RANKS,
                         .n_nets = 1,
                         .nets = &net,
                         .ports = ports,
                         .eager_bytes = eager_bytes};
    if (tt_engine_create(&tt_mem_std, &opts, &s->engine, &diag) ||
        tt_mesh_create(s->engine, &tt_mem_std, &mesh, &s->mesh) ||
        tt_team_create(s->mesh, 1, members, RANKS, &s->team))
        tt_fuzz_fail("no memory");
    const tt_group_opts group = {
        .origin = 1, .number = 4, .members = members, .n = RANKS};
    const tt_group_opts pair = {
        .origin = 1, .number = 5, .members = members, .n = 2};
    if (tt_group_create(s->mesh, &group, &s->group) ||
        tt_group_create(s->mesh, &pair, &s->pair))
        tt_fuzz_fail("no memory");
    tt_mesh_dial(s->mesh, true);
    tt_engine_lock(s->engine);
    tt_engine_step(s->engine);
    tt_engine_unlock(s->engine);
}

/* Of groups before the one that is entered, of that, of those that follow. */
static uint64_t group_id(uint64_t number)
{
    return UINT64_C(1) << 63 | UINT64_C(1) << 40 | number % 8;
}

static void done(void *arg, tutti_err err)
{
    (void)err;
    ((stage *)arg)->n_done++;
}

static void begin(stage *s, uint8_t kind)
{
    static const char *const planners[] = {"ring", "direct", "doubling",
                                           "halving"};
    tt_problem p = {.collective = TUTTI_ALL_REDUCE,
                    .n_ranks = RANKS,
                    .root = TT_NONE,
                    .size_bytes = ELEMS * 4};
    tt_shape shape = {.coll = TUTTI_ALL_REDUCE,
                      .n_ranks = RANKS,
                      .root = TT_NONE,
                      .elem_bytes = 4,
                      .count = kind & 4 ? ELEMS : 2};
    tt_layout lay = {.front_bytes = 2048,
                     .staging_max_bytes = 1 << 20,
                     .window = 1 + (kind >> 3) % 4,
                     .max_payload = 4096};
    tutti_schedule *schedule;
    tt_bound *bound;
    tt_shape_layout(&shape, &lay);
    if (tt_plan_build(tt_planner_find(planners[kind & 3]), &p, &tt_mem_std,
                      &schedule, NULL) ||
        tt_part_extract(schedule, 0, NULL, &tt_mem_std, &s->part) ||
        tt_bound_create(s->part, &lay, &tt_mem_std, &bound) ||
        tt_program_create(bound, &tt_mem_std, &s->program))
        tt_fuzz_fail("no plan");
    tt_op_start start = {.program = s->program,
                         .call = {.type = TUTTI_U32, .count = shape.count},
                         .in = s->in,
                         .out = s->out,
                         .deadline_ns = UINT64_MAX,
                         .done = done,
                         .arg = s};
    const char *text;
    if (tt_op_begin(s->team, &start)) {
        if (!tt_team_state(s->team, &text))
            tt_fuzz_fail("no call");
        s->n_done++; /* what came before has ended the team */
    }
    tt_sched_free(schedule);
}

static uint64_t fingerprint_of(uint8_t kind)
{
    tt_call call = {.type = TUTTI_U32, .count = kind & 4 ? ELEMS : 2};
    return tt_call_fingerprint(&call);
}

/* Bit 0: which peer; 1: right fingerprint; 2: read into a place first; 7: of a
 * group. */
static void feed(stage *s, uint8_t control, tt_msg m, const uint8_t *payload)
{
    tt_conn *conn = conns[1 + (control & 1)];
    if (control & 2)
        m.fingerprint = s->fingerprint;
    m.magic = TT_MSG_MAGIC;
    m.comm = control & 8 ? m.comm : 1;
    if (control & 128)
        m.comm = group_id(m.comm);
    m.channel = control & 16 ? m.channel : 0;
    m.seq = control & 32 ? m.seq : 0;
    m.flags = control & 64 ? m.flags : 0;
    const void *data = m.len ? payload : NULL;
    if ((control & 4) && m.len) {
        void *place = tt_engine_up.place(conn->peer, &m);
        memcpy(place, payload, m.len);
        data = place;
    }
    tt_engine_up.arrived(conn->peer, &m, data);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    stage *s = calloc(1, sizeof(*s));
    uint8_t *payload = calloc(1, 4096);
    uint8_t kind = len ? data[0] : 0;
    size_t at = 1, n = 0;
    set_up(s, kind & 32 ? 2048 : 0, kind & 128 ? &granting_sink : &sink);
    s->fingerprint = fingerprint_of(kind);
    tt_engine_lock(s->engine);
    if (!(kind & 64))
        begin(s, kind);
    for (; at + 1 + sizeof(tt_msg) <= len; n++) {
        if (n == 3 && (kind & 64))
            begin(s, kind);
        tt_msg m;
        uint8_t control = data[at];
        memcpy(&m, data + at + 1, sizeof(m));
        at += 1 + sizeof(m);
        m.len %= 4097;
        size_t have = len - at < m.len ? len - at : m.len;
        memcpy(payload, data + at, have);
        at += have;
        feed(s, control, m, payload);
        tt_engine_step(s->engine);
    }
    if (n <= 3 && (kind & 64))
        begin(s, kind);
    if (s->n_done > 1)
        tt_fuzz_fail("a call ended twice");
    tt_team_leave(s->team);
    tt_team_leave(s->group);
    tt_team_leave(s->pair);
    if (s->n_done != 1)
        tt_fuzz_fail("a call has not ended");
    tt_program_unref(s->program);
    tt_engine_unlock(s->engine);
    tt_part_free(s->part);
    tt_mesh_unref(s->mesh);
    tt_engine_destroy(s->engine);
    free(payload);
    free(s);
    return 0;
}

#ifndef TT_LIBFUZZER
int main(int argc, char **argv)
{
    return tt_fuzz_main(argc, argv, "tests/fuzz/corpus/engine",
                        LLVMFuzzerTestOneInput);
}
#endif
