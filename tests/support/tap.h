/* SPDX-License-Identifier: BSD-3-Clause
 * tap.h - what every cmocka test includes first. */
#ifndef TT_TESTS_TAP_H
#define TT_TESTS_TAP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <signal.h>
#include <unistd.h>

static inline void tt_out_of_time(int signal)
{
    static const char text[] = "Bail out! This test hangs: its time is over\n";
    (void)signal;
    (void)!write(STDOUT_FILENO, text, sizeof(text) - 1);
    _exit(1);
}

/* The program ends with a sentence after so many seconds. */
static inline void tt_test_limit(unsigned seconds)
{
    signal(SIGALRM, tt_out_of_time);
    alarm(seconds);
}

/* Runs a cmocka group with TAP output. */
#define TT_RUN_TAP(tests)                      \
    (cmocka_set_message_output(CM_OUTPUT_TAP), \
     cmocka_run_group_tests((tests), NULL, NULL))

#endif
