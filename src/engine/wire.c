/* SPDX-License-Identifier: BSD-3-Clause
 * wire.c - fingerprints and names of calls. */
#include "engine/wire.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/units.h"
#include "schedule/schedule.h"

static bool is_known(const tt_call *call)
{
    return call->coll < TUTTI_COLL_COUNT && call->type < TUTTI_TYPE_COUNT &&
           call->op < TUTTI_OP_COUNT;
}

uint64_t tt_call_bytes(const tt_call *call)
{
    if (!is_known(call) || call->coll == TUTTI_BARRIER)
        return 0;
    return call->count * tutti_type_bytes((tutti_type)call->type);
}

void tt_call_title(const tt_call *call, char *text, size_t size)
{
    char bytes[TT_UNITS_TEXT];
    if (!is_known(call) || call->coll == TUTTI_BARRIER) {
        tt_call_print(call, text, size);
        return;
    }
    snprintf(text, size, "%s of %s", tutti_coll_name((tutti_coll)call->coll),
             tt_units_bytes((double)tt_call_bytes(call), bytes));
}

void tt_call_print(const tt_call *call, char *text, size_t size)
{
    tutti_coll coll = (tutti_coll)call->coll;
    if (!is_known(call)) {
        snprintf(text, size, "an unknown call");
        return;
    }
    if (coll == TUTTI_BARRIER) {
        snprintf(text, size, "barrier");
        return;
    }
    char root[32] = "";
    if (call->root != TT_NONE)
        snprintf(root, sizeof(root), ", root %" PRIu32, call->root);
    bool reduces = tt_coll_reduces(coll);
    snprintf(text, size, "%s of %" PRIu64 " %s%s%s%s%s", tutti_coll_name(coll),
             call->count, tutti_type_name((tutti_type)call->type),
             reduces ? " " : "",
             reduces ? tutti_op_name((tutti_op)call->op) : "", root,
             call->is_near ? ", in GPU memory" : "");
}
