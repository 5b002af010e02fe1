/* SPDX-License-Identifier: BSD-3-Clause
 * planes.h - which ports belong together. Private to the folder. */
#ifndef TT_INFER_PLANES_H
#define TT_INFER_PLANES_H

#include "infer/infer.h"

/* of[port]: its plane, numbered by least port; TT_NONE: it reaches nobody.
 * Errors: ENOMEM. */
tutti_err tt_planes_find(const tt_infer_spec *spec, const tt_mem *mem,
                         uint32_t *of, uint32_t *n_planes);

/* Could the port send to the other, in its own plane? */
static inline bool tt_planes_may(const tt_infer_spec *spec, uint32_t src,
                                 uint32_t dst)
{
    return spec->ports[src].host != spec->ports[dst].host &&
           spec->reach[(size_t)src * spec->n_ports + dst] != TT_REACH_NONE;
}

#endif
