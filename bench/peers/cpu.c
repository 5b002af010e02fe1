/* SPDX-License-Identifier: BSD-3-Clause
 * cpu.c - see cpu.h. */
#include "cpu.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { MAX_THREADS = 1024, PATH = 320 };

double cpu_of_process(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1e-6;
}

static int is_softirq_thread(const char *pid)
{
    char path[PATH], name[64] = "";
    snprintf(path, sizeof path, "/proc/%s/comm", pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return 0;
    const char *got = fgets(name, sizeof name, file);
    fclose(file);
    return got && strncmp(name, "ksoftirqd/", strlen("ksoftirqd/")) == 0;
}

/* Their numbers, one for each processor, which do not change. */
static int find_threads(char threads[][PATH])
{
    DIR *proc = opendir("/proc");
    int n = 0;
    for (struct dirent *at; proc && n < MAX_THREADS && (at = readdir(proc));) {
        if (at->d_name[0] >= '0' && at->d_name[0] <= '9' &&
            is_softirq_thread(at->d_name))
            snprintf(threads[n++], PATH, "/proc/%s/schedstat", at->d_name);
    }
    if (proc)
        closedir(proc);
    return n;
}

double cpu_of_softirqs(void)
{
    static char threads[MAX_THREADS][PATH];
    static int n = -1;
    double sum_ns = 0;
    if (n < 0)
        n = find_threads(threads);
    for (int i = 0; i < n; i++) {
        double ns;
        FILE *file = fopen(threads[i], "r");
        if (file && fscanf(file, "%lf", &ns) == 1)
            sum_ns += ns;
        if (file)
            fclose(file);
    }
    return sum_ns * 1e-9;
}
