/* SPDX-License-Identifier: BSD-3-Clause
 * rulestate.h - the rule's own structs; private to src/partial.
 *
 * rule.c       events, when a group is due
 * choice.c     who is in it
 * sites.c      who is in it, where workers are at several sites
 * soon.c       who is waited for, when P is to be chosen
 * mixing.c     the history: components, what it mixes
 * weights.c    the weights in it
 * groupsize.c  P, when it is to be chosen
 * grouplog.c   the log, and its replay
 *
 * Circles    choice.c grouplog.c mixing.c rule.c sites.c soon.c: it is one
 *            rule. Who is chosen depends on the history, on sites and on who is
 *            expected, and each of these asks who may be chosen; the log
 *            replays events through the rule that writes them. */
#ifndef TT_PARTIAL_RULESTATE_H
#define TT_PARTIAL_RULESTATE_H

#include "base/clock.h"
#include "partial/rule.h"

typedef enum tt_rule_worker_state {
    TT_WORKER_ABSENT,
    TT_WORKER_AWAY, /* computes */
    TT_WORKER_READY,
    TT_WORKER_BUSY /* in a group */
} tt_rule_worker_state;

typedef struct tt_rule_worker {
    uint8_t state;
    bool has_come;                    /* ever */
    bool is_newcomer;                 /* its model counts for nothing yet */
    bool was_newcomer;                /* busy: until this group */
    bool is_last;                     /* it announces no more steps */
    bool is_final;                    /* busy: in a group of the end */
    bool has_ended;                   /* such a group went well for it */
    bool goes_ahead;                  /* it computes while a group works */
    bool is_far;                      /* busy: its group has several sites */
    uint32_t incarnation, next, prev; /* in the queue; TT_NONE ends it */
    uint32_t group_n;                 /* busy: counts as of that size */
    uint32_t site;                    /* index */
    uint32_t site_next, site_prev;    /* in its list; TT_NONE ends it */
    uint64_t place, iteration, group;
    uint64_t base; /* the iteration that its last group left it at */
    uint64_t ready_ns, released_ns; /* by its last group; 0: never */
    uint64_t joined_ns;
    uint64_t group_ns; /* busy: since when */
    double step_ns;    /* that it computes; 0: not known */
} tt_rule_worker;

/* Workers that reach each other cheaply, a rack. Group of several sites: "far".
 * Idle ones (nobody is there) are used again. */
typedef struct tt_site {
    uint32_t id;                  /* as places have it */
    uint32_t first;               /* of its workers */
    uint32_t n_there;             /* those that are not absent */
    uint32_t n_active;            /* of those, who still compute */
    uint32_t n_ready;             /* of those, who are */
    uint32_t n_far;               /* are in a far group */
    uint32_t n_chosen;            /* for the group being made */
    uint64_t rested_ns, pause_ns; /* since its last far group; the least */
    uint64_t tried_ns;            /* it waited for others in vain; 0: never */
    uint64_t looked;              /* the last look at it */
    bool is_due;                  /* a far group may be */
} tt_site;

typedef struct tt_queue {
    uint32_t head, tail, n;
} tt_queue;

/* The last groups: a ring of groups over a ring of members. */
typedef struct tt_past_group {
    uint64_t id, first; /* first: counts members since the beginning */
    uint32_t n;         /* 0: it broke, and joined nobody */
} tt_past_group;

typedef struct tt_mixing {
    tt_past_group *groups; /* [group_cap] */
    uint32_t *members;     /* [member_cap] */
    uint32_t group_cap, member_cap;
    uint64_t n_groups, n_members; /* since the beginning */
    /* The graph of the last groups is connected as long as no more than so many
     * groups have been counted; 0: not known. */
    uint64_t connected_until;
    uint32_t n;                  /* workers that there is room for */
    uint64_t since;              /* members before it are not kept */
    uint32_t *part;              /* [n] union-find, of the last look */
    uint64_t looked;             /* n_groups then + 1; 0: out of date */
    uint32_t components, window; /* then */
    double *x, *y;               /* [n] for the spectral gap */
} tt_mixing;

#define TT_SIZES_MAX 40

/* What each size of group has taken. */
typedef struct tt_sizes {
    uint32_t n;
    uint32_t size[TT_SIZES_MAX];
    double mean_s[TT_SIZES_MAX];
    uint32_t count[TT_SIZES_MAX];
    uint32_t now;   /* index */
    uint64_t trial; /* groups until another size is tried */
    uint64_t n_trials;
} tt_sizes;

struct tt_rule {
    tt_mem mem;
    tt_rule_opts opts;
    tt_rule_up up;
    tt_str *log;
    uint32_t n;   /* numbers of workers there are: those of the start, and up to
                     the greatest that has come */
    uint32_t cap; /* there is room for so many */
    tt_rule_worker *workers; /* [cap] */
    tt_queue ready, ended;   /* ended: those who have announced their last */
    uint32_t n_alive;        /* that still compute: neither absent nor ended */
    uint32_t n_expected;     /* have never come, and may still */
    uint32_t n_ending;       /* is_last, and not has_ended */
    uint32_t n_veterans;     /* there, and no newcomers */
    uint64_t now, start_ns;  /* start_ns 0: nothing has happened */
    uint64_t ended_ns;       /* when the first announced its last */
    uint64_t updates;        /* announcements since the last re-centring */
    uint64_t recentre_ns;    /* since when it has been due; 0: it is not */
    uint64_t hold_ns;        /* since when a second component is awaited */
    uint64_t free_until;     /* no hold before so many groups */
    double step_ns;          /* that a worker computes */
    uint32_t n_there, n_ahead; /* not absent; of those, who go ahead */
    tt_site *sites;            /* [cap] */
    uint32_t n_sites;          /* that have been used */
    uint64_t n_looks;
    double guess_ns;  /* of a step, at most, while none is known */
    double near_ns;   /* that a group of one site takes */
    uint64_t wake_ns; /* when the next wait in sites.c or soon.c ends */
    tt_mixing mixing;
    tt_sizes sizes;
    /* The group being made. */
    uint32_t *chosen; /* [cap] */
    bool *is_chosen;  /* [cap] */
    uint32_t n_chosen;
    bool chose_across;        /* it joins components, on purpose */
    uint32_t counts_as;       /* of which size it tells the time; 0: none,
                                 TT_NONE: its own */
    tt_group_member *members; /* [cap] */
    uint64_t *iterations;     /* [cap] */
    double *weights;          /* [cap] */
    uint64_t *n_of_size;      /* [cap] of one member, of two, ... */
    uint64_t staleness_sum;
    bool has_mixed;       /* told has the mixing as it was before the end */
    tt_rule_metrics told; /* the counters in it */
};

/* sites.c */
/* The worker is at the site of its place, and is not any more. */
void tt_sites_enter(tt_rule *rule, uint32_t worker);
void tt_sites_leave(tt_rule *rule, uint32_t worker);
/* Groups are made of one site, or of several: there are such. */
bool tt_sites_matter(const tt_rule *rule);
/* As tt_rule_choose(), where sites matter: who is in the next group, if one is
 * due. */
bool tt_sites_choose(tt_rule *rule);
/* The members chosen are busy from now on, with a group. */
bool tt_sites_is_far(const tt_rule *rule);
/* The worker has done with its group, or is gone. */
void tt_sites_end(tt_rule *rule, tt_rule_worker *w, bool well);

/* soon.c */
/* Neither P nor how long a group waits is given. */
bool tt_soon_rules(const tt_rule *rule);
/* P then: all, or the largest site. */
uint32_t tt_soon_most(const tt_rule *rule);
/* A group whose first member is ready since then need not wait: nobody else is
 * about to come. Else wake_ns tells when to ask again. */
bool tt_soon_none_comes(tt_rule *rule, uint64_t since);

/* rule.c */
/* Whether it is past, now. Waits that workers' steps are the measure of go
 * through this: wake_ns is when the first of them ends. */
bool tt_rule_is_past(tt_rule *rule, uint64_t at);
/* So many steps, as measured or guessed. */
uint64_t tt_rule_steps(const tt_rule *rule, double n);
/* All workers compute while their groups work: nobody waits for one. */
bool tt_rule_goes_ahead(const tt_rule *rule);
/* How long a small group waits for more; 0: for ever. */
uint64_t tt_rule_soft_wait(const tt_rule *rule);

/* choice.c */
/* Workers that an ordinary group can have. */
uint32_t tt_rule_active(const tt_rule *rule);
/* P at the moment, at most the active. */
uint32_t tt_rule_want(const tt_rule *rule);
/* Chooses `want` of the ready; false: they must wait for somebody else. */
bool tt_rule_choose(tt_rule *rule, uint32_t want);
/* How long a frozen graph may wait for another component. */
uint64_t tt_rule_join_wait(const tt_rule *rule);
/* All of the queue. */
void tt_rule_choose_all(tt_rule *rule, const tt_queue *queue);
void tt_rule_choose_more(tt_rule *rule, const tt_queue *queue);
/* What choice.c and sites.c share. */
void tt_rule_drop_choice(tt_rule *rule);
void tt_rule_take(tt_rule *rule, uint32_t worker);
/* Those whose place is that of the first but for its lowest bits, in order. */
void tt_rule_take_near(tt_rule *rule, uint32_t want, uint32_t but_bits);
/* Of a frozen graph, one of each component that is not in the group yet. */
void tt_rule_take_across(tt_rule *rule, uint32_t want);
/* Whether the frozen graph goes on waiting for another component. */
bool tt_rule_must_hold(tt_rule *rule);
/* Somebody has a model; false: wait. */
bool tt_rule_take_veteran(tt_rule *rule);

/* mixing.c */
/* Room for n workers, more than there was; what is kept stays. Errors:
 * ENOMEM. */
tutti_err tt_mixing_widen(tt_mixing *m, const tt_rule_opts *opts, uint32_t n,
                          const tt_mem *mem);
void tt_mixing_fini(tt_mixing *m, const tt_mem *mem);
void tt_mixing_add(tt_rule *rule, uint64_t id);
void tt_mixing_strike(tt_rule *rule, uint64_t id); /* the group broke */
void tt_mixing_forget_look(tt_mixing *m);          /* others are alive now */
uint32_t tt_mixing_window(const tt_rule *rule);
/* Least groups that can connect n workers in groups of p. */
uint32_t tt_mixing_least(uint32_t n, uint32_t p);
/* The window is full, and has several components: part[] tells which. */
bool tt_mixing_is_frozen(tt_rule *rule);
uint32_t tt_mixing_part(const tt_rule *rule, uint32_t worker);
uint32_t tt_mixing_components(tt_rule *rule);
double tt_mixing_gap(tt_rule *rule);

/* weights.c */
void tt_rule_weigh(tt_rule *rule, tt_decision *d);

/* groupsize.c */
void tt_sizes_init(tt_sizes *s, uint32_t n);
/* There are more workers than before. */
void tt_sizes_widen(tt_sizes *s, uint32_t n);
uint32_t tt_sizes_now(const tt_sizes *s);
void tt_sizes_took(tt_sizes *s, uint32_t size, double seconds);
/* A group has been made: which size is next, of n active. */
void tt_sizes_next(tt_sizes *s, uint32_t n);

/* grouplog.c */
void tt_log_begin(tt_rule *rule);
void tt_log_join(tt_rule *rule, uint32_t worker, uint64_t place,
                 uint32_t flags);
void tt_log_announce(tt_rule *rule, uint32_t worker, uint64_t iteration,
                     bool is_last);
void tt_log_done(tt_rule *rule, uint32_t worker, uint64_t group, bool well);
void tt_log_leave(tt_rule *rule, uint32_t worker, bool is_dead);
void tt_log_tick(tt_rule *rule);
void tt_log_group(tt_rule *rule, const tt_decision *d);

#endif
