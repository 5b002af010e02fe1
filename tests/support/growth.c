/* SPDX-License-Identifier: BSD-3-Clause
 * growth.c - see growth.h. */
#include "support/tap.h"

#include <dirent.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/cases.h"
#include "support/growth.h"

/* In less a process is still growing up. */
static const double least_s = 60;

static int count_in(const char *path)
{
    DIR *dir = opendir(path);
    int n = 0;
    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n - 2; /* . and .. */
}

int tt_count_fds(void)
{
    return count_in("/proc/self/fd") - 1; /* the folder's own */
}

int tt_count_threads(void)
{
    return count_in("/proc/self/task");
}

/* In use in all arenas of malloc: mallinfo2() tells of the first only. */
static double heap_kib(void)
{
    char *text = NULL;
    size_t len;
    double held = 0, idle = 0;
    FILE *f = open_memstream(&text, &len);
    if (!f)
        return 0;
    malloc_info(0, f);
    fclose(f);
    /* What comes last is of all arenas together. */
    char *end = text ? strstr(text, "</heap>") : NULL;
    for (char *at = end; at; at = strstr(at + 1, "</heap>"))
        end = at;
    for (char *at = end; at; at = strchr(at + 1, '<')) {
        double size;
        if (sscanf(at, "<total type=\"fast\" count=\"%*u\" size=\"%lf",
                   &size) == 1 ||
            sscanf(at, "<total type=\"rest\" count=\"%*u\" size=\"%lf",
                   &size) == 1)
            idle += size;
        else if (sscanf(at, "<total type=\"mmap\" count=\"%*u\" size=\"%lf",
                        &size) == 1 ||
                 sscanf(at, "<system type=\"current\" size=\"%lf", &size) == 1)
            held += size;
    }
    free(text);
    return (held - idle) / 1024;
}

static double resident_kib(void)
{
    long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (f && fscanf(f, "%*s %ld", &pages) != 1)
        pages = 0;
    if (f)
        fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE) / 1024;
}

static int count_mappings(void)
{
    char line[4096];
    int n = 0;
    FILE *f = fopen("/proc/self/maps", "r");
    while (f && fgets(line, sizeof(line), f))
        n++;
    if (f)
        fclose(f);
    return n;
}

void tt_growth_look(tt_growth *g)
{
    tt_growth_sample *s = &g->all[g->n];
    const double now = tt_now_s();
    if (g->n == TT_GROWTH_LOOKS || (g->n > 0 && now < s[-1].at_s + 0.5))
        return;
    *s = (tt_growth_sample){.at_s = now, .heap_kib = heap_kib()};
    malloc_trim(0); /* what is free, and was in use once, is no leak */
    s->kib = resident_kib();
    s->n_mappings = count_mappings();
    s->n_fds = tt_count_fds();
    g->n++;
}

typedef enum quantity { MEMORY, HEAP, FDS } quantity;

static double value_of(const tt_growth_sample *s, quantity what)
{
    return what == MEMORY ? s->kib : what == HEAP ? s->heap_kib : s->n_fds;
}

/* Least squares, per minute, without the first fifth. */
static double slope(const tt_growth *g, quantity what)
{
    double t = 0, y = 0, ty = 0, tt = 0, m = 0;
    for (uint32_t i = g->n / 5; i < g->n; i++, m++) {
        const double at = (g->all[i].at_s - g->all[0].at_s) / 60;
        const double value = value_of(&g->all[i], what);
        t += at;
        y += value;
        ty += at * value;
        tt += at * at;
    }
    double below = m * tt - t * t;
    return below > 0 ? (m * ty - t * y) / below : 0;
}

static void print(const tt_growth *g, const char *who)
{
    const tt_growth_sample *early = &g->all[g->n / 5];
    const tt_growth_sample *last = &g->all[g->n - 1];
    printf("# %s: %u looks, memory %.0f KiB, then %.0f, slope %.1f KiB per "
           "minute; in use %.0f KiB, then %.0f, slope %.1f; descriptors %d, "
           "then %d, slope %.2f; mappings %d, then %d\n",
           who, g->n, early->kib, last->kib, slope(g, MEMORY), early->heap_kib,
           last->heap_kib, slope(g, HEAP), early->n_fds, last->n_fds,
           slope(g, FDS), early->n_mappings, last->n_mappings);
}

void tt_growth_check(const tt_growth *g, const char *who, int n_fds)
{
    if (g->n < 2)
        return;
    const tt_growth_sample *early = &g->all[g->n / 5];
    const tt_growth_sample *last = &g->all[g->n - 1];
    print(g, who);
    assert_true(abs(last->n_fds - early->n_fds) <= n_fds);
    if (g->n > 20 && last->at_s > g->all[0].at_s + least_s)
        assert_true(slope(g, MEMORY) < 256 && slope(g, HEAP) < 128 &&
                    slope(g, FDS) < 2 && last->kib < early->kib + 8192);
}
