/* SPDX-License-Identifier: BSD-3-Clause
 * launch_test.c - rank, size and meeting place from every launcher's
 * variables, and the sentence for every mistake in them. */
#include "support/tap.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sock.h"
#include "boot/launch.h"
#include "link/link.h"

static const char *const variables[] = {"RANK",
                                        "WORLD_SIZE",
                                        "MASTER_ADDR",
                                        "MASTER_PORT",
                                        "TORCHELASTIC_USE_AGENT_STORE",
                                        "OMPI_COMM_WORLD_RANK",
                                        "OMPI_COMM_WORLD_SIZE",
                                        "OMPI_COMM_WORLD_LOCAL_SIZE",
                                        "PMIX_NAMESPACE",
                                        "PMIX_RANK",
                                        "OMPI_MCA_ess_base_jobid",
                                        "MV2_COMM_WORLD_RANK",
                                        "MV2_COMM_WORLD_SIZE",
                                        "PMI_RANK",
                                        "PMI_SIZE",
                                        "PMI_FD",
                                        "MPI_LOCALNRANKS",
                                        "SLURM_PROCID",
                                        "SLURM_NTASKS",
                                        "SLURM_JOB_ID",
                                        "SLURM_STEP_ID",
                                        "SLURM_JOB_NODELIST",
                                        "SLURM_STEP_NODELIST",
                                        "SLURM_NNODES",
                                        "SLURM_STEP_NUM_NODES"};

/* One environment and what it means. TUTTI_* come through settings. */
typedef struct launch_case {
    const char *env; /* "A=1 B=2" */
    tutti_err err;
    uint32_t rank, n_ranks;
    const char *address;
    const char *source; /* or, for an error, what the text must contain */
    const char *job;    /* what it begins with; NULL: "" */
} launch_case;

static const launch_case cases[] = {
    {"", TUTTI_OK, 0, 1, "", "no launcher", NULL},
    {"TUTTI_RANK=2 TUTTI_SIZE=4 TUTTI_ADDR=h:1 RANK=9", TUTTI_OK, 2, 4, "h:1",
     "TUTTI_RANK", NULL},
    {"TUTTI_RANK=2 TUTTI_SIZE=4 TUTTI_JOB=x", TUTTI_OK, 2, 4, "", "TUTTI_RANK",
     "x"},
    {"TUTTI_RANK=2 TUTTI_SIZE=4 MASTER_ADDR=m MASTER_PORT=7", TUTTI_OK, 2, 4,
     "m:7", "TUTTI_RANK", NULL},
    {"TUTTI_RANK=2", TUTTI_ECONFIG, 0, 0, "", "TUTTI_SIZE is not set", NULL},
    {"TUTTI_SIZE=2", TUTTI_ECONFIG, 0, 0, "", "TUTTI_RANK is not set", NULL},
    {"TUTTI_RANK=x TUTTI_SIZE=4", TUTTI_ECONFIG, 0, 0, "",
     "TUTTI_RANK is \"x\"", NULL},
    {"TUTTI_RANK=-1 TUTTI_SIZE=4", TUTTI_ECONFIG, 0, 0, "",
     "TUTTI_RANK is \"-1\"", NULL},
    {"TUTTI_RANK=4 TUTTI_SIZE=4", TUTTI_ECONFIG, 0, 0, "",
     "expected a rank, 0 to 3", NULL},
    {"TUTTI_RANK=0 TUTTI_SIZE=0", TUTTI_ECONFIG, 0, 0, "",
     "TUTTI_SIZE is \"0\"", NULL},
    {"TUTTI_RANK=0 TUTTI_SIZE=99999999999", TUTTI_ECONFIG, 0, 0, "",
     "TUTTI_SIZE is", NULL},
    {"TUTTI_RANK=0 TUTTI_SIZE=2 TUTTI_ADDR=h", TUTTI_ECONFIG, 0, 0, "",
     "TUTTI_ADDR is \"h\"", NULL},
    {"TUTTI_RANK=0 TUTTI_SIZE=2 TUTTI_ADDR=::1:5", TUTTI_ECONFIG, 0, 0, "",
     "[ipv6]:port", NULL},
    {"TUTTI_RANK=0 TUTTI_SIZE=2 TUTTI_ADDR=h:65536", TUTTI_ECONFIG, 0, 0, "",
     "1 to 65535", NULL},
    {"TUTTI_RANK=0 TUTTI_SIZE=2 TUTTI_ADDR=[::1]:5", TUTTI_OK, 0, 2, "[::1]:5",
     "TUTTI_RANK", NULL},
    {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=m MASTER_PORT=29500", TUTTI_OK, 1, 2,
     "m:29500", "torchrun", NULL},
    {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=m MASTER_PORT=29500 "
     "TORCHELASTIC_USE_AGENT_STORE=True",
     TUTTI_OK, 1, 2, "m:29501", "torchrun", NULL},
    {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=fd00::1 MASTER_PORT=5", TUTTI_OK, 1, 2,
     "[fd00::1]:5", "torchrun", NULL},
    {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=m TUTTI_ADDR=t:5", TUTTI_OK, 1, 2, "t:5",
     "torchrun", NULL},
    {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=m", TUTTI_ECONFIG, 0, 0, "",
     "MASTER_PORT is not set", NULL},
    {"RANK=1 WORLD_SIZE=2 MASTER_ADDR=m MASTER_PORT=0", TUTTI_ECONFIG, 0, 0, "",
     "MASTER_PORT is \"0\"", NULL},
    {"RANK=1 WORLD_SIZE=2", TUTTI_ECONFIG, 0, 0, "", "MASTER_ADDR", NULL},
    {"RANK=1 WORLD_SIZE=2 TUTTI_JOB=j", TUTTI_OK, 1, 2, "", "torchrun", "j"},
    {"RANK=0 WORLD_SIZE=1", TUTTI_OK, 0, 1, "", "torchrun", NULL},
    {"RANK=1", TUTTI_ECONFIG, 0, 0, "", "WORLD_SIZE is not set", NULL},
    {"WORLD_SIZE=2", TUTTI_ECONFIG, 0, 0, "", "RANK is not set", NULL},
    {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 "
     "OMPI_COMM_WORLD_LOCAL_SIZE=2 PMIX_NAMESPACE=77 PMIX_RANK=1",
     TUTTI_OK, 1, 2, "", "Open MPI", "openmpi-77"},
    {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 "
     "OMPI_COMM_WORLD_LOCAL_SIZE=2 OMPI_MCA_ess_base_jobid=78",
     TUTTI_OK, 1, 2, "", "Open MPI", "openmpi-78"},
    {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 "
     "OMPI_COMM_WORLD_LOCAL_SIZE=1 PMIX_NAMESPACE=77",
     TUTTI_ECONFIG, 0, 0, "", "TUTTI_ADDR", NULL},
    {"OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2 "
     "OMPI_COMM_WORLD_LOCAL_SIZE=1 MASTER_ADDR=m MASTER_PORT=9",
     TUTTI_OK, 1, 2, "m:9", "Open MPI", NULL},
    {"MV2_COMM_WORLD_RANK=1 MV2_COMM_WORLD_SIZE=2 TUTTI_ADDR=a:1", TUTTI_OK, 1,
     2, "a:1", "MVAPICH", NULL},
    {"MV2_COMM_WORLD_RANK=1 MV2_COMM_WORLD_SIZE=2", TUTTI_ECONFIG, 0, 0, "",
     "TUTTI_ADDR", NULL},
    {"PMI_RANK=1 PMI_SIZE=2 MPI_LOCALNRANKS=2", TUTTI_OK, 1, 2, "", "MPICH",
     "mpich-"},
    {"PMI_RANK=1 PMI_SIZE=2", TUTTI_ECONFIG, 0, 0, "", "TUTTI_ADDR", NULL},
    {"PMIX_RANK=1", TUTTI_ECONFIG, 0, 0, "", "PMIX_RANK", NULL},
    {"SLURM_PROCID=1 SLURM_NTASKS=2", TUTTI_OK, 0, 1, "", "no launcher", NULL},
    /* A batch script, and a shell of salloc. */
    {"SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_JOB_ID=5 SLURM_JOB_NODELIST=n[2-3] "
     "SLURM_NNODES=2",
     TUTTI_OK, 0, 1, "", "no launcher", NULL},
    {"SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_JOB_ID=5 SLURM_STEP_ID=4294967290 "
     "SLURM_JOB_NODELIST=n[2-3] SLURM_NNODES=2",
     TUTTI_OK, 0, 1, "", "no launcher", NULL},
    {"SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_JOB_ID=5 SLURM_STEP_ID=4294967279 "
     "SLURM_JOB_NODELIST=n SLURM_STEP_NUM_NODES=1",
     TUTTI_OK, 1, 2, "", "Slurm", "slurm-5.4294967279"},
    {"SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_JOB_ID=5 SLURM_STEP_ID=0 "
     "SLURM_JOB_NODELIST=n SLURM_STEP_NUM_NODES=1",
     TUTTI_OK, 1, 2, "", "Slurm", "slurm-5.0"},
    {"SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_JOB_ID=5 SLURM_STEP_ID=0 "
     "SLURM_JOB_NODELIST=n[2-3] SLURM_NNODES=2 PMI_RANK=1 PMI_SIZE=2 PMI_FD=9",
     TUTTI_OK, 1, 2, "n2:", "Slurm", "slurm-5.0"},
    {"SLURM_PROCID=1 SLURM_NTASKS=2 SLURM_JOB_ID=5 SLURM_STEP_ID=0 "
     "SLURM_JOB_NODELIST=[] SLURM_NNODES=2",
     TUTTI_ECONFIG, 0, 0, "", "SLURM_JOB_NODELIST", NULL},
    {"SLURM_PROCID=1 SLURM_STEP_ID=0", TUTTI_ECONFIG, 0, 0, "",
     "SLURM_NTASKS is not set", NULL},
};

static void set_member(tt_settings *settings, const char *name,
                       const char *value)
{
    char *to = NULL;
    if (strcmp(name, "TUTTI_RANK") == 0)
        to = settings->rank;
    else if (strcmp(name, "TUTTI_SIZE") == 0)
        to = settings->n_ranks;
    else if (strcmp(name, "TUTTI_ADDR") == 0)
        to = settings->address;
    else if (strcmp(name, "TUTTI_JOB") == 0)
        to = settings->job;
    else
        setenv(name, value, 1);
    if (to)
        snprintf(to, TT_SETTING_TEXT, "%s", value);
}

static void set_env(const char *env, tt_settings *settings)
{
    char copy[512];
    char *rest = NULL;
    memset(settings, 0, sizeof(*settings));
    for (size_t i = 0; i < sizeof(variables) / sizeof(variables[0]); i++)
        unsetenv(variables[i]);
    snprintf(copy, sizeof(copy), "%s", env);
    for (char *w = strtok_r(copy, " ", &rest); w;
         w = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(w, '=');
        assert_non_null(equals);
        *equals = '\0';
        set_member(settings, w, equals + 1);
    }
}

static void check_case(const launch_case *c)
{
    tt_settings settings;
    tt_launch got;
    tutti_diag diag;
    set_env(c->env, &settings);
    tutti_err err = tt_launch_detect(NULL, &settings, &got, &diag);
    if (err != c->err)
        fail_msg("\"%s\": %s, expected %s (%s)", c->env, tutti_errname(err),
                 tutti_errname(c->err), err ? diag.text : "");
    if (err) {
        if (!strstr(diag.text, c->source))
            fail_msg("\"%s\": \"%s\" is not in \"%s\"", c->env, c->source,
                     diag.text);
        return;
    }
    assert_int_equal(got.rank, c->rank);
    assert_int_equal(got.n_ranks, c->n_ranks);
    assert_string_equal(got.source, c->source);
    size_t n = strlen(c->address);
    got.address[n + (n == 0 || c->address[n - 1] != ':')] = '\0';
    if (n > 0 && c->address[n - 1] == ':')
        got.address[n] = '\0';
    assert_string_equal(got.address, c->address);
    const char *job = c->job ? c->job : "";
    assert_memory_equal(got.job, job, strlen(job) + !c->job);
}

static void test_launchers(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        check_case(&cases[i]);
}

static void test_options(void **state)
{
    (void)state;
    tt_settings settings;
    tt_launch got;
    tutti_diag diag;
    set_env("TUTTI_RANK=1 TUTTI_SIZE=2 TUTTI_ADDR=a:1", &settings);
    tutti_comm_opts opts = TUTTI_COMM_OPTS_INIT;
    assert_int_equal(tt_launch_detect(&opts, &settings, &got, &diag), 0);
    assert_int_equal(got.rank, 1);
    assert_string_equal(got.address, "a:1");
    opts.address = "b:2";
    assert_int_equal(tt_launch_detect(&opts, &settings, &got, &diag), 0);
    assert_int_equal(got.rank, 1);
    assert_string_equal(got.address, "b:2");
    opts.n_ranks = 5;
    opts.rank = 4;
    assert_int_equal(tt_launch_detect(&opts, &settings, &got, &diag), 0);
    assert_int_equal(got.rank, 4);
    assert_int_equal(got.n_ranks, 5);
    opts.rank = 5;
    assert_int_equal(tt_launch_detect(&opts, &settings, &got, &diag),
                     TUTTI_ECONFIG);
    opts.rank = 0;
    opts.address = "b";
    assert_int_equal(tt_launch_detect(&opts, &settings, &got, &diag),
                     TUTTI_ECONFIG);
}

static void test_listen_fd(void **state)
{
    (void)state;
    tt_settings settings;
    tt_launch got;
    tutti_diag diag;
    tt_addr addr;
    assert_true(tt_addr_numeric("127.0.0.1", 0, &addr));
    int fd = tt_link_bind(&addr, 8);
    assert_true(fd >= 0);
    uint16_t port = tt_sock_port(fd);
    char env[128];
    snprintf(env, sizeof(env),
             "TUTTI_RANK=0 TUTTI_SIZE=2 TUTTI_ADDR=127.0.0.1:%u", port);
    set_env(env, &settings);
    snprintf(settings.listen_fd, sizeof(settings.listen_fd), "%d", fd);
    assert_int_equal(tt_launch_detect(NULL, &settings, &got, &diag), 0);
    assert_int_equal(got.listen_fd, fd);
    snprintf(settings.rank, sizeof(settings.rank), "1");
    assert_int_equal(tt_launch_detect(NULL, &settings, &got, &diag), 0);
    assert_int_equal(got.listen_fd, 0);
    close(fd);
    snprintf(settings.rank, sizeof(settings.rank), "0");
    assert_int_equal(tt_launch_detect(NULL, &settings, &got, &diag), 0);
    assert_int_equal(got.listen_fd, 0); /* it listens no more */
    snprintf(settings.listen_fd, sizeof(settings.listen_fd), "stdin");
    assert_int_equal(tt_launch_detect(NULL, &settings, &got, &diag),
                     TUTTI_ECONFIG);
}

static void test_slurm_lists(void **state)
{
    (void)state;
    static const struct {
        const char *list, *host;
    } lists[] = {
        {"a", "a"},
        {"a,b", "a"},
        {"node[01-04,7]", "node01"},
        {"node[7],x", "node7"},
        {"r[1-2]n[03,05]-ib,z", "r1n03-ib"},
        {"gpu[0010]", "gpu0010"},
    };
    static const char *const bad[] = {"",     ",a",    "a[", "a[]",
                                      "a[x]", "a[1-2", "a]"};
    char host[32];
    for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
        assert_true(tt_slurm_first_host(lists[i].list, host, sizeof(host)));
        assert_string_equal(host, lists[i].host);
    }
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(tt_slurm_first_host(bad[i], host, sizeof(host)));
    assert_true(tt_slurm_first_host("abc", host, 4));
    assert_false(tt_slurm_first_host("abcd", host, 4));
}

/* A process manager of a few lines, on the other end of a socket pair. */
static void manage(int fd)
{
    static const struct {
        const char *question, *answer;
    } talk[] = {
        {"cmd=init ", "cmd=response_to_init rc=0\n"},
        {"cmd=get_my_kvsname", "cmd=my_kvsname kvsname=kvs_1 rc=0\n"},
        {"cmd=barrier_in", "cmd=barrier_out rc=0\n"},
        {"cmd=get kvsname=kvs_1 key=tutti-address",
         "cmd=get_result rc=0 msg=success value=10.0.0.1:77\n"},
        {"cmd=finalize", "cmd=finalize_ack rc=0\n"},
    };
    for (size_t i = 0; i < sizeof(talk) / sizeof(talk[0]); i++) {
        char line[256] = "";
        ssize_t n = read(fd, line, sizeof(line) - 1);
        if (n <= 0 ||
            strncmp(line, talk[i].question, strlen(talk[i].question)) != 0)
            _exit(1);
        if (write(fd, talk[i].answer, strlen(talk[i].answer)) < 0)
            _exit(1);
    }
    _exit(0);
}

static void test_pmi(void **state)
{
    (void)state;
    int pair[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    pid_t pid = fork();
    if (pid == 0)
        manage(pair[1]);
    close(pair[1]);
    char text[64] = "";
    tutti_diag diag;
    assert_int_equal(tt_pmi_share(pair[0], false, text, sizeof(text), &diag),
                     TUTTI_OK);
    assert_string_equal(text, "10.0.0.1:77");
    int status = -1;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    /* Nobody there any more. */
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(tt_pmi_share(pair[0], true, text, sizeof(text), &diag),
                     TUTTI_EBOOT);
    close(pair[0]);
}

static void test_host_id(void **state)
{
    (void)state;
    tt_host_id a;
    tt_host_id b;
    memset(&a, 0xff, sizeof(a));
    memset(&b, 0, sizeof(b));
    tt_host_id_get(&a);
    tt_host_id_get(&b);
    assert_memory_equal(&a, &b, sizeof(a));
    assert_int_equal(a.uid, geteuid());
    static const uint8_t none[16];
    assert_memory_not_equal(a.boot_id, none, 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_launchers), cmocka_unit_test(test_options),
        cmocka_unit_test(test_listen_fd), cmocka_unit_test(test_slurm_lists),
        cmocka_unit_test(test_pmi),       cmocka_unit_test(test_host_id),
    };
    return TT_RUN_TAP(tests);
}
