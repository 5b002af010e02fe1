/* SPDX-License-Identifier: BSD-3-Clause
 * tap.h - what every cmocka test includes first. */
#ifndef TT_TESTS_TAP_H
#define TT_TESTS_TAP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* Runs a cmocka group with TAP output. */
#define TT_RUN_TAP(tests)                      \
    (cmocka_set_message_output(CM_OUTPUT_TAP), \
     cmocka_run_group_tests((tests), NULL, NULL))

#endif
