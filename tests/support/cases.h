/* SPDX-License-Identifier: BSD-3-Clause
 * cases.h - test cases that are one function, run by every rank of a job on
 * a communicator that is there already, over each transport in turn. */
#ifndef TT_TESTS_CASES_H
#define TT_TESTS_CASES_H

#include <tutti.h>

#include "support/procs.h"

/* Sanitizers make everything slower: loops there are shorter. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TT_CASE_SANITIZED 1
#else
#define TT_CASE_SANITIZED 0
#endif

typedef struct tt_case {
    /* Returns 0, or 1 after a complaint; does not destroy the world. */
    int (*run)(tutti_comm *world, int rank, int n);
    int n;
    const char *only; /* NULL: shm, then tcp */
} tt_case;

/* Rows of a cmocka table, inside a function. */
#define TT_CASE_ON(transport, fn, n_ranks)       \
    {                                            \
#fn, tt_case_run, NULL, NULL, &(tt_case) \
        {                                        \
            fn, n_ranks, transport               \
        }                                        \
    }
#define TT_CASE(fn, n_ranks) TT_CASE_ON(NULL, fn, n_ranks)
void tt_case_run(void **state);

/* 0 when got is want; otherwise 1 and a complaint with comm's message (comm
 * may be NULL). */
int tt_expect(tutti_comm *comm, tutti_err got, tutti_err want,
              const char *what);

/* tt_expect of a success. */
int tt_well(tutti_comm *comm, tutti_err got, const char *what);

/* A new communicator of the same ranks; NULL after a complaint. */
tutti_comm *tt_twin(tutti_comm *world);

#endif
