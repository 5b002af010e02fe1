/* SPDX-License-Identifier: BSD-3-Clause
 * launch.c - reads rank, size and meeting place from the environment.
 *
 * Every launcher is one row: its two variables, and a function that knows
 * where its ranks can meet when nobody has said so (TUTTI_ADDR, or
 * MASTER_ADDR and MASTER_PORT, which count with every launcher). The first row
 * with a variable that is set decides; half a row is an error, because a
 * silent job of one rank is the worst answer to a typing mistake.
 *
 * Ranks of one host need no port: a name that the launcher gives the job is
 * enough (rendezvous.c). Next: rendezvous.c. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/ifaces.h"
#include "base/log.h"
#include "base/sock.h"
#include "base/str.h"
#include "boot/launch.h"
#include "link/link.h"

typedef struct launcher {
    const char *name, *rank_var, *size_var;
    /* Sets address or job; NULL: this launcher sets MASTER_ADDR. */
    tutti_err (*find_place)(const tt_settings *settings, tt_launch *out,
                            tutti_diag *diag);
} launcher;

/* The variable's text; NULL when it is not set or empty. */
static const char *get_var(const char *name)
{
    const char *text = getenv(name);
    return text && text[0] != '\0' ? text : NULL;
}

static bool parse_u32(const char *text, uint32_t *out)
{
    uint64_t value;
    if (!tt_parse_count(text, &value) || value > UINT32_MAX)
        return false;
    *out = (uint32_t)value;
    return true;
}

static bool get_u32(const char *name, uint32_t *out)
{
    const char *text = get_var(name);
    return text && parse_u32(text, out);
}

/* ------------------------------------------------- where ranks can meet -- */

static tutti_err fail_no_place(const tt_launch *out, tutti_diag *diag)
{
    return tt_fail(diag, TUTTI_ECONFIG,
                   "%s has started this job on several hosts and does not "
                   "tell where rank 0 is: set TUTTI_ADDR to host:port of rank "
                   "0's host",
                   out->source);
}

static tutti_err place_open_mpi(const tt_settings *settings, tt_launch *out,
                                tutti_diag *diag)
{
    (void)settings;
    uint32_t n_local;
    const char *id = get_var("PMIX_NAMESPACE");
    if (!id)
        id = get_var("OMPI_MCA_ess_base_jobid");
    if (!id || (get_u32("OMPI_COMM_WORLD_LOCAL_SIZE", &n_local) &&
                n_local != out->n_ranks))
        return fail_no_place(out, diag);
    snprintf(out->job, sizeof(out->job), "openmpi-%.200s", id);
    return TUTTI_OK;
}

static tutti_err place_mvapich(const tt_settings *settings, tt_launch *out,
                               tutti_diag *diag)
{
    (void)settings;
    return fail_no_place(out, diag);
}

/* The 22nd word of /proc/PID/stat: when the process began. Words are counted
 * after the last ')', because the second one is a name with anything in it. */
static uint64_t start_of(long pid)
{
    char path[64];
    char text[1024];
    snprintf(path, sizeof(path), "/proc/%ld/stat", pid);
    const char *at = strrchr(tt_file_head(path, text, sizeof(text)), ')');
    for (int word = 2; at && word < 22; word++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at, NULL, 10) : 0;
}

/* The process that made our end of PMI_FD is the manager, even when a shell
 * stands between it and us. */
static long manager_pid(int pmi_fd)
{
    struct ucred who;
    socklen_t len = sizeof(who);
    if (getsockopt(pmi_fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 &&
        len == sizeof(who) && who.pid > 0)
        return who.pid;
    return getppid();
}

/* Rank 0 listens before it tells its address, so the port is surely its. */
static tutti_err listen_and_name(const tt_settings *settings, tt_launch *out,
                                 tutti_diag *diag)
{
    tt_iface iface;
    if (tt_ifaces_list(settings->interfaces, &iface, 1) == 0)
        return tt_ifaces_fail(settings->interfaces, diag);
    int fd = tt_link_bind(&iface.addr, (int)out->n_ranks);
    if (fd < 0)
        return tt_fail_errno(diag, TUTTI_EBOOT, -fd, "cannot listen on %s",
                             iface.name);
    tt_addr bound = {.len = sizeof(bound.u)};
    char text[TT_SOCK_TEXT];
    if (getsockname(fd, &bound.u.sa, &bound.len) != 0) {
        int why = errno;
        close(fd);
        return tt_fail_errno(diag, TUTTI_ESYS, why, "getsockname");
    }
    snprintf(out->address, sizeof(out->address), "%s",
             tt_addr_text(&bound, text));
    out->listen_fd = fd;
    return TUTTI_OK;
}

static tutti_err place_mpich(const tt_settings *settings, tt_launch *out,
                             tutti_diag *diag)
{
    uint32_t n_local;
    uint32_t fd = 0;
    bool has_fd = get_u32("PMI_FD", &fd) && fd <= INT32_MAX;
    if (get_u32("MPI_LOCALNRANKS", &n_local) && n_local == out->n_ranks) {
        long pid = manager_pid(has_fd ? (int)fd : -1);
        snprintf(out->job, sizeof(out->job), "mpich-%ld-%llu", pid,
                 (unsigned long long)start_of(pid));
        return TUTTI_OK;
    }
    if (!has_fd)
        return fail_no_place(out, diag);
    if (out->rank == 0) {
        tutti_err err = listen_and_name(settings, out, diag);
        if (err)
            return err;
    }
    return tt_pmi_share((int)fd, out->rank == 0, out->address,
                        sizeof(out->address), diag);
}

/* Ports below the range that systems give to clients, 20000 to 31999. */
static uint16_t slurm_port(const char *job, const char *step)
{
    uint64_t hash = tt_fnv1a(TT_FNV1A_START, job, strlen(job));
    hash = tt_fnv1a(hash, step, strlen(step));
    return (uint16_t)(20000 + hash % 12000);
}

static tutti_err place_slurm(const tt_settings *settings, tt_launch *out,
                             tutti_diag *diag)
{
    (void)settings;
    const char *job = get_var("SLURM_JOB_ID");
    const char *step = get_var("SLURM_STEP_ID");
    const char *list = get_var("SLURM_STEP_NODELIST");
    uint32_t n_nodes = 0;
    if (!list)
        list = get_var("SLURM_JOB_NODELIST");
    if (!job || !step)
        return fail_no_place(out, diag);
    snprintf(out->job, sizeof(out->job), "slurm-%.100s.%.100s", job, step);
    if (!get_u32("SLURM_STEP_NUM_NODES", &n_nodes))
        get_u32("SLURM_NNODES", &n_nodes);
    if (n_nodes == 1)
        return TUTTI_OK;
    char host[200];
    if (!list || !tt_slurm_first_host(list, host, sizeof(host)))
        return tt_fail(diag, TUTTI_ECONFIG,
                       "SLURM_JOB_NODELIST \"%.200s\" does not begin with a "
                       "host's name; set TUTTI_ADDR to host:port of rank 0",
                       list ? list : "");
    snprintf(out->address, sizeof(out->address), "%s:%u", host,
             slurm_port(job, step));
    return TUTTI_OK;
}

static const launcher launchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", NULL},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     place_open_mpi},
    {"MVAPICH", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", place_mvapich},
    {"MPICH", "PMI_RANK", "PMI_SIZE", place_mpich},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", place_slurm},
};

/* ------------------------------------------------------ rank and size -- */

static tutti_err set_ranks(const char *rank_var, const char *rank_text,
                           const char *size_var, const char *size_text,
                           tt_launch *out, tutti_diag *diag)
{
    if (!rank_text || !size_text)
        return tt_fail(diag, TUTTI_ECONFIG,
                       "%s is \"%.40s\", but %s is not set; both are needed",
                       rank_text ? rank_var : size_var,
                       rank_text ? rank_text : size_text,
                       rank_text ? size_var : rank_var);
    if (!parse_u32(size_text, &out->n_ranks) || out->n_ranks == 0 ||
        out->n_ranks > UINT16_MAX)
        return tt_fail(diag, TUTTI_ECONFIG,
                       "%s is \"%.40s\"; expected a number of ranks, 1 to %d",
                       size_var, size_text, UINT16_MAX);
    if (!parse_u32(rank_text, &out->rank) || out->rank >= out->n_ranks)
        return tt_fail(diag, TUTTI_ECONFIG,
                       "%s is \"%.40s\"; expected a rank, 0 to %u, because %s "
                       "is %u",
                       rank_var, rank_text, out->n_ranks - 1, size_var,
                       out->n_ranks);
    return TUTTI_OK;
}

/* Slurm numbers from here on what is no step of srun's: batch scripts, and the
 * shells of `salloc`, which have the variables of a first rank of many. */
static const uint32_t no_slurm_step = 0xfffffff0;

/* Without a step's id this is a batch script, not a task of srun. */
static bool is_slurm_task(void)
{
    const char *step = get_var("SLURM_STEP_ID");
    uint32_t id;
    return get_var("SLURM_PROCID") && step &&
           (!parse_u32(step, &id) || id < no_slurm_step);
}

/* srun with PMI-2 sets PMI_RANK too; its own variables then say the same and
 * more. */
static bool is_present(const launcher *l)
{
    if (strcmp(l->name, "Slurm") == 0)
        return is_slurm_task();
    const char *rank = get_var(l->rank_var);
    const char *size = get_var(l->size_var);
    if (strcmp(l->name, "MPICH") == 0 && is_slurm_task() && rank && size) {
        const char *procid = get_var("SLURM_PROCID");
        const char *ntasks = get_var("SLURM_NTASKS");
        return strcmp(rank, procid) != 0 || !ntasks ||
               strcmp(size, ntasks) != 0;
    }
    return rank || size;
}

static const launcher *find_launcher(void)
{
    size_t n = sizeof(launchers) / sizeof(launchers[0]);
    for (size_t i = 0; i < n; i++) {
        if (is_present(&launchers[i]))
            return &launchers[i];
    }
    return NULL;
}

/* Sets rank and size; *found stays NULL when no launcher's row was used. */
static tutti_err find_ranks(const tutti_comm_opts *opts,
                            const tt_settings *settings, tt_launch *out,
                            const launcher **found, tutti_diag *diag)
{
    if (opts && opts->n_ranks != 0) {
        out->source = "tutti_comm_opts";
        if (opts->n_ranks < 0 || opts->rank < 0 ||
            opts->rank >= opts->n_ranks || opts->n_ranks > UINT16_MAX)
            return tt_fail(diag, TUTTI_ECONFIG,
                           "tutti_comm_opts say rank %d of %d ranks",
                           opts->rank, opts->n_ranks);
        out->rank = (uint32_t)opts->rank;
        out->n_ranks = (uint32_t)opts->n_ranks;
        return TUTTI_OK;
    }
    if (settings->rank[0] != '\0' || settings->n_ranks[0] != '\0') {
        out->source = "TUTTI_RANK";
        return set_ranks(
            "TUTTI_RANK", settings->rank[0] ? settings->rank : NULL,
            "TUTTI_SIZE", settings->n_ranks[0] ? settings->n_ranks : NULL, out,
            diag);
    }
    const launcher *l = find_launcher();
    if (l) {
        *found = l;
        out->source = l->name;
        return set_ranks(l->rank_var, get_var(l->rank_var), l->size_var,
                         get_var(l->size_var), out, diag);
    }
    if (get_var("PMIX_RANK"))
        return tt_fail(diag, TUTTI_ECONFIG,
                       "PMIX_RANK is \"%.40s\", but no variable tells the "
                       "number of ranks; set TUTTI_RANK, TUTTI_SIZE and "
                       "TUTTI_ADDR",
                       get_var("PMIX_RANK"));
    out->n_ranks = 1;
    out->source = "no launcher";
    return TUTTI_OK;
}

/* -------------------------------------------------------------- address -- */

static tutti_err check_address(const char *from, const char *text,
                               tt_launch *out, tutti_diag *diag)
{
    char host[TT_SOCK_HOST];
    uint16_t port;
    if (!tt_hostport_split(text, host, &port) ||
        strlen(text) >= sizeof(out->address))
        return tt_fail(diag, TUTTI_ECONFIG,
                       "%s is \"%.200s\"; expected host:port or [ipv6]:port, "
                       "the port from 1 to 65535",
                       from, text);
    snprintf(out->address, sizeof(out->address), "%s", text);
    return TUTTI_OK;
}

/* The agent of torchrun listens at MASTER_PORT itself, when it says so. */
static tutti_err use_master(const char *host, tt_launch *out, tutti_diag *diag)
{
    uint32_t port = 0;
    const char *text = get_var("MASTER_PORT");
    if (!text)
        return tt_fail(diag, TUTTI_ECONFIG,
                       "MASTER_ADDR is \"%.200s\", but MASTER_PORT is not set",
                       host);
    const char *agent = get_var("TORCHELASTIC_USE_AGENT_STORE");
    bool is_agents = agent && strcasecmp(agent, "true") == 0;
    if (!parse_u32(text, &port) || port == 0 || port + is_agents > UINT16_MAX)
        return tt_fail(diag, TUTTI_ECONFIG,
                       "MASTER_PORT is \"%.40s\"; expected a port, 1 to %d",
                       text, UINT16_MAX - is_agents);
    char address[TT_SETTING_TEXT + 16];
    bool is_v6 = strchr(host, ':') && host[0] != '[';
    snprintf(address, sizeof(address), is_v6 ? "[%.240s]:%u" : "%.240s:%u",
             host, port + is_agents);
    return check_address("MASTER_ADDR:MASTER_PORT", address, out, diag);
}

static tutti_err find_address(const tutti_comm_opts *opts,
                              const tt_settings *settings, const launcher *l,
                              tt_launch *out, tutti_diag *diag)
{
    if (opts && opts->address && opts->address[0] != '\0')
        return check_address("the address of tutti_comm_opts", opts->address,
                             out, diag);
    if (settings->address[0] != '\0')
        return check_address("TUTTI_ADDR", settings->address, out, diag);
    const char *master = get_var("MASTER_ADDR");
    if (master)
        return use_master(master, out, diag);
    if (!l || out->job[0] != '\0')
        return TUTTI_OK; /* the job's name is enough, or nothing is known */
    if (l->find_place)
        return l->find_place(settings, out, diag);
    return tt_fail(diag, TUTTI_ECONFIG,
                   "%s is set, but neither MASTER_ADDR nor TUTTI_ADDR is: set "
                   "TUTTI_ADDR to host:port of rank 0's host",
                   l->rank_var);
}

/* A descriptor that is no listener (closed on the way here, say) is no
 * mistake of the user's: rank 0 then listens by itself. */
static tutti_err take_listener(const tt_settings *settings, tt_launch *out,
                               tutti_diag *diag)
{
    uint32_t fd = 0;
    if (!parse_u32(settings->listen_fd, &fd) || fd < 3 || fd > INT32_MAX)
        return tt_fail(diag, TUTTI_ECONFIG,
                       "TUTTI_LISTEN_FD is \"%.40s\"; expected the number of "
                       "an open descriptor",
                       settings->listen_fd);
    int is_listening = 0;
    socklen_t len = sizeof(is_listening);
    char host[TT_SOCK_HOST];
    uint16_t port = 0;
    tt_hostport_split(out->address, host, &port);
    if (getsockopt((int)fd, SOL_SOCKET, SO_ACCEPTCONN, &is_listening, &len) !=
            0 ||
        !is_listening || tt_sock_port((int)fd) != port) {
        TT_DEBUG("descriptor %u of TUTTI_LISTEN_FD does not listen at %s", fd,
                 out->address);
        return TUTTI_OK;
    }
    fcntl((int)fd, F_SETFD, FD_CLOEXEC);
    out->listen_fd = (int)fd;
    return TUTTI_OK;
}

tutti_err tt_launch_detect(const tutti_comm_opts *opts,
                           const tt_settings *settings, tt_launch *out,
                           tutti_diag *diag)
{
    *out = (tt_launch){.source = ""};
    const launcher *found = NULL;
    tutti_err err = find_ranks(opts, settings, out, &found, diag);
    if (err || out->n_ranks == 1)
        return err;
    if (opts && opts->store) {
        out->store = opts->store;
        return TUTTI_OK;
    }
    snprintf(out->job, sizeof(out->job), "%s", settings->job);
    err = find_address(opts, settings, found, out, diag);
    if (err)
        return err;
    if (out->rank == 0 && !out->listen_fd && settings->listen_fd[0] != '\0')
        return take_listener(settings, out, diag);
    return TUTTI_OK;
}
