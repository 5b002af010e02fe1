/* SPDX-License-Identifier: BSD-3-Clause
 * scale.c - seconds and memory of one case, phase by phase.
 *
 *     scale SPEC plan PLANNER [verify] [sim]
 *     scale SPEC bound GAP
 *
 * Opens the network, plans a 64 MiB all-reduce, proves it, simulates it in the
 * packet model with one slice per chunk; or finds the optimum. Prints one line
 * of JSON: the seconds of each phase (processor time of this thread and by the
 * clock), and the most memory that the process had. bench/scale/run calls it,
 * once per run, so that the memory is that of the case. */
#define TUTTI_UNSTABLE 1
#include <tutti.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static const uint64_t vector_bytes = UINT64_C(64) << 20;

typedef struct watch {
    double clock_s, cpu_s;
} watch;

static double seconds(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static watch start(void)
{
    return (watch){seconds(CLOCK_MONOTONIC), seconds(CLOCK_PROCESS_CPUTIME_ID)};
}

static void put_phase(const char *name, watch begin)
{
    watch end = start();
    printf(",\"%s_s\":%.6f,\"%s_cpu_s\":%.6f", name,
           end.clock_s - begin.clock_s, name, end.cpu_s - begin.cpu_s);
}

static int fail(const char *doing, tutti_err err, const tutti_diag *diag)
{
    fprintf(stderr, "scale: %s: %s\n", doing,
            diag->text[0] ? diag->text : tutti_strerror(err));
    return 1;
}

static tutti_err plan(const tutti_topology *net, const char *planner,
                      tutti_schedule **sched, tutti_diag *diag)
{
    tutti_plan_opts opts = TUTTI_PLAN_OPTS_INIT;
    opts.size_bytes = vector_bytes;
    opts.planner = planner;
    watch begin = start();
    tutti_err err = tutti_plan(net, &opts, sched, NULL, diag);
    if (err)
        return err;
    put_phase("plan", begin);
    tutti_schedule_info info;
    tutti_schedule_describe(*sched, &info);
    printf(",\"steps\":%u,\"transfers\":%llu", info.n_steps,
           (unsigned long long)info.n_transfers);
    return TUTTI_OK;
}

static tutti_err simulate(const tutti_topology *net,
                          const tutti_schedule *sched, tutti_diag *diag)
{
    tutti_sim_opts opts = {.size = sizeof(opts),
                           .size_bytes = vector_bytes,
                           .elem_bytes = 4,
                           .is_packet = true,
                           .n_slices = 1};
    tutti_sim_result result;
    watch begin = start();
    tutti_err err = tutti_simulate(net, sched, &opts, &result, diag);
    if (err)
        return err;
    put_phase("sim", begin);
    printf(",\"predicted_s\":%.9g", result.time_s);
    return TUTTI_OK;
}

static int work(const tutti_topology *net, char **words, int n_words)
{
    tutti_diag diag = {0};
    tutti_schedule *sched = NULL;
    tutti_err err = plan(net, words[0], &sched, &diag);
    if (err)
        return fail("cannot plan", err, &diag);
    for (int i = 1; i < n_words && !err; i++) {
        watch begin = start();
        if (!strcmp(words[i], "sim")) {
            err = simulate(net, sched, &diag);
        } else {
            err = tutti_verify(sched, &diag);
            put_phase("verify", begin);
        }
        if (err)
            fail(words[i], err, &diag);
    }
    tutti_schedule_free(sched);
    return err ? 1 : 0;
}

static int find_bound(const tutti_topology *net, const char *gap)
{
    tutti_bound_opts opts = TUTTI_BOUND_OPTS_INIT;
    tutti_bound_info info;
    tutti_diag diag = {0};
    opts.gap = strtod(gap, NULL);
    watch begin = start();
    tutti_err err = tutti_bound(net, &opts, &info, &diag);
    if (err)
        return fail("cannot find the optimum", err, &diag);
    put_phase("bound", begin);
    printf(",\"exact\":%s,\"gap\":%.4g", info.is_exact ? "true" : "false",
           info.gap < 1e9 ? info.gap : -1.0);
    return 0;
}

int main(int argc, char **argv)
{
    bool is_bound = argc == 4 && !strcmp(argv[2], "bound");
    if (!is_bound && (argc < 4 || strcmp(argv[2], "plan") != 0)) {
        fprintf(stderr, "usage: scale SPEC plan PLANNER [verify] [sim]\n"
                        "       scale SPEC bound GAP\n");
        return 2;
    }
    tutti_topology *net = NULL;
    tutti_diag diag = {0};
    watch begin = start();
    tutti_err err = tutti_topology_open(argv[1], &net, &diag);
    if (err)
        return fail(argv[1], err, &diag);
    printf("{\"ranks\":%u", tutti_topology_ranks(net));
    put_phase("open", begin);
    int status = is_bound ? find_bound(net, argv[3])
                          : work(net, argv + 3, argc - 3);
    tutti_topology_free(net);
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    printf(",\"peak_rss_bytes\":%llu}\n",
           (unsigned long long)use.ru_maxrss * 1024);
    return status;
}
