/* SPDX-License-Identifier: BSD-3-Clause
 * ucx.h - UCX for the tests of its transport, by what every machine has. */
#ifndef TT_TESTS_UCX_H
#define TT_TESTS_UCX_H

#define TT_UCX_BY_TCP "tcp,self"
#define TT_UCX_BY_SHM "shm,self"

/* Sets UCX_TLS for the processes to come. Returns NULL, or where there is no
 * UCX a sentence for the skip. The library is not loaded into this process. */
const char *tt_ucx_use(const char *tls);

#endif
