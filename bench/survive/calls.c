/* SPDX-License-Identifier: BSD-3-Clause
 *
 * calls.c - a loop of all-reduces: when each began and ended.
 *
 *     tutti run -n 8 calls [CALLS [BYTES [AHEAD]]]
 *
 * With AHEAD so many calls are issued before the oldest one is waited for, each
 * on a buffer of its own. Rank 0 prints "call NUMBER BEGIN END" for each, in
 * seconds of the clock on the wall; a call that was issued ahead begins when
 * the one before it ends. Every rank looks at the results. `halved` changes the
 * network meanwhile. */
#include <tutti.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int die(const char *what, const char *why)
{
    fprintf(stderr, "calls: %s: %s\n", what, why);
    return 1;
}

static bool is_right(const float *x, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (x[i] < (float)(i % 1000) || x[i] > (float)(i % 1000))
            return false;
    return true;
}

enum { MOST_AHEAD = 64 };

/* A buffer, and the call that has it. */
typedef struct place {
    float *x;
    tutti_request *req;
    double begin_s;
} place;

static int issue(tutti_comm *comm, place *at, size_t count, bool waits)
{
    at->begin_s = now_s();
    if (tutti_all_reduce(comm, at->x, at->x, count, TUTTI_F32, TUTTI_AVG, NULL,
                         waits ? NULL : &at->req))
        return die("all-reduce", tutti_comm_message(comm));
    return 0;
}

/* Waits for it where that is still to be done. */
static int end(const tutti_comm *comm, place *at, int number, double *last_s)
{
    tutti_request *req = at->req;
    at->req = NULL;
    if (req && tutti_wait(req))
        return die("all-reduce", tutti_comm_message(comm));
    const double end_s = now_s();
    if (tutti_comm_rank(comm) == 0) {
        printf("call %d %.6f %.6f\n", number,
               at->begin_s > *last_s ? at->begin_s : *last_s, end_s);
        fflush(stdout);
    }
    *last_s = end_s;
    return 0;
}

static int work(tutti_comm *comm, int calls, place *places, size_t count,
                int ahead)
{
    double last_s = 0;
    for (int i = 0; i < calls + ahead; i++) {
        place *at = &places[i % (ahead + 1)];
        if (i < calls && issue(comm, at, count, ahead == 0))
            return 1;
        const int late = i - ahead;
        if (late >= 0 && end(comm, &places[late % (ahead + 1)], late, &last_s))
            return 1;
    }
    for (int i = 0; i <= ahead; i++)
        if (!is_right(places[i].x, count))
            return die("all-reduce", "a wrong result");
    return 0;
}

int main(int argc, char **argv)
{
    const int calls = argc > 1 ? atoi(argv[1]) : 30;
    const size_t count = (argc > 2 ? (size_t)atol(argv[2]) : 16 << 20) / 4;
    const int ahead = argc > 3 ? atoi(argv[3]) : 0;
    place places[MOST_AHEAD + 1] = {{NULL, NULL, 0}};
    tutti_comm *comm;
    if (ahead < 0 || ahead > MOST_AHEAD)
        return die("start", "AHEAD is 0 to 64");
    for (int i = 0; i <= ahead; i++) {
        places[i].x = malloc(count * sizeof(float));
        if (!places[i].x)
            return die("start", "out of memory");
        for (size_t k = 0; k < count; k++)
            places[i].x[k] = (float)(k % 1000);
    }
    if (tutti_comm_create(NULL, &comm))
        return die("start", tutti_last_message());
    int status = work(comm, calls, places, count, ahead);
    tutti_comm_destroy(comm);
    for (int i = 0; i <= ahead; i++)
        free(places[i].x);
    return status;
}
