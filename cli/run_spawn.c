/* SPDX-License-Identifier: BSD-3-Clause
 * run_spawn.c - starts one rank, here or on a host, and reaches it later.
 *
 * Here     A child in a process group of its own, so that signals reach its
 *          children too; PR_SET_PDEATHSIG and the guard see to it that
 *          nothing survives the launcher.
 * On a host  The child is `ssh HOST COMMAND` (or --rsh). COMMAND starts a
 *            shell.
 *          It reads our end of ssh's standard input, a line at a time:
 *          NAME=VALUE for each variable TUTTI_*, as `printf %b` wants it; an
 *          empty line; the job's secret, or an empty line. So nobody sees them
 *          in a list of processes. Then it starts the program and, beside it, a
 *          loop that reads on:
 *              s15        send signal 15 to the whole process group
 *              q0123...   a question for the rank: what is the job at?
 *              d\0101...  bytes for the program's standard input
 *              e          end of its standard input
 *          and kills the group when the line breaks: when we die, nothing
 *          stays behind there either.
 * Secret   A rank finds the job's secret as it finds one of its user's: by
 *          TUTTI_SECRET_FILE, which names a descriptor that it inherits. Here
 *          that is memory, on a host a file without a name. A program that is
 *          not Tutti's has one descriptor more, no more.
 * Status   A question goes on to the rank by a pipe that it inherits
 *          (TUTTI_STATUS_FD), its answer comes by our end of ssh's standard
 *          error, of which the rank has another descriptor (7) as programs may
 *          send their own elsewhere. Nobody but Tutti uses either.
 * Limit    A program that never reads what rank 0's input brings can block
 *          that loop, once the pipe between them is full. */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* Words: $1 the directory, $2 the control loop, then the program. */
static const char remote_script[] =
    "unset secret file pipe inode; "
    "cd \"$1\" || exit 1; control=$2; shift 2; "
    "while IFS= read -r line; do [ \"$line\" ] || break; "
    "export \"$(printf %b \"$line\")\"; done; "
    "IFS= read -r secret || exit 1; "
    "if [ \"$secret\" ]; then "
    "for dir in \"$XDG_RUNTIME_DIR\" /dev/shm \"${TMPDIR:-/tmp}\"; do "
    "[ -d \"$dir\" ] && file=$(mktemp \"$dir/tutti.XXXXXX\" 2>/dev/null) && "
    "break; done; "
    "[ \"$file\" ] || { echo \"no place for the job's secret\" >&2; exit 1; }; "
    "printf '%s\\n' \"$secret\" >\"$file\"; exec 9<\"$file\"; rm -f \"$file\"; "
    "unset secret; export TUTTI_SECRET_FILE=/proc/self/fd/9; fi; "
    "for dir in \"$XDG_RUNTIME_DIR\" /dev/shm \"${TMPDIR:-/tmp}\"; do "
    "[ -d \"$dir\" ] && pipe=$(mktemp -u \"$dir/tutti.XXXXXX\" 2>/dev/null) && "
    "mkfifo -m 600 \"$pipe\" 2>/dev/null && break; pipe=; done; "
    "if [ \"$pipe\" ]; then exec 8<>\"$pipe\"; "
    "inode=$(ls -i \"$pipe\"); rm -f \"$pipe\"; "
    "inode=${inode#\"${inode%%[0-9]*}\"}; "
    "export TUTTI_STATUS_FD=8:${inode%% *}; fi; "
    "exec 3>&2 2>/dev/null; "
    "trap : HUP INT TERM USR1 USR2; "
    "sh -c \"$control\" | { trap : HUP INT TERM USR1 USR2; read -r loop; "
    "(exec \"$@\" 2>&3 7>&3 3>&-); status=$?; kill -s KILL $loop; exit "
    "$status; }";

static const char remote_control[] =
    "trap \"\" HUP INT TERM USR1 USR2 PIPE; echo $$; "
    "while IFS= read -r line; do case $line in "
    "s*) kill \"-${line#s}\" 0;; "
    "d*) printf %b \"${line#d}\";; "
    "q*) printf '%s\\n' \"${line#q}\" >&8;; "
    "e) exec >/dev/null;; "
    "esac; done; kill -s KILL 0";

/* Variables that a rank on a host gets from here, besides TUTTI_*, which go
 * another way. */
static const char *const passed_on[] = {
    "PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "VIRTUAL_ENV", "OMP_NUM_THREADS",
    "LANG", "LC_ALL",          NULL};

/* ---------------------------------------------------------- environment -- */

static bool is_passed_on(const char *entry)
{
    for (const char *const *name = passed_on; *name; name++) {
        size_t len = strlen(*name);
        if (strncmp(entry, *name, len) == 0 && entry[len] == '=')
            return true;
    }
    return false;
}

/* What the launcher decides replaces whatever the user's shell had. */
static void set_environment(const run_job *job, const run_task *task)
{
    char number[16];
    snprintf(number, sizeof(number), "%u", task->rank);
    setenv("TUTTI_RANK", number, 1);
    snprintf(number, sizeof(number), "%u", job->n);
    setenv("TUTTI_SIZE", number, 1);
    setenv("TUTTI_JOB", job->name, 1);
    setenv("TUTTI_STATUS_SIGNAL", "1", 0);
    unsetenv("TUTTI_LISTEN_FD");
    unsetenv("TUTTI_STATUS_FD");
    unsetenv("TUTTI_ADDR");
    if (job->address)
        setenv("TUTTI_ADDR", job->address, 1);
    if (job->secret_fd < 0 || task->host)
        return;
    char path[32];
    snprintf(path, sizeof(path), "/proc/self/fd/%d", job->secret_fd);
    setenv("TUTTI_SECRET_FILE", path, 1);
    fcntl(job->secret_fd, F_SETFD, 0);
}

/* What stands before '=': a shell exports nothing else, and ends. */
static bool is_identifier(const char *entry)
{
    return entry[strspn(entry, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_"
                               "abcdefghijklmnopqrstuvwxyz0123456789")] == '=';
}

/* What a host's shell reads first; see above. Errors: errno. */
static bool tell_host(const run_job *job, int fd)
{
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    if (!out)
        return false;
    for (char **entry = environ; *entry; entry++) {
        if (strncmp(*entry, "TUTTI_", 6) != 0 || !is_identifier(*entry))
            continue;
        for (const char *c = *entry; *c; c++)
            if (*c == '\\' || *c == '\n')
                fprintf(out, "\\0%03o", (unsigned char)*c);
            else
                fputc(*c, out);
        fputc('\n', out);
    }
    fprintf(out, "\n%s", job->secret_fd < 0 ? "\n" : job->secret);
    bool is_well = fclose(out) == 0;
    errno = E2BIG; /* of a short write: the pipe takes 64 KiB */
    is_well = is_well && write(fd, text, len) == (ssize_t)len;
    free(text);
    return is_well;
}

/* One of the processors that this launcher may use, in turn. A failure is no
 * reason not to run. */
static void bind_to_core(uint32_t rank)
{
    cpu_set_t all, one;
    if (sched_getaffinity(0, sizeof(all), &all))
        return;
    uint32_t skip = rank % (uint32_t)CPU_COUNT(&all);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &all) || skip-- > 0)
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof(one), &one);
}

/* -------------------------------------------------------------- command -- */

/* ' is the only letter that a quoted word of a shell cannot hold. */
static void put_quoted(FILE *out, const char *word)
{
    fputs(" '", out);
    for (; *word; word++) {
        if (*word == '\'')
            fputs("'\\''", out);
        else
            fputc(*word, out);
    }
    fputc('\'', out);
}

/* The command line for the host's shell; NULL: no memory. */
static char *remote_command(const run_job *job)
{
    char *dir = getcwd(NULL, 0);
    char *text = NULL;
    size_t len;
    FILE *out = open_memstream(&text, &len);
    if (!out || !dir)
        goto out;
    fputs("exec env", out);
    for (char **entry = environ; *entry; entry++) {
        if (is_passed_on(*entry))
            put_quoted(out, *entry);
    }
    fputs(" sh -c", out);
    put_quoted(out, remote_script);
    put_quoted(out, "tutti-run");
    put_quoted(out, dir);
    put_quoted(out, remote_control);
    for (char **word = job->program; *word; word++)
        put_quoted(out, *word);
out:
    free(dir);
    if (out && fclose(out) == 0 && len)
        return text;
    return NULL;
}

/* "user@[fd00::1]" is user@fd00::1 to ssh. */
static void without_brackets(const char *name, char *out, size_t size)
{
    size_t n = 0;
    for (; *name && n + 1 < size; name++)
        if (*name != '[' && *name != ']')
            out[n++] = *name;
    out[n] = 0;
}

/* Becomes `RSH WORDS... HOST COMMAND`. */
static void exec_remote(const run_job *job, const run_task *task)
{
    enum { MOST_WORDS = 64 };
    char *argv[MOST_WORDS + 3];
    size_t n = 0;
    char *rsh = strdup(job->rsh);
    char *rest = NULL;
    for (char *word = rsh ? strtok_r(rsh, " \t", &rest) : NULL;
         word && n < MOST_WORDS; word = strtok_r(NULL, " \t", &rest))
        argv[n++] = word;
    char host[256];
    without_brackets(task->host, host, sizeof(host));
    argv[n++] = host;
    argv[n++] = remote_command(job);
    argv[n] = NULL;
    if (rsh && argv[n - 1])
        execvp(argv[0], argv);
}

/* ---------------------------------------------------------------- spawn -- */

/* The child's ends of its pipes. in -1: keeps the launcher's input. */
typedef struct ends {
    int in, feed, out, err, report; /* feed: what `in` reads */
    pid_t parent;
} ends;

static void become(const run_job *job, const run_task *task, const ends *e)
{
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != e->parent)
        _exit(CLI_FAILED);
    if (e->in >= 0)
        dup2(e->in, STDIN_FILENO);
    dup2(e->out, STDOUT_FILENO);
    dup2(e->err, STDERR_FILENO);
    setrlimit(RLIMIT_NOFILE, &job->old_files);
    signal(SIGPIPE, SIG_DFL);
    sigprocmask(SIG_SETMASK, &job->old_mask, NULL);
    set_environment(job, task);
    if (job->binds)
        bind_to_core(task->rank);
    if (task->host && tell_host(job, e->feed))
        exec_remote(job, task);
    else if (!task->host)
        execvp(job->program[0], job->program);
    int why = errno;
    ssize_t sent = write(e->report, &why, sizeof(why));
    _exit(sent == sizeof(why) ? CLI_FAILED : 127);
}

static void close_pair(const int pair[2])
{
    if (pair[0] >= 0)
        close(pair[0]);
    if (pair[1] >= 0)
        close(pair[1]);
}

/* The child's standard input. */
static bool open_input(const run_job *job, run_task *task, int pair[2])
{
    if (!task->host && task->rank > 0) {
        pair[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
        return pair[0] >= 0;
    }
    if (!task->host && !job->pumps_stdin)
        return true;
    if (pipe2(pair, O_CLOEXEC))
        return false;
    return fcntl(pair[1], F_SETFL, O_NONBLOCK) == 0;
}

static int start(run_job *job, run_task *task, int in[2], int pipes[3][2])
{
    ends e = {in[0], in[1], pipes[0][1], pipes[1][1], pipes[2][1], getpid()};
    pid_t pid = fork();
    if (pid < 0)
        return errno;
    if (pid == 0)
        become(job, task, &e);
    setpgid(pid, pid); /* whoever comes first */
    task->pid = pid;
    run_guard_add(job, pid);
    close(pipes[2][1]);
    pipes[2][1] = -1;
    int why = 0;
    ssize_t got;
    do
        got = read(pipes[2][0], &why, sizeof(why));
    while (got < 0 && errno == EINTR);
    return got == sizeof(why) ? why : 0;
}

int run_spawn(run_job *job, run_task *task)
{
    int in[2] = {-1, -1};
    int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    int why = open_input(job, task, in) ? 0 : errno;
    for (int i = 0; i < 3 && !why; i++)
        why = pipe2(pipes[i], O_CLOEXEC) ? errno : 0;
    if (!why)
        why = start(job, task, in, pipes);
    const char *program = task->host ? job->rsh : job->program[0];
    if (!why) {
        task->out.fd = pipes[0][0];
        task->err.fd = pipes[1][0];
        task->input_fd = in[1];
        pipes[0][0] = pipes[1][0] = in[1] = -1;
        if (task->host && (task->rank > 0 || !job->pumps_stdin))
            run_feed(task, NULL, 0);
    }
    close_pair(in);
    for (int i = 0; i < 3; i++)
        close_pair(pipes[i]);
    if (why && !task->pid)
        return cli_fail(job->self, "cannot start rank %u: %s", task->rank,
                        strerror(why));
    if (why)
        return cli_fail(job->self, "cannot start '%s': %s", program,
                        strerror(why));
    return CLI_OK;
}

/* ---------------------------------------------------------------- reach -- */

static bool send_line(const run_task *task, const char *line, size_t len)
{
    return write(task->input_fd, line, len) == (ssize_t)len;
}

void run_signal(run_task *task, int sig)
{
    if (!task->pid)
        return;
    if (!task->host) {
        kill(-task->pid, sig);
    } else if (task->input_fd >= 0 && sig != SIGTSTP && sig != SIGCONT) {
        /* (A stopped control loop could not go on again.) */
        char line[32];
        int len = snprintf(line, sizeof(line), "s%d\n", sig);
        send_line(task, line, (size_t)len);
    }
}

/* So many questions fit the pipe to a rank that does not read them. */
enum { MOST_DUMB = 100 };

bool run_ask(run_task *task, const char *question)
{
    char line[80];
    if (!task->host || !task->pid || task->has_ended || task->input_fd < 0 ||
        task->n_dumb >= MOST_DUMB)
        return false;
    int len = snprintf(line, sizeof(line), "q%s\n", question);
    return send_line(task, line, (size_t)len);
}

bool run_feed(run_task *task, const char *data, size_t len)
{
    if (!task->host && len)
        return write(task->input_fd, data, len) == (ssize_t)len;
    if (!task->host) {
        close(task->input_fd);
        task->input_fd = -1;
        return true;
    }
    if (!len)
        return send_line(task, "e\n", 2);
    /* One line is written at once or not at all: at most PIPE_BUF bytes. */
    char line[4096];
    size_t n = 0;
    line[n++] = 'd';
    for (size_t i = 0; i < len && n + 6 < sizeof(line); i++)
        n += (size_t)snprintf(line + n, sizeof(line) - n, "\\0%03o",
                              (unsigned char)data[i]);
    line[n++] = '\n';
    return send_line(task, line, n);
}

/* ---------------------------------------------------------------- guard -- */

/* Learns process groups until the pipe breaks, then kills them; ends quietly
 * when it is told a 0. */
static void guard(int fd)
{
    enum { MOST = 65536 };
    static pid_t groups[MOST];
    size_t n = 0;
    for (;;) {
        pid_t pid = 0;
        ssize_t got = read(fd, &pid, sizeof(pid));
        if (got < 0 && errno == EINTR)
            continue;
        if (got != sizeof(pid))
            break;
        if (pid == 0)
            _exit(0);
        if (n < MOST)
            groups[n++] = pid;
    }
    for (size_t i = 0; i < n; i++)
        kill(-groups[i], SIGKILL);
    _exit(0);
}

int run_guard_start(run_job *job)
{
    int pair[2];
    job->guard_fd = -1;
    if (pipe2(pair, O_CLOEXEC))
        return cli_fail(job->self, "cannot make a pipe: %s", strerror(errno));
    job->guard_pid = fork();
    if (job->guard_pid < 0)
        return cli_fail(job->self, "cannot start a process: %s",
                        strerror(errno));
    if (job->guard_pid > 0) {
        close(pair[0]);
        job->guard_fd = pair[1];
        return CLI_OK;
    }
    close(pair[1]);
    setsid(); /* no signal of the terminal reaches it */
    for (int fd = 0; fd < 3; fd++)
        close(fd);
    guard(pair[0]);
    return CLI_FAILED;
}

void run_guard_add(const run_job *job, pid_t pid)
{
    ssize_t sent = write(job->guard_fd, &pid, sizeof(pid));
    (void)sent; /* without a guard, PR_SET_PDEATHSIG still works */
}

void run_guard_end(run_job *job)
{
    if (job->guard_fd < 0)
        return;
    run_guard_add(job, 0);
    close(job->guard_fd);
    job->guard_fd = -1;
    waitpid(job->guard_pid, NULL, 0);
}
