/* SPDX-License-Identifier: BSD-3-Clause
 * trusts.h - trusts for tests. What cannot be made ends the program. */
#ifndef TT_TESTS_TRUSTS_H
#define TT_TESTS_TRUSTS_H

#include <stdbool.h>

#include "link/trust.h"

tt_trust *tt_test_trust(const tt_trust_opts *o);
tt_trust *tt_test_by_secret(const char *secret);
/* By a certificate of a new CA, or of the one that was made last, which ends so
 * many seconds from now. Its files are gone then. */
tt_trust *tt_test_by_cert(bool is_new_ca, long ends_s);

#endif
