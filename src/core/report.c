/* SPDX-License-Identifier: BSD-3-Clause
 * report.c - what a communicator tells when it has failed: its last calls. */
#include "core/core.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/append.h"
#include "base/log.h"

enum { MOST_LOGGED = 8, ALL = UINT16_MAX };

static void print_calls(const tutti_comm *comm, uint32_t most, tt_str *out)
{
    const char *text;
    tt_engine_lock(comm->engine);
    tt_team_state(comm->team, &text);
    tt_str_printf(out, "# tutti %s, job %s, rank %u of %u: %s\n",
                  tutti_version(), comm->home.job, comm->rank, comm->n_ranks,
                  text);
    tt_team_print_calls(comm->team, most, out);
    tt_engine_unlock(comm->engine);
}

static void write_calls(const char *pattern, const char *text, size_t len)
{
    char path[512];
    tt_log_path(pattern, path, sizeof(path));
    FILE *f;
    const char *why = tt_append_open(path, &f);
    if (!why && fwrite(text, 1, len, f) != len)
        why = strerror(errno);
    if (f && fclose(f) != 0 && !why)
        why = strerror(errno);
    if (why)
        TT_WARN("TUTTI_CALLS_FILE: cannot write %s: %s", path, why);
    else
        TT_INFO("the last calls are in %s", path);
}

static bool has_failed(const tutti_comm *comm)
{
    const char *text;
    tt_engine_lock(comm->engine);
    tutti_err err = tt_team_state(comm->team, &text);
    tt_engine_unlock(comm->engine);
    return err != TUTTI_OK;
}

static void log_calls(char *text)
{
    char *rest = text;
    for (char *line = strtok_r(text, "\n", &rest); line;
         line = strtok_r(NULL, "\n", &rest))
        TT_INFO("%s", line);
}

void tt_comm_tell_calls(tutti_comm *comm)
{
    tt_settings set;
    tt_str calls = {.mem = &tt_mem_std};
    char *text;
    size_t len;
    if (comm->has_told_calls || !has_failed(comm) ||
        tt_settings_read(&set, NULL) != TUTTI_OK)
        return;
    comm->has_told_calls = true;
    const bool has_file = set.calls_file[0] != '\0';
    if (!has_file && !tt_logs(TUTTI_LOG_INFO))
        return;
    print_calls(comm, has_file ? ALL : MOST_LOGGED, &calls);
    if (tt_str_finish(&calls, &text, &len) != TUTTI_OK)
        return;
    if (has_file)
        write_calls(set.calls_file, text, len);
    else
        log_calls(text);
    tt_free(&tt_mem_std, text, len + 1, 1);
}
