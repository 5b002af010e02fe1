/* SPDX-License-Identifier: BSD-3-Clause
 * generate.h - the makers that the rows of table.c name. Private to the
 * folder.
 *
 * Circles  generate.c genspec.c table.c: a generator has its spec read, which
 *          finds the row of its name, which names the maker */
#ifndef TT_TOPOLOGY_GENERATE_H
#define TT_TOPOLOGY_GENERATE_H

#include "topology/genspec.h"

void tt_make_full(tt_gen *g);
void tt_make_star(tt_gen *g);
void tt_make_rails(tt_gen *g);
void tt_make_racks(tt_gen *g);
void tt_make_boxes(tt_gen *g);
void tt_make_torus(tt_gen *g);
void tt_make_mesh(tt_gen *g);
void tt_make_fattree(tt_gen *g);
void tt_make_bigraph(tt_gen *g);
void tt_make_minsky(tt_gen *g);

#endif
