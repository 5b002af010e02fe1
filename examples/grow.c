/* SPDX-License-Identifier: BSD-3-Clause
 * grow.c - training to which processes may come while it runs, and from which
 * they may go.
 *
 *   tutti run -n 3 --keep-going build/examples/grow &
 *   tutti run -n 1 --join $! build/examples/grow
 *
 * Every rank pulls a vector towards its own number; the mean of all pulls is
 * the step. A newcomer gets the state in the background: rank 0 sends it a copy
 * of the model, and then each step that the others take meanwhile, which it
 * takes, too. When it has caught up all go over to the larger communicator at
 * the same step, and compare what they have. Who is killed is left out.
 * It ends after 400 steps, or as many as are given, and not before there have
 * been as many ranks as a second number says. failures.md explains. */
#include <tutti.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COUNT = 100000, MOST = 256, MOST_NEW = 64 };

static float model[COUNT], step_of_all[COUNT];

/* What goes to a newcomer: the model at first, then step after step. */
typedef struct parcel {
    int32_t step;
    int32_t is_last; /* from the next step on it is one of all */
    float data[COUNT];
} parcel;

/* Rank 0: those on the way, one behind the other, to each newcomer. */
typedef struct mail {
    parcel *parcels[MOST];
    tutti_request *requests[MOST][MOST_NEW];
    int n, n_done;
    bool has_failed; /* those newcomers cannot be served */
} mail;

static int die(const char *what, const char *why)
{
    fprintf(stderr, "grow: %s: %s\n", what, why);
    return 1;
}

static tutti_err take_step(tutti_comm *comm)
{
    const float own = (float)tutti_comm_rank(comm);
    for (int i = 0; i < COUNT; i++)
        step_of_all[i] = 0.01F * (own - model[i]);
    return tutti_all_reduce(comm, step_of_all, step_of_all, COUNT, TUTTI_F32,
                            TUTTI_AVG, NULL, NULL);
}

static void apply(const float *step)
{
    for (int i = 0; i < COUNT; i++)
        model[i] += step[i];
}

/* --------------------------------------------------- a newcomer's state -- */

/* Waits for it: who is so far behind that the list is full holds all up. */
static void drop_oldest(mail *m)
{
    for (int i = 0; i < MOST_NEW; i++)
        if (m->requests[0][i])
            tutti_wait(m->requests[0][i]);
    free(m->parcels[0]);
    m->n--;
    m->n_done -= m->n_done > 0;
    memmove(m->parcels, m->parcels + 1, (size_t)m->n * sizeof(m->parcels[0]));
    memmove(m->requests, m->requests + 1,
            (size_t)m->n * sizeof(m->requests[0]));
    m->parcels[m->n] = NULL;
    memset(m->requests[m->n], 0, sizeof(m->requests[m->n]));
}

/* To ranks n_old.. of larger, in the background: behind the calls. */
static tutti_err post(mail *m, tutti_comm *larger, int n_old, int step,
                      bool is_last, const float *data)
{
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    const int n = tutti_comm_size(larger) - n_old;
    tutti_err err = TUTTI_OK;
    parcel *p = n <= MOST_NEW ? malloc(sizeof(*p)) : NULL;
    m->has_failed = true;
    if (!p) {
        fprintf(stderr, "grow: no memory for %d newcomers' state\n", n);
        return TUTTI_ENOMEM;
    }
    if (m->n == MOST)
        drop_oldest(m);
    opts.priority = -1;
    p->step = step;
    p->is_last = is_last;
    memcpy(p->data, data, sizeof(p->data));
    m->parcels[m->n] = p;
    for (int i = 0; i < n && !err; i++)
        err = tutti_send(larger, p, sizeof(*p), TUTTI_U8, n_old + i, &opts,
                         &m->requests[m->n][i]);
    m->n++;
    m->has_failed = err != TUTTI_OK;
    if (err)
        fprintf(stderr, "grow: newcomers get no state: %s\n",
                tutti_comm_message(larger));
    return err;
}

/* Everything has arrived but for the last one or two? */
static bool has_caught_up(mail *m)
{
    for (; m->n_done < m->n; m->n_done++)
        for (int i = 0; i < MOST_NEW; i++)
            if (m->requests[m->n_done][i] &&
                tutti_test(m->requests[m->n_done][i]) == TUTTI_AGAIN)
                return m->n - m->n_done <= 2;
    return true;
}

static void clear(mail *m)
{
    for (int k = 0; k < m->n; k++) {
        for (int i = 0; i < MOST_NEW; i++)
            if (m->requests[k][i])
                tutti_wait(m->requests[k][i]);
        free(m->parcels[k]);
    }
    memset(m, 0, sizeof(*m));
}

/* The newcomer: until it has what all have. */
static tutti_err catch_up(tutti_comm *comm, int *step)
{
    tutti_call_opts opts = TUTTI_CALL_OPTS_INIT;
    parcel *p = malloc(sizeof(*p));
    tutti_err err = p ? TUTTI_OK : TUTTI_ENOMEM;
    opts.priority = -1;
    for (bool is_first = true; !err; is_first = false) {
        err = tutti_recv(comm, p, sizeof(*p), TUTTI_U8, 0, &opts, NULL);
        if (!err && is_first)
            memcpy(model, p->data, sizeof(model));
        else if (!err)
            apply(p->data);
        *step = err ? *step : p->step;
        if (!err && p->is_last)
            break;
    }
    free(p);
    return err;
}

/* ----------------------------------------------------------- the members -- */

typedef struct job {
    tutti_comm *comm, *larger; /* larger: newcomers are catching up */
    mail mail;                 /* rank 0's */
    int step;
} job;

static tutti_err compare(tutti_comm *comm)
{
    const tutti_shared all = {"model", model, sizeof(model)};
    tutti_difference d = TUTTI_DIFFERENCE_INIT;
    tutti_err err = tutti_comm_compare(comm, &all, 1, &d);
    if (!err && d.n_ranks > 0)
        fprintf(stderr, "grow: %s\n", d.text);
    return err;
}

/* Nobody is left behind in the larger one. */
static void forget_larger(job *j)
{
    clear(&j->mail);
    tutti_comm_destroy(j->larger);
    j->larger = NULL;
}

/* Between two steps; what rank 0 says goes for all. */
static tutti_err look_after_newcomers(job *j)
{
    const int n_old = tutti_comm_size(j->comm);
    const bool is_first = tutti_comm_rank(j->comm) == 0;
    uint8_t says = 0; /* 1: the larger one from now on; 2: it is of no use */
    tutti_err err = TUTTI_OK;
    if (!j->larger) {
        err = tutti_comm_grow(j->comm, NULL, &j->larger);
        if (!err && is_first) /* if that fails, all are told at the next step */
            (void)post(&j->mail, j->larger, n_old, j->step, false, model);
        return err == TUTTI_AGAIN || err == TUTTI_EBOOT ? TUTTI_OK : err;
    }
    if (is_first) {
        says = has_caught_up(&j->mail);
        if (j->mail.has_failed || tutti_comm_failure(j->larger) ||
            post(&j->mail, j->larger, n_old, j->step, says == 1, step_of_all))
            says = 2;
    }
    err = tutti_broadcast(j->comm, &says, &says, 1, TUTTI_U8, 0, NULL, NULL);
    if (err || says == 0)
        return err;
    if (says == 2) {
        forget_larger(j);
        return TUTTI_OK;
    }
    clear(&j->mail);
    tutti_comm_destroy(j->comm);
    j->comm = j->larger;
    j->larger = NULL;
    return compare(j->comm);
}

static tutti_err make_smaller(job *j)
{
    tutti_comm *smaller;
    fprintf(stderr, "step %d: %s\n", j->step, tutti_comm_message(j->comm));
    if (j->larger)
        forget_larger(j);
    tutti_err err = tutti_comm_shrink(j->comm, NULL, &smaller);
    if (err)
        return err;
    tutti_comm_destroy(j->comm);
    j->comm = smaller;
    return TUTTI_OK;
}

/* Not all need have failed in the same step: all go on from rank 0's state. */
static tutti_err share_state(job *j)
{
    tutti_err err = tutti_broadcast(j->comm, model, model, COUNT, TUTTI_F32, 0,
                                    NULL, NULL);
    if (!err)
        err = tutti_broadcast(j->comm, &j->step, &j->step, 1, TUTTI_I32, 0,
                              NULL, NULL);
    return err;
}

static tutti_err go_one_step(job *j)
{
    tutti_err err = take_step(j->comm);
    if (err)
        return err;
    apply(step_of_all);
    j->step++;
    return look_after_newcomers(j);
}

/* A newcomer comes in behind a step of the others. */
static tutti_err work(job *j, bool is_new, int n_steps, int n_ranks)
{
    int most = 0;
    for (bool ends = false; !ends; is_new = false) {
        tutti_err err = is_new ? TUTTI_OK : go_one_step(j);
        if (tutti_comm_size(j->comm) > most)
            most = tutti_comm_size(j->comm);
        ends = j->step >= n_steps && most >= n_ranks; /* rank 0's word */
        if (!err)
            err = tutti_broadcast(j->comm, &ends, &ends, 1, TUTTI_BOOL, 0, NULL,
                                  NULL);
        while (err && tutti_comm_failure(j->comm)) {
            if (make_smaller(j)) /* too few, or they go on without this one */
                return err;
            err = share_state(j);
            ends = false;
        }
        if (err)
            return err;
        usleep(1000); /* a real program computes */
    }
    if (j->larger)
        forget_larger(j);
    return compare(j->comm);
}

int main(int argc, char **argv)
{
    static job j;
    const int n_steps = argc > 1 ? atoi(argv[1]) : 400;
    const int n_ranks = argc > 2 ? atoi(argv[2]) : 0;
    const char *where = getenv("TUTTI_JOIN");
    const bool is_new = where; /* "" is an error */
    if (is_new ? tutti_comm_join(NULL, &j.comm)
               : tutti_comm_create(NULL, &j.comm))
        return die("start", tutti_last_message());
    if (is_new) {
        if (catch_up(j.comm, &j.step) || compare(j.comm))
            return die("catching up", tutti_comm_message(j.comm));
        fprintf(stderr, "rank %d comes in at step %d\n",
                tutti_comm_rank(j.comm), j.step);
    }
    tutti_err err = work(&j, is_new, n_steps, n_ranks);
    if (err)
        return die("work", tutti_comm_message(j.comm));
    printf("rank %d of %d: step %d, model %016llx\n", tutti_comm_rank(j.comm),
           tutti_comm_size(j.comm), j.step,
           (unsigned long long)tutti_hash(model, sizeof(model), 0));
    tutti_comm_destroy(j.comm);
    return 0;
}
