/* SPDX-License-Identifier: BSD-3-Clause
 * control.h - a controller's own structs; private to src/partial.
 *
 * controller.c  the thread: workers come, and are heard
 * tell.c        their groups are told
 * knock.c       whether one that is away still lives
 * slots.c       numbers of workers, more of which may come
 * standby.c     records and orders: its copies, and how it takes over
 * prints.c      what newcomers compare with
 * wait.c        who waits for whom, in the log
 *
 * Slots      There is one for each number that a worker has had, and for those
 *            of the start; up to opts.rule.most.
 * Circles    controller.c prints.c standby.c tell.c wait.c: what happens to
 *            workers makes records and groups, and what the copies say of those
 *            lets orders go to workers; whatever is told goes through their
 *            pipes. */
#ifndef TT_PARTIAL_CONTROL_H
#define TT_PARTIAL_CONTROL_H

#include <pthread.h>
#include <stdio.h>

#include "base/patience.h"
#include "link/link.h"
#include "partial/controller.h"
#include "partial/lead.h"
#include "partial/talk.h"

/* Where its worker listens for others. */
typedef struct tt_doorbell {
    tt_link_dial *dial; /* NULL: none is under way */
    bool is_known;      /* it has answered there */
    uint64_t next_ns;
    tt_addr at;
    tt_link_id id;
    uint8_t token[TT_LINK_TOKEN]; /* a wrong one */
} tt_doorbell;

typedef struct tt_guest {
    struct tt_guest *next;
    tt_pipe pipe;
    uint32_t worker; /* TT_NONE: not let in, or gone */
    bool says_bye, is_gone, waits_out;
    bool may_return;  /* when its connection drops */
    uint64_t away_ns; /* since then it has none; 0: it has */
    bool is_missed;   /* the log says so */
    bool is_dead;     /* it has none, and does not listen any more */
    tt_doorbell knock;
    bool is_newcomer;
    bool is_welcome; /* it was told so, before all else */
    uint64_t old;    /* a group of the leader before that it is in; 0: none */
    uint64_t broken; /* the last group of which it was told so */
    uint64_t heard_ns;
    uint32_t n_cpus; /* of its host; 0: not known */
    bool is_checked;
    uint64_t host;
    size_t card_bytes; /* 0: it has not told its card */
    unsigned char card[TT_CARD_MOST];
    uint64_t *knows; /* a bit for each worker whose card it was told */
    size_t n_words;  /* of these */
    /* A newcomer: with whom it will compare, in which group. 0: nobody. */
    uint64_t compares;
    uint32_t source;
    tt_patience waits; /* for a group */
    /* It waits until this controller leads. */
    bool is_held;
    tt_join join;
    /* It is a standby; index: among the controllers. */
    bool is_standby;
    uint32_t index;
    uint64_t owes; /* it is heard when it has acknowledged so many records */
} tt_guest;

/* The last group that a worker was put into. */
typedef struct tt_kept {
    uint32_t incarnation; /* of the worker, as recorded */
    uint32_t cap;
    uint64_t record;
    tt_talk head; /* len 0: none */
    char *said;
} tt_kept;

/* What is told when its record is. */
typedef struct tt_due {
    struct tt_due *next;
    uint64_t record, group; /* group 0: the worker is let in */
    uint32_t n;
    uint32_t workers[]; /* [n] */
} tt_due;

struct tutti_controller {
    tt_mem mem;
    tt_controller_opts o;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool has_thread, stops;
    int epoll_fd, wake_fd;
    tt_link_box *box; /* workers that come */
    tt_link_listener *listener;
    tt_link_listener *nest; /* a unix socket; NULL: none */
    uint64_t origin;        /* in the ids of groups */
    tt_rule *rule;
    tt_str log;
    char log_name[256]; /* for messages */
    FILE *log_file;
    tt_guest *guests;
    uint32_t n_slots, cap; /* cap: there is room for */
    tt_guest **by_worker;  /* [cap] */
    uint32_t n_here;
    bool has_come;
    uint64_t turn_ns;  /* when the last turn was */
    uint64_t open_ns;  /* since when workers may come */
    tt_patience waits; /* for those of the start */
    char *message; /* of a group: head and seats; room for a header before */
    size_t message_bytes;
    uint32_t *members; /* [cap] */
    /* Who leads. */
    tt_lead lead;
    tt_lead_row *rows; /* [cap] */
    tt_kept *kept;     /* [cap] */
    tt_due *orders, **orders_end;
    uint64_t n_groups;              /* the greatest id */
    tt_guest *copies[TT_LEADERS];   /* standbys that follow this one */
    tt_link_card cards[TT_LEADERS]; /* of standbys; n_places 0: none */
    tt_link_card own;
    char over[160]; /* why it has ended; "": it has not */
    /* To the one that leads. */
    tt_addr leader; /* where it was */
    tt_pipe up;
    uint64_t up_heard_ns, up_said_ns, next_ns;
    bool has_missed; /* who did not come when it took over is counted as dead */
    uint64_t left_ns; /* since then it leads without a controller that it had */
    uint64_t led_ns;  /* since then it leads, after another one; 0: the first */
    tt_link_dial *dial; /* NULL: none is under way */
    uint32_t n_dials;
};

/* controller.c */
void tt_control_put(tt_controller *c, tt_guest *g, const tt_talk *head,
                    const void *payload);
void tt_control_say(tt_controller *c, tt_guest *g, tt_talk_kind kind,
                    uint64_t number, const char *text);
void tt_control_refuse(tt_controller *c, tt_guest *g, tutti_err err,
                       const char *text);
/* A worker that was here under the leader before. */
void tt_control_admit_again(tt_controller *c, tt_guest *g);
void tt_control_welcome(tt_controller *c, tt_guest *g);
/* [open] A rule of its own, and the log of it. */
tutti_err tt_control_make_rule(tt_controller *c, tutti_diag *diag);

/* tell.c: the group that its worker is in; 0: none. */
uint64_t tt_control_group_of(const tt_controller *c, const tt_guest *g);
/* The rule's. */
void tt_control_decided(void *ctx, const tutti_group_decision *d);
void tt_control_tell_group(tt_controller *c, tt_guest *g);
/* It has told its card: those of its group are told, unless they were. */
void tt_control_tell_card(tt_controller *c, const tt_guest *g);
/* Other members of the group, which are still at it, are told. */
void tt_control_tell_broken(tt_controller *c, uint32_t worker, uint64_t group,
                            uint8_t flags, const char *text);
/* False: no memory. */
bool tt_control_keep(tt_controller *c, uint32_t worker, uint64_t record,
                     const tt_talk *head, const void *payload);

/* slots.c */
/* [open] */
tutti_err tt_slots_open(tt_controller *c, uint32_t n, tutti_diag *diag);
void tt_slots_fini(tt_controller *c);
/* There is a slot for this worker. Errors: ENOMEM, ELIMIT. */
tutti_err tt_slots_make_room(tt_controller *c, uint32_t worker);
/* What it knows has room for so many workers. Errors: ENOMEM. */
tutti_err tt_slots_widen_known(tt_controller *c, tt_guest *g, uint32_t cap);
/* NULL: it is not here. Any number. */
tt_guest *tt_slots_guest(const tt_controller *c, uint32_t worker);
/* One of the start that nobody has had, else the first that nobody has, else
 * another one. TT_NONE: there are as many workers as there may be. */
uint32_t tt_slots_free_one(const tt_controller *c);
/* It was here, or at a controller before this one, as the worker that is
 * recorded. */
bool tt_slots_was_here(const tt_controller *c, const tt_join *join);

/* prints.c */
/* It is told this group: as a newcomer it will compare. */
void tt_prints_expect(tt_guest *g, uint64_t group, const void *seats,
                      uint32_t n);
/* What it has, for the newcomers of its last group. */
bool tt_prints_hear(tt_controller *c, tt_guest *g, const tt_talk *head,
                    const unsigned char *payload);
/* It says no more about the group before. */
void tt_prints_end(tt_controller *c, uint32_t worker);

/* wait.c: each turn. */
void tt_wait_turn(tt_controller *c, uint64_t now);

/* knock.c: it has told its card: does it answer there? */
void tt_knock_meet(tt_controller *c, tt_guest *g);
/* It is away: dials it where that is known. */
void tt_knock_turn(tt_controller *c, tt_guest *g, uint64_t now);
/* Whose dial it is, which may be gone now; NULL: it is none. */
tt_guest *tt_knock_hear(const tt_link_event *link);
bool tt_knock_is_frozen(const tt_guest *g);
void tt_knock_end(tt_guest *g); /* idempotent */

/* standby.c */
uint64_t tt_standby_record(tt_controller *c, tt_record_kind kind,
                           uint32_t worker, const void *payload, size_t len);
/* When its record is known to all: the order is given. */
void tt_standby_order(tt_controller *c, uint64_t record, uint64_t group,
                      const uint32_t *workers, uint32_t n);
/* A worker has come who must wait until this controller leads. */
void tt_standby_hold(tt_controller *c, tt_guest *g);
/* A standby has come; has told its card; has said something; is gone. */
void tt_standby_come(tt_controller *c, tt_guest *g);
bool tt_standby_hear(tt_controller *c, tt_guest *g, const tt_talk *head,
                     const unsigned char *payload);
/* It owes acknowledgements: other words do not count. */
bool tt_standby_is_behind(const tt_controller *c, const tt_guest *g);
void tt_standby_gone(tt_controller *c, tt_guest *g);
/* The controllers that a worker may go to. */
void tt_standby_tell(tt_controller *c, tt_guest *g);
/* [open] Blocks until the leader has told what it goes by. */
tutti_err tt_standby_join(tt_controller *c, tutti_diag *diag);
/* [open] It listens now. */
void tt_standby_begin(tt_controller *c);
/* Each turn. */
void tt_standby_turn(tt_controller *c, uint64_t now);
void tt_standby_hear_leader(tt_controller *c);
/* A dial of its own, if it is one. */
bool tt_standby_hear_dial(tt_controller *c, const tt_link_event *link);
/* Somebody knows this term; it may be over. */
void tt_standby_hear_term(tt_controller *c, uint64_t term);
void tt_standby_fini(tt_controller *c);

#endif
