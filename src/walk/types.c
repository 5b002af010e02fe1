/* SPDX-License-Identifier: BSD-3-Clause
 * types.c - element types and operations by name, and which go together (the
 * kernel table of kernels.c decides). */
#include "walk/reduce.h"

#include <string.h>

static const struct {
    const char *name;
    size_t bytes;
} types[TUTTI_TYPE_COUNT] = {
#define TUTTI_X(name, number, bytes, text) [number] = {text, bytes},
    TUTTI_TYPE_LIST(TUTTI_X)
#undef TUTTI_X
};

static const char *const ops[TUTTI_OP_COUNT] = {
#define TUTTI_X(name, number, text) [number] = text,
    TUTTI_OP_LIST(TUTTI_X)
#undef TUTTI_X
};

size_t tutti_type_bytes(tutti_type type)
{
    return (unsigned)type < TUTTI_TYPE_COUNT ? types[type].bytes : 0;
}

const char *tutti_type_name(tutti_type type)
{
    return (unsigned)type < TUTTI_TYPE_COUNT ? types[type].name : "unknown";
}

const char *tutti_op_name(tutti_op op)
{
    return (unsigned)op < TUTTI_OP_COUNT ? ops[op] : "unknown";
}

tutti_err tutti_type_parse(const char *text, tutti_type *out)
{
    if (!text || !out)
        return TUTTI_EINVAL;
    for (int i = 0; i < TUTTI_TYPE_COUNT; i++) {
        if (strcmp(text, types[i].name) == 0) {
            *out = (tutti_type)i;
            return TUTTI_OK;
        }
    }
    return TUTTI_EINVAL;
}

tutti_err tutti_op_parse(const char *text, tutti_op *out)
{
    if (!text || !out)
        return TUTTI_EINVAL;
    for (int i = 0; i < TUTTI_OP_COUNT; i++) {
        if (strcmp(text, ops[i]) == 0) {
            *out = (tutti_op)i;
            return TUTTI_OK;
        }
    }
    return TUTTI_EINVAL;
}

tutti_err tutti_op_check(tutti_op op, tutti_type type)
{
    return tt_reduce_kernel(type, op) ? TUTTI_OK : TUTTI_EINVAL;
}

tutti_err tt_op_check(tutti_op op, tutti_type type, tutti_diag *diag)
{
    if (tutti_op_check(op, type) == TUTTI_OK)
        return TUTTI_OK;
    return tt_fail(diag, TUTTI_EINVAL, "operation %s is not defined for %s",
                   tutti_op_name(op), tutti_type_name(type));
}
