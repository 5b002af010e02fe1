/* SPDX-License-Identifier: BSD-3-Clause
 * plane.h - what the files of this folder share: the ports that reach each
 * other, what was measured among them, and the network that would explain it.
 *
 * A plane's ports are numbered 0 .. n - 1, its **leaves**. A **cut** is some
 * of the leaves: all that these send to the others passes one link. In a tree
 * every link between switches is two cuts, the leaves below it and the others.
 * A **model** is the leaves' own rates and the cuts'. Private to the folder.
 *
 * Next: plane.c. */
#ifndef TT_INFER_PLANE_H
#define TT_INFER_PLANE_H

#include "base/rng.h"
#include "base/sets.h"
#include "infer/infer.h"

/* ---------------------------------------------------------------- model -- */

typedef struct tt_plane_cut {
    uint64_t *in; /* a set of leaves */
    double bps;   /* from those within to those without */
} tt_plane_cut;

/* Links of a model are numbered: i: up from leaf i; n + i: down to it; 2n + c:
 * cut c. */
typedef struct tt_model {
    uint32_t n, n_words, n_cuts, max_cuts;
    double *leaf_bps;   /* [2n]: links 0 .. 2n - 1 */
    tt_plane_cut *cuts; /* [max_cuts] */
    double score;       /* how far from what was measured; see fit.c */
    /* Of one link: flows that it holds back, and those of them that are near
     * what was measured. */
    uint32_t watched, n_held, n_near;
    uint32_t n_far; /* flows that are far from what was measured */
} tt_model;

static inline uint32_t tt_model_links(const tt_model *m)
{
    return 2 * m->n + m->n_cuts;
}

static inline double *tt_model_bps(const tt_model *m, uint32_t link)
{
    return link < 2 * m->n ? &m->leaf_bps[link] : &m->cuts[link - 2 * m->n].bps;
}

/* ENOMEM is the arena's. */
void tt_model_create(tt_model *m, uint32_t n, tt_arena *arena);
void tt_model_copy(tt_model *to, const tt_model *from);
void tt_model_add(tt_model *m, const uint64_t *in, double bps);
void tt_model_drop(tt_model *m, uint32_t cut);
/* Can one tree have both cuts? */
bool tt_cuts_agree(const tt_model *m, const uint64_t *a, const uint64_t *b);

/* -------------------------------------------------------------- measured -- */

typedef struct tt_flow {
    uint32_t src, dst; /* leaves */
    double bps;        /* as measured; NAN: it was not */
    double mean_bps;   /* likewise; means add up on links that flows share */
    double part;       /* of what others may have on the way; see infer.h */
} tt_flow;

/* A round, as far as it concerns one plane. */
typedef struct tt_look {
    uint32_t first, n;
    const char *why;
} tt_look;

typedef struct tt_looks {
    tt_flow *flows;
    tt_look *list;
    size_t cap_flows, cap_looks;
    uint32_t n_flows, n;
    /* Of the looks and of their flows; the rest is still to be done. */
    uint32_t n_told, n_told_flows;
} tt_looks;

/* -------------------------------------------------------------- max-min -- */

/* Rates of flows that share the model's links max-min fairly. */
typedef struct tt_filler {
    tt_arena *arena;
    double *left, *bps;      /* [links]; [flows] */
    uint32_t *count, *first; /* [links], [links + 1] */
    uint32_t *by;            /* [flows]: the link that holds it back */
    uint32_t *start, *way;   /* [flows + 1]; links of each flow */
    uint32_t *users;         /* flows of each link */
    uint32_t *active;        /* links not yet full */
    size_t caps[9];
    uint64_t work; /* done so far, in about as many nanoseconds */
    /* Called when so much more has been done; NULL: never. */
    void (*tick)(void *ctx);
    void *tick_ctx;
    uint64_t next_tick; /* of work */
} tt_filler;

static inline void tt_filler_work(tt_filler *f, uint64_t more)
{
    const uint64_t between = 20000000;
    f->work += more;
    if (!f->tick || f->work < f->next_tick)
        return;
    f->next_tick = f->work + between;
    f->tick(f->tick_ctx);
}

/* ENOMEM. bps and by have the answer. */
tutti_err tt_maxmin(tt_filler *f, const tt_model *m, const tt_flow *flows,
                    uint32_t n_flows);

/* ---------------------------------------------------------------- plane -- */

/* What passed a link in a round. */
typedef struct tt_passage {
    double bps, load; /* as measured, as the model has it */
    uint32_t link, n_flows;
    uint32_t n_sure; /* flows that no other full link held back */
    bool is_full;
    bool is_lone; /* one flow, and no other in the round */
} tt_passage;

/* A passage that counts, for how much, and how far off it may be. */
typedef struct tt_vote {
    double bps, weight, error;
} tt_vote;

typedef struct tt_plane {
    tt_arena arena; /* of all that is the plane's */
    uint32_t n, n_words;
    uint32_t *port, *host; /* of each leaf */
    uint8_t *can;          /* [n][n]: may this leaf send to that one? */
    float *latency_s;      /* [n][n]; INFINITY: not told */
    double noise, unfair;  /* relative errors, as the caller expects them */
    double seen_noise;     /* as they are, at most that */
    double lone_noise;     /* of flows that run alone, likewise */
    double ack; /* of a link, what acknowledges that much the other way */
    tt_rng rng;
    tt_looks looks;
    tt_model best, trial, spare, kept;
    tt_filler filler;
    tt_passage *passages;
    uint32_t *by_link, *link_first;
    double *expected; /* of each flow, by `best` */
    double *load;     /* [links]: of one round */
    uint32_t *n_sure; /* [links]: of one round */
    double *back;     /* [links]: of one round, what passed the other way */
    double *wait;     /* [links]: of one round, how long its queue is */
    double *low;      /* [flows]: of one round, see fit.c */
    tt_vote *votes;   /* scratch of rates.c: [passages] */
    size_t caps[11];
    double *residual; /* scratch of fit.c */
    struct tt_cutsearch *search;
    struct tt_tree *tree;
    /* The course of it. max_work: of filler.work, where the search for cuts
     * counts, too. */
    uint64_t max_work;
    uint32_t stage, twin; /* the look that is measured twice */
    uint32_t n_thoughts;  /* how often it has looked for structure */
    uint32_t n_sought;    /* looks told when it last did */
    bool is_done;
    uint64_t *stressed; /* sets that were measured on purpose */
    uint32_t n_stressed, max_stressed;
    uint32_t chain_level, chain_at;
    /* scratch of pairing.c, rounds.c, target.c, [n] each; some, inside:
     * [nodes] */
    uint32_t *senders, *receivers, *to, *node, *kid;
    double *differ;
    bool *used, *taken, *some, *inside;
    uint64_t *search_set, *search_set2; /* scratch */
} tt_plane;

/* There is so little noise that once is enough. */
static inline bool tt_is_quiet(const tt_plane *p)
{
    return p->seen_noise < 0.03 &&
           p->best.n_far <= 2 + p->looks.n_told_flows / 100;
}

/* Has the search used up what it may? */
static inline bool tt_is_spent(const tt_plane *p)
{
    return p->filler.work >= p->max_work;
}

/* plane.c. The caller sets port, host, can, noise, unfair and rng. ENOMEM. */
tutti_err tt_plane_open(tt_plane *p, uint32_t n, const tt_mem *mem);
/* Afterwards all of it is in p->arena, which tt_arena_free() frees. */
/* The next look that is not told yet; NULL: nothing more to measure. */
tutti_err tt_plane_next(tt_plane *p, tt_look **next);
/* Its flows have been measured. */
void tt_plane_told(tt_plane *p);
/* The best model of what was told so far. */
tutti_err tt_plane_settle(tt_plane *p);
/* How many looks there will be, as it looks now. */
uint32_t tt_plane_likely(const tt_plane *p);

/* fit.c: sets the rates and the score of the model. */
tutti_err tt_fit(tt_plane *p, tt_model *m);
/* Sets p->seen_noise and p->lone_noise from how well p->best fits. */
tutti_err tt_fit_noise(tt_plane *p);
/* Sets p->expected. */
tutti_err tt_predict(tt_plane *p, const tt_model *m);
/* Nothing is as exact as that. */
#define TT_LEAST_NOISE 0.02
#define TT_LEAST_LONE_NOISE 0.005 /* of what runs alone */
/* For qsort(): numbers, rising. */
int tt_compare_doubles(const void *a, const void *b);
/* Errors that do not shrink when more flows are added up. */
#define TT_COMMON_ERROR 0.02

/* rates.c: from the passages; the largest change, as a logarithm. */
double tt_rates_set(tt_plane *p, tt_model *m);
/* After a fit: the rate of a link, from all that passed it. What passed it, it
 * can do: where much is above the middle of what is sure, that fell short.
 * (While cuts are sought rates do not follow that: flows that have saved up on
 * a link would make cuts of the others.) */
double tt_rate_of(const tt_plane *p, uint32_t link);
/* What the rate of a link rests on, after a fit of the same model. */
typedef struct tt_evidence {
    uint32_t n_looks, n_full; /* in which it was used, was full */
    bool was_limit;           /* of a flow, and nothing else was */
} tt_evidence;
tt_evidence tt_evidence_of(const tt_plane *p, uint32_t link);
/* How much of its rate the link may carry only: what passed, in the middle of
 * the rounds that should have filled it and did not. 0: these were no more than
 * strays. */
double tt_doubt_of(const tt_plane *p, uint32_t link, double bps);
/* Does the rate of this link rest on enough? */
bool tt_is_sure(const tt_plane *p, uint32_t link);

/* cutsearch.c: finds cuts that explain what p->best does not. */
tutti_err tt_cutsearch_find(tt_plane *p);

/* tree.c: the cuts of a model as a tree, its root in the middle. Nodes come
 * after their parents. */
typedef struct tt_tree_node {
    uint32_t parent; /* TT_NONE: the root, which is node 0 */
    uint32_t n_leaves, n_kids;
    uint64_t *in;            /* the leaves below */
    double up_bps, down_bps; /* 0: never the limit */
} tt_tree_node;

typedef struct tt_tree {
    uint32_t n_nodes, max_nodes;
    tt_tree_node *nodes;
    uint32_t *leaf_node; /* [n] */
} tt_tree;

/* ENOMEM is the arena's. */
void tt_tree_create(tt_plane *p);
void tt_tree_build(tt_plane *p, const tt_model *m);

/* rounds.c: adds looks. First these; when they are told, those; then those. */
tutti_err tt_rounds_first(tt_plane *p);
tutti_err tt_rounds_second(tt_plane *p);
tutti_err tt_rounds_general(tt_plane *p);
/* After the second: how much noise is there? */
void tt_rounds_noise(tt_plane *p);
/* target.c: adds looks, or none: there is nothing more to ask. */
tutti_err tt_rounds_targeted(tt_plane *p);
/* The next look of a chain. Chains begin anew after targeted looks, or by the
 * second. */
tutti_err tt_rounds_chained(tt_plane *p);
void tt_rounds_chain_all(tt_plane *p);

/* noted.c: what a set was noted for. */
enum {
    TT_AS_PART = 1,
    TT_AS_STAR = 3, /* and three more */
    TT_AS_RIVAL = 10,
    TT_AS_WITHOUT,
    TT_AS_PAIR,
    TT_AS_INSIDE = 100 /* and as many as a node has kids */
};
bool tt_is_noted(const tt_plane *p, const uint64_t *in, uint32_t what);
/* false: it is there already, or there are too many. */
bool tt_note_set(tt_plane *p, const uint64_t *in, uint32_t what);

/* rivals.c: p->best with one change: of this trunk (by the set of one of its
 * cuts) the leaf is on the other side; leaf n: it is not there. in NULL: what
 * is taken for the leaf's own link, up or down, is one that it shares with
 * another leaf. */
typedef struct tt_rival {
    const uint64_t *in;
    uint32_t leaf, with;
    bool down;
} tt_rival;

enum { TT_RIVAL_LEAVES = 16 }; /* with more it takes too long */

/* The rival that explains most, as p->kept; is_new: of those that are not
 * noted. *least: how much less it explains, at most; lower: one was found. */
tutti_err tt_rival_find(tt_plane *p, bool is_new, tt_rival *to, double *least);
void tt_rival_note(tt_plane *p, const tt_rival *to);
/* The best becomes one of which no rival explains more. */
tutti_err tt_rivals_settle(tt_plane *p);

/* apart.c: where a rival explains nearly as much, adds a look of which the two
 * say different things. */
tutti_err tt_rounds_apart(tt_plane *p);

#endif
