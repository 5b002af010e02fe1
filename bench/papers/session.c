/* SPDX-License-Identifier: BSD-3-Clause
 * session.c - answers questions about networks and schedules, one a line, so
 * that a script can ask thousands without a process, a network and an optimum
 * for each.
 *
 *     net SPEC                      opens a network
 *     bound GAP                     its optimum, as good as GAP
 *     optimum COLL SIZE             least seconds, by the last bound
 *     plan PLANNER SIZE [COLL]      plans, and proves what was planned
 *     read FILE                     reads a schedule, and proves it
 *     contention                    of the schedule on the network
 *     predict SIZE                  seconds, as the library predicts them
 *     sim SIZE [WORD | WORD=N]...   seconds by the simulator (words: table)
 *     planners                      the names of all
 *
 * Every line is answered by one line of JSON, flushed; an error is
 * {"error": "a sentence"}. bench/papers/desk.py is the other end. */
#define TUTTI_UNSTABLE 1
#include <tutti.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_LINE = 4096, MAX_WORDS = 32 };

typedef struct session {
    tutti_topology *net;
    tutti_schedule *sched;
    tutti_bound_info bound;
    char *words[MAX_WORDS];
    size_t n_words;
    tutti_diag diag;
} session;

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void put_text(const char *text)
{
    putchar('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\')
            putchar('\\');
        putchar((unsigned char)*text < ' ' ? ' ' : *text);
    }
    putchar('"');
}

static void refuse(const char *why)
{
    printf("{\"error\":");
    put_text(why);
    printf("}\n");
}

static void refuse_err(const session *s, tutti_err err)
{
    refuse(s->diag.text[0] ? s->diag.text : tutti_strerror(err));
}

/* Word i as a number; none: fallback. */
static uint64_t count(const session *s, size_t i, uint64_t fallback)
{
    return i < s->n_words ? strtoull(s->words[i], NULL, 10) : fallback;
}

/* ------------------------------------------------------------- networks -- */

static void open_net(session *s)
{
    tutti_topology *net = NULL;
    if (s->n_words != 2) {
        refuse("net SPEC");
        return;
    }
    tutti_err err = tutti_topology_open(s->words[1], &net, &s->diag);
    if (err) {
        refuse_err(s, err);
        return;
    }
    tutti_schedule_free(s->sched);
    tutti_topology_free(s->net);
    s->sched = NULL;
    s->net = net;
    s->bound = (tutti_bound_info){0};
    tutti_topology_info info;
    tutti_topology_describe(net, &info);
    printf("{\"ranks\":%u,\"switches\":%u,\"links\":%u}\n", info.n_ranks,
           info.n_switches, info.n_links);
}

static void find_bound(session *s)
{
    tutti_bound_opts opts = TUTTI_BOUND_OPTS_INIT;
    if (s->n_words > 1)
        opts.gap = strtod(s->words[1], NULL);
    tutti_err err = tutti_bound(s->net, &opts, &s->bound, &s->diag);
    if (err) {
        refuse_err(s, err);
        return;
    }
    const tutti_bound_info *b = &s->bound;
    printf("{\"allreduce_s_per_byte\":%.12g,\"exact\":%s,\"gap\":%.6g,"
           "\"allgather_s_per_byte\":%.12g,\"latency_s\":%.9g}\n",
           b->allreduce_s_per_byte, b->is_exact ? "true" : "false",
           b->gap < 1e9 ? b->gap : -1.0, b->allgather_s_per_byte, b->latency_s);
}

static void tell_optimum(session *s)
{
    tutti_coll coll = TUTTI_ALL_REDUCE;
    if (s->n_words != 3 || tutti_coll_parse(s->words[1], &coll)) {
        refuse("optimum COLL SIZE");
        return;
    }
    printf("{\"time_s\":%.12g}\n",
           tutti_bound_s(s->net, &s->bound, coll, 0, count(s, 2, 0)));
}

/* ------------------------------------------------------------ schedules -- */

static void take(session *s, tutti_schedule *sched, const char *name,
                 double plan_s)
{
    tutti_schedule_free(s->sched);
    s->sched = NULL;
    tutti_err err = tutti_verify(sched, &s->diag);
    if (err) {
        refuse_err(s, err);
        tutti_schedule_free(sched);
        return;
    }
    s->sched = sched;
    tutti_schedule_info info;
    tutti_schedule_describe(sched, &info);
    printf("{\"planner\":");
    put_text(name);
    printf(",\"proven\":true,\"steps\":%u,\"chunks\":%llu,\"transfers\":%llu,"
           "\"ranks\":%u,\"plan_s\":%.6f}\n",
           info.n_steps, (unsigned long long)info.n_chunks,
           (unsigned long long)info.n_transfers, info.n_ranks, plan_s);
}

static void plan(session *s)
{
    tutti_plan_opts opts = TUTTI_PLAN_OPTS_INIT;
    tutti_schedule *sched = NULL;
    const char *chosen = NULL;
    if (s->n_words < 3) {
        refuse("plan PLANNER SIZE [COLL]");
        return;
    }
    opts.planner = s->words[1];
    opts.size_bytes = count(s, 2, 0);
    if (s->n_words > 3 && tutti_coll_parse(s->words[3], &opts.collective)) {
        refuse("there is no such collective");
        return;
    }
    double start = now_s();
    tutti_err err = tutti_plan(s->net, &opts, &sched, &chosen, &s->diag);
    if (err)
        refuse_err(s, err);
    else
        take(s, sched, chosen, now_s() - start);
}

static char *read_file(const char *path, size_t *len)
{
    FILE *file = fopen(path, "rb");
    char *text = NULL;
    long size = 0;
    if (!file)
        return NULL;
    if (!fseek(file, 0, SEEK_END) && (size = ftell(file)) >= 0 &&
        !fseek(file, 0, SEEK_SET))
        text = malloc((size_t)size + 1);
    if (text)
        *len = fread(text, 1, (size_t)size, file);
    fclose(file);
    return text;
}

static void read_schedule(session *s)
{
    size_t len = 0;
    char *text = s->n_words == 2 ? read_file(s->words[1], &len) : NULL;
    if (!text) {
        refuse("read FILE, which must be there");
        return;
    }
    tutti_schedule *sched = NULL;
    tutti_err err = tutti_schedule_read(text, len, &sched, &s->diag);
    free(text);
    if (err)
        refuse_err(s, err);
    else
        take(s, sched, "file", 0);
}

static void tell_contention(session *s)
{
    tutti_contention_info info;
    tutti_err err = tutti_contention(s->net, s->sched, &info, &s->diag);
    if (err)
        refuse_err(s, err);
    else
        printf("{\"free\":%s,\"overloaded\":%llu}\n",
               info.is_free ? "true" : "false",
               (unsigned long long)info.n_overloaded);
}

static void predict(session *s)
{
    tutti_plan_opts opts = TUTTI_PLAN_OPTS_INIT;
    tutti_schedule_info info;
    double seconds = 0;
    tutti_schedule_describe(s->sched, &info);
    opts.collective = info.collective;
    opts.size_bytes = count(s, 1, 0);
    tutti_err err = tutti_predict(s->net, s->sched, &opts, &seconds, &s->diag);
    if (err)
        refuse_err(s, err);
    else
        printf("{\"time_s\":%.12g}\n", seconds);
}

/* ------------------------------------------------------------ simulator -- */

/* false: no such word, or no number where one belongs. */
static bool read_option(const char *word, tutti_sim_opts *o)
{
    const struct {
        const char *name;
        bool *flag;
        uint32_t *number;
        uint64_t *bytes;
    } table[] = {
        {"as-engine", &o->as_engine, NULL, NULL},
        {"by-step", &o->by_step, NULL, NULL},
        {"packets", &o->is_packet, NULL, NULL},
        {"cut-through", &o->cut_through, NULL, NULL},
        {"message-mode", &o->message_mode, NULL, NULL},
        {"slices", NULL, &o->n_slices, NULL},
        {"window", NULL, &o->window, NULL},
        {"elem", NULL, &o->elem_bytes, NULL},
        {"packet", NULL, &o->packet_bytes, NULL},
        {"flit", NULL, &o->flit_bytes, NULL},
        {"header", NULL, &o->header_bytes, NULL},
        {"front", NULL, NULL, &o->front_bytes},
        {"front-window", NULL, NULL, &o->front_window_bytes},
    };
    const char *value = strchr(word, '=');
    size_t len = value ? (size_t)(value - word) : strlen(word);
    if (!strcmp(word, "lockstep=rank") || !strcmp(word, "lockstep=all")) {
        o->lockstep = word[9] == 'r' ? TUTTI_LOCKSTEP_RANK : TUTTI_LOCKSTEP_ALL;
        return true;
    }
    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        if (strlen(table[i].name) != len || strncmp(table[i].name, word, len))
            continue;
        if (table[i].flag) {
            *table[i].flag = true;
            return !value;
        }
        uint64_t number = value ? strtoull(value + 1, NULL, 10) : 0;
        if (table[i].number)
            *table[i].number = (uint32_t)number;
        else
            *table[i].bytes = number;
        return value != NULL;
    }
    return false;
}

static void simulate(session *s)
{
    tutti_sim_opts opts = {
        .size = sizeof(opts), .size_bytes = count(s, 1, 0), .elem_bytes = 4};
    tutti_sim_result r;
    for (size_t i = 2; i < s->n_words; i++) {
        if (!read_option(s->words[i], &opts)) {
            refuse("there is no such option of sim");
            return;
        }
    }
    tutti_err err = tutti_simulate(s->net, s->sched, &opts, &r, &s->diag);
    if (err)
        refuse_err(s, err);
    else
        printf("{\"time_s\":%.12g,\"max_link_utilisation\":%.6g,"
               "\"mean_link_utilisation\":%.6g,\"messages\":%llu,"
               "\"bytes\":%llu,\"link_bytes\":%llu}\n",
               r.time_s, r.max_link_utilisation, r.mean_link_utilisation,
               (unsigned long long)r.n_messages, (unsigned long long)r.bytes,
               (unsigned long long)r.link_bytes);
}

/* ------------------------------------------------------------- commands -- */

static void list_planners(session *s)
{
    tutti_planner_info row;
    (void)s;
    printf("{\"planners\":[");
    for (size_t i = 0; tutti_planner_at(i, &row); i++) {
        if (i)
            putchar(',');
        put_text(row.name);
    }
    printf("]}\n");
}

static const struct command {
    const char *word;
    void (*answer)(session *s);
    bool needs_net, needs_schedule;
} commands[] = {
    {"net", open_net, false, false},
    {"bound", find_bound, true, false},
    {"optimum", tell_optimum, true, false},
    {"plan", plan, true, false},
    {"read", read_schedule, false, false},
    {"contention", tell_contention, true, true},
    {"predict", predict, true, true},
    {"sim", simulate, true, true},
    {"planners", list_planners, false, false},
};

static void answer(session *s)
{
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        const struct command *c = &commands[i];
        if (strcmp(c->word, s->words[0]) != 0)
            continue;
        if (c->needs_net && !s->net)
            refuse("open a net first");
        else if (c->needs_schedule && !s->sched)
            refuse("plan or read a schedule first");
        else
            c->answer(s);
        return;
    }
    refuse("there is no such command");
}

int main(void)
{
    char line[MAX_LINE];
    session s = {0};
    while (fgets(line, sizeof(line), stdin)) {
        char *rest = NULL;
        s.n_words = 0;
        s.diag = (tutti_diag){0};
        for (char *word = strtok_r(line, " \n", &rest);
             word && s.n_words < MAX_WORDS; word = strtok_r(NULL, " \n", &rest))
            s.words[s.n_words++] = word;
        if (s.n_words)
            answer(&s);
        fflush(stdout);
    }
    tutti_schedule_free(s.sched);
    tutti_topology_free(s.net);
    return 0;
}
