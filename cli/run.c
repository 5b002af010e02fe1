/* SPDX-License-Identifier: BSD-3-Clause
 * run.c - `tutti run`: starts the ranks of a job and ends with it.
 *
 * A job on this machine needs no port: its ranks meet through TUTTI_JOB, a
 * name that no other job has. A job on hosts gets TUTTI_ADDR as well: the
 * first host and a random port, of TUTTI_PORT_RANGE where that is set. Unless
 * it has a secret of the user's, a job gets one that lives as long as it does.
 * Next: run_spawn.c, run_loop.c. */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/ports.h"

/* Ports that a system does not hand out by itself (those begin at 32768). */
enum { FIRST_PORT = 20000, N_PORTS = 12000 };

enum { MOST_RANKS = 4096 };

static uint64_t random_bits(void)
{
    uint64_t bits;
    if (getrandom(&bits, sizeof(bits), 0) != sizeof(bits))
        bits = (uint64_t)(cli_now_s() * 1e9) ^ ((uint64_t)getpid() << 40);
    return bits;
}

/* ---------------------------------------------------------------- hosts -- */

/* A host of -H and how many ranks it takes. */
typedef struct host {
    char *name;
    uint32_t slots;
} host;

typedef struct host_list {
    host *at;
    size_t n;
    uint64_t slots;
    char *text; /* holds the names */
} host_list;

/* "beta:2", "user@beta", "[fe80::1]:2": cuts the count off. */
static bool parse_host(char *text, host *out)
{
    *out = (host){text, 1};
    char *colon = strrchr(text, ':');
    char *bracket = strchr(text, ']');
    if (colon && colon > bracket) {
        char *end;
        unsigned long slots = strtoul(colon + 1, &end, 10);
        if (!colon[1] || *end || slots < 1 || slots > MOST_RANKS)
            return false;
        out->slots = (uint32_t)slots;
        *colon = 0;
    }
    return text[0] && text[0] != '-';
}

static int parse_hosts(const cli_command *self, const char *given,
                       host_list *out)
{
    char *text = out->text = strdup(given);
    out->at = calloc(strlen(given) / 2 + 1, sizeof(*out->at));
    if (!out->at || !text)
        return cli_fail(self, "out of memory");
    char *rest;
    for (char *word = strtok_r(text, ",", &rest); word;
         word = strtok_r(NULL, ",", &rest)) {
        if (!parse_host(word, &out->at[out->n]))
            return cli_usage(self, "'%s' is no host: expected NAME or NAME:N",
                             word);
        out->slots += out->at[out->n++].slots;
    }
    return out->n ? CLI_OK : cli_usage(self, "-H names no host");
}

/* TUTTI_PORT_RANGE, or FIRST_PORT and those that follow. The n_ranks of the
 * host listen at the lowest ports of a range that are free, so the ranks meet
 * above those. 0: no such range. */
static uint32_t choose_port(uint32_t n_ranks)
{
    const char *range = getenv("TUTTI_PORT_RANGE");
    uint16_t first, last;
    if (!range || !range[0])
        return FIRST_PORT + (uint32_t)(random_bits() % N_PORTS);
    if (!tt_ports_parse(range, &first, &last))
        return 0;
    uint32_t lowest = first + n_ranks < last ? first + n_ranks : last;
    return lowest + (uint32_t)(random_bits() % (last - lowest + 1));
}

/* Where the ranks meet: the first host, without its user. */
static int make_address(run_job *job, const host *first, char *buf, size_t cap)
{
    const char *at = strchr(first->name, '@');
    const char *name = at ? at + 1 : first->name;
    uint32_t port = choose_port(job->n < first->slots ? job->n : first->slots);
    char self[256];
    if (!port)
        return cli_usage(job->self,
                         "TUTTI_PORT_RANGE is \"%.60s\"; expected ports such "
                         "as 40000-40100, or one port",
                         getenv("TUTTI_PORT_RANGE"));
    if (!strcmp(name, "localhost") && !gethostname(self, sizeof(self)))
        name = self;
    snprintf(buf, cap, "%s:%u", name, (unsigned)port);
    job->address = buf;
    return CLI_OK;
}

/* ---------------------------------------------------------------- secret -- */

/* Memory that only its user's processes can open, and nobody can change. Its
 * number is beyond those that a shell's script would use. */
static int make_secret(run_job *job)
{
    enum { HIGH = 100 };
    const char *cert = getenv("TUTTI_TLS_CERT");
    if (!TT_HAVE_OPENSSL || getenv("TUTTI_SECRET_FILE") || (cert && *cert))
        return CLI_OK; /* the user has decided; "": none */
    if (!cli_secret_make(job->secret))
        return cli_fail(job->self, "the system has no random bytes");
    const ssize_t len = CLI_SECRET - 1;
    int fd = memfd_create("tutti-secret", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || fchmod(fd, 0600) || write(fd, job->secret, len) != len ||
        fcntl(fd, F_ADD_SEALS,
              F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL))
        return cli_fail(job->self, "no memory for a secret: %s",
                        strerror(errno));
    job->secret_fd = fcntl(fd, F_DUPFD_CLOEXEC, HIGH);
    if (job->secret_fd < 0)
        job->secret_fd = fd;
    else
        close(fd);
    return CLI_OK;
}

/* ----------------------------------------------------------------- tasks -- */

static bool make_tasks(run_job *job, const host_list *hosts, bool prefixes)
{
    job->tasks = calloc(job->n, sizeof(*job->tasks));
    if (!job->tasks)
        return false;
    size_t h = 0;
    uint32_t used = 0;
    for (uint32_t rank = 0; rank < job->n; rank++) {
        run_task *task = &job->tasks[rank];
        *task = (run_task){.rank = rank, .input_fd = -1};
        if (hosts->n) {
            while (used == hosts->at[h].slots) {
                h++;
                used = 0;
            }
            task->host = hosts->at[h].name;
            used++;
        }
        task->out = (run_stream){.fd = -1, .to = &job->sinks[0]};
        task->err = (run_stream){.fd = -1, .to = &job->sinks[1]};
        if (prefixes)
            snprintf(task->err.prefix, sizeof(task->err.prefix), "[%u] ", rank);
        if (!job->is_for_machines)
            memcpy(task->out.prefix, task->err.prefix,
                   sizeof(task->out.prefix));
    }
    return true;
}

/* Two pipes and more for each rank. */
static void raise_file_limit(run_job *job)
{
    getrlimit(RLIMIT_NOFILE, &job->old_files);
    struct rlimit most = job->old_files;
    most.rlim_cur = most.rlim_max;
    setrlimit(RLIMIT_NOFILE, &most);
}

/* From here on signals wait for the loop. */
static void block_signals(run_job *job)
{
    static const int watched[] = {SIGCHLD, SIGINT,  SIGTERM, SIGHUP,
                                  SIGUSR1, SIGUSR2, SIGTSTP};
    sigemptyset(&job->mask);
    for (size_t i = 0; i < sizeof(watched) / sizeof(watched[0]); i++)
        sigaddset(&job->mask, watched[i]);
    sigprocmask(SIG_BLOCK, &job->mask, &job->old_mask);
    signal(SIGPIPE, SIG_IGN);
    signal(SIGCHLD, SIG_DFL); /* an ignored one would lose exit statuses */
}

/* A terminal must be read by its foreground group, so by us and not by rank
 * 0; and ssh's input carries more than rank 0's. */
static bool must_pump(const run_job *job)
{
    if (isatty(STDIN_FILENO))
        return tcgetpgrp(STDIN_FILENO) == getpgrp();
    return job->tasks[0].host != NULL;
}

static void print_json(const run_job *job, int status, double seconds)
{
    printf("{\"status\":%d,\"seconds\":%.3f,\"first_failed\":", status,
           seconds);
    cli_json_number(stdout, job->cause ? (double)job->cause->rank : -1.0);
    printf(",\"ranks\":[");
    for (uint32_t i = 0; i < job->n; i++) {
        const run_task *task = &job->tasks[i];
        printf("%s{\"rank\":%u,\"host\":", i ? "," : "", i);
        cli_json_string(stdout, task->host);
        cli_json_number_member(stdout, "exit",
                               task->was_signalled ? -1.0 : task->code);
        cli_json_number_member(stdout, "signal",
                               task->was_signalled ? task->code : -1.0);
        printf("}");
    }
    printf("]}\n");
}

/* ------------------------------------------------------------------ job -- */

static int start_all(run_job *job)
{
    int status = run_guard_start(job);
    for (uint32_t i = 0; i < job->n && !status; i++) {
        status = run_spawn(job, &job->tasks[i]);
        if (!status)
            continue;
        job->n = job->tasks[i].pid ? i + 1 : i; /* who is to be waited for */
        job->interrupted = SIGTERM; /* what follows is not the ranks' fault */
        for (uint32_t k = 0; k < job->n; k++)
            run_signal(&job->tasks[k], SIGKILL);
    }
    return status;
}

static int exit_status(const run_job *job)
{
    if (job->interrupted)
        return 128 + job->interrupted;
    if (!job->cause)
        return CLI_OK;
    return job->cause->was_signalled ? 128 + job->cause->code
                                     : job->cause->code;
}

static int run(run_job *job, const host_list *hosts, bool prefixes,
               bool is_json)
{
    if (!make_tasks(job, hosts, prefixes))
        return cli_fail(job->self, "out of memory");
    double start_s = cli_now_s();
    raise_file_limit(job);
    block_signals(job);
    job->pumps_stdin = must_pump(job);
    snprintf(job->name, sizeof(job->name), "run-%d-%016llx", (int)getpid(),
             (unsigned long long)random_bits());
    fflush(NULL);
    int status = start_all(job);
    run_watch(job);
    if (!status)
        status = exit_status(job);
    if (is_json)
        print_json(job, status, cli_now_s() - start_s);
    free(job->tasks);
    free(job->sinks[0].data);
    free(job->sinks[1].data);
    return status;
}

bool run_is_address(const char *text)
{
    const char *colon = strrchr(text, ':');
    if (!colon || colon == text)
        return false;
    size_t len = (size_t)(colon - text);
    bool is_host = text[0] == '[' ? len > 2 && colon[-1] == ']'
                                  : !memchr(text, ':', len);
    size_t digits = strspn(colon + 1, "0123456789");
    unsigned long port = strtoul(colon + 1, NULL, 10);
    return is_host && len < 256 && digits <= 5 && !colon[1 + digits] &&
           port >= 1 && port <= UINT16_MAX;
}

/* Of the options those that are for hosts only, or for this machine only. */
static int check_places(const run_job *job, bool has_hosts)
{
    const char *address = job->address;
    const char *rsh = job->rsh;
    if (!has_hosts && (address || rsh))
        return cli_usage(job->self, "%s goes with -H",
                         address ? "--address" : "--rsh");
    if (has_hosts && job->binds)
        return cli_usage(job->self, "--bind is for local ranks: leave out -H");
    if (address && !run_is_address(address))
        return cli_usage(job->self,
                         "--address '%s' is wrong: expected host:port or "
                         "[ipv6]:port, the port from 1 to 65535",
                         address);
    if (rsh && !rsh[strspn(rsh, " \t")])
        return cli_usage(job->self, "--rsh names no program");
    return CLI_OK;
}

/* Says what is wrong with the words of the command line, or completes them. */
static int check(const cli_command *self, const cli_words *words,
                 const host_list *hosts, uint64_t *n)
{
    if (!words->n)
        return cli_usage(self, "give a program to run");
    if (!*n && !hosts->n)
        return cli_usage(self, "say how many ranks: -n N");
    if (!*n)
        *n = hosts->slots;
    if (*n > MOST_RANKS)
        return cli_usage(self, "at most %d ranks", MOST_RANKS);
    if (hosts->n && *n > hosts->slots)
        return cli_usage(
            self, "%llu ranks, but the hosts take only %llu: write HOST:N",
            (unsigned long long)*n, (unsigned long long)hosts->slots);
    return CLI_OK;
}

/* --probe: the ranks measure their network, and plan for it. */
static int ask_for_probe(const cli_command *self)
{
    const char *given = getenv("TUTTI_TOPOLOGY");
    if (given && *given && strcmp(given, "auto"))
        return cli_usage(self,
                         "--probe measures the network, and TUTTI_TOPOLOGY "
                         "says that it is %s: use one of them",
                         given);
    if (setenv("TUTTI_TOPOLOGY", "auto", 1))
        return cli_fail(self, "out of memory");
    return CLI_OK;
}

/* join: of a job that has its own secret; NULL: this is another job. */
static int set_up(run_job *job, bool probes, bool has_secret, const char *join)
{
    int status = probes ? ask_for_probe(job->self) : CLI_OK;
    const char *env = getenv("TUTTI_JOIN");
    if (!status && !join && env && !env[0])
        return cli_usage(job->self,
                         "TUTTI_JOIN is empty: unset it, or say where the "
                         "job is");
    if (!status && join)
        return run_join(job->self, join);
    return !status && has_secret ? make_secret(job) : status;
}

/* `tutti ... --json`: only rank 0 prints, and a program reads it. */
static bool prints_json(const cli_words *words)
{
    const char *name = words->n ? strrchr(words->at[0], '/') : NULL;
    name = name ? name + 1 : words->n ? words->at[0] : "";
    for (int i = 1; i < words->n && !strcmp(name, "tutti"); i++)
        if (!strcmp(words->at[i], "--json"))
            return true;
    return false;
}

/* What the options leave out. */
static int complete(run_job *job, const host_list *hosts, uint64_t n,
                    const cli_words *words, char *address, size_t cap)
{
    job->n = (uint32_t)n;
    job->program = words->at;
    job->is_for_machines = prints_json(words);
    words->at[words->n] = NULL;
    if (!job->rsh)
        job->rsh = "ssh -o BatchMode=yes -o ConnectTimeout=10";
    if (hosts->n && !job->address)
        return make_address(job, &hosts->at[0], address, cap);
    return CLI_OK;
}

int cmd_run(const cli_command *self, int argc, char **argv)
{
    run_job job = {.self = self,
                   .grace_s = 5,
                   .guard_fd = -1,
                   .secret_fd = -1,
                   .sinks = {{.fd = STDOUT_FILENO}, {.fd = STDERR_FILENO}}};
    uint64_t n = 0;
    const char *host_text = NULL;
    const char *join_text = NULL;
    bool prefixes = true;
    bool is_json = false;
    bool probes = false;
    bool has_secret = true;
    const cli_option options[] = {
        {"--ranks", "-n", CLI_COUNT, &n, "N", "how many ranks"},
        {"--hosts", "-H", CLI_TEXT, &host_text, "A:2,B:2",
         "hosts, with the ranks that each takes (1)"},
        {"--address", NULL, CLI_TEXT, &job.address, "HOST:PORT",
         "where the ranks of -H meet, on rank 0's host (the first host, a port "
         "of TUTTI_PORT_RANGE)"},
        {"--rsh", NULL, CLI_TEXT, &job.rsh, "COMMAND",
         "reaches a host, as COMMAND HOST COMMANDLINE (ssh)"},
        {"--bind", NULL, CLI_FLAG, &job.binds, NULL,
         "each local rank to one processor, in turn (not with -H)"},
        {"--probe", NULL, CLI_FLAG, &probes, NULL,
         "measure the network first, and plan for it (TUTTI_TOPOLOGY=auto)"},
        {"--no-secret", NULL, CLI_UNFLAG, &has_secret, NULL,
         "make no secret for the job: whoever reaches a rank may join"},
        {"--no-prefix", NULL, CLI_UNFLAG, &prefixes, NULL,
         "no [rank] before each line; tutti ... --json prints none anyway"},
        {"--grace", NULL, CLI_NUMBER, &job.grace_s, "SECONDS",
         "for the other ranks when one has failed (5)"},
        {"--keep-going", NULL, CLI_FLAG, &job.keeps_going, NULL,
         "who is killed or fails does not end the others; 0 if one ends well"},
        {"--join", NULL, CLI_TEXT, &join_text, "PID",
         "come to the job of that `tutti run`; or address or name of a job"},
        {"--json", NULL, CLI_FLAG, &is_json, NULL,
         "how the ranks ended, as a last line of JSON"},
        {NULL, NULL, CLI_FLAG, NULL, NULL, NULL}};
    cli_words words;
    if (!cli_parse(self, options, true, argc, argv, &words))
        return words.status;
    host_list hosts = {0};
    char address[320];
    int status = host_text ? parse_hosts(self, host_text, &hosts) : CLI_OK;
    if (!status)
        status = check_places(&job, host_text);
    if (!status)
        status = check(self, &words, &hosts, &n);
    if (!status)
        status = set_up(&job, probes, has_secret, join_text);
    if (!status)
        status = complete(&job, &hosts, n, &words, address, sizeof(address));
    if (!status)
        status = run(&job, &hosts, prefixes, is_json);
    free(hosts.at);
    free(hosts.text);
    return status;
}
