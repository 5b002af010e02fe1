/* SPDX-License-Identifier: BSD-3-Clause
 * loop.h - the smallest transport: between ranks of one process. */
#ifndef TT_TESTS_LOOP_H
#define TT_TESTS_LOOP_H

#include "net/net.h"

/* Named "loop". It is no row of the table: the library does not know it. */
extern const tt_net_ops tt_net_loop;

#endif
