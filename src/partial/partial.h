/* SPDX-License-Identifier: BSD-3-Clause
 * partial.h - partial reduce: the face of src/partial.
 *
 *   rule        who averages with whom; pure (rule.h)
 *   controller  the rule with a body: hears announcements, tells groups
 *               (controller.h)
 *   standby     copies of a controller, one of which takes over (lead.h)
 *   worker      a member: its session, its mesh, its group (worker.h)
 *   talk        what they and the controller say (talk.h)
 *
 * docs/explanation/partial.md tells the whole. */
#ifndef TT_PARTIAL_PARTIAL_H
#define TT_PARTIAL_PARTIAL_H

#include "partial/controller.h"
#include "partial/rule.h"
#include "partial/talk.h"
#include "partial/worker.h"

#endif
