/* SPDX-License-Identifier: BSD-3-Clause
 * program.c - a bound part and the ops that have performed it, which wait for
 * the next call of its shape (op.c). */
#include "engine/state.h"

tutti_err tt_program_create(tt_bound *bound, const tt_mem *mem,
                            tt_program **out)
{
    tt_program *program = tt_new(mem, 1, sizeof(*program));
    if (!program)
        return TUTTI_ENOMEM;
    *program = (tt_program){.mem = mem, .bound = bound, .n_refs = 1};
    *out = program;
    return TUTTI_OK;
}

const tt_bound *tt_program_bound(const tt_program *program)
{
    return program->bound;
}

static void free_op(tt_program *program, tt_op *op)
{
    tt_free(program->mem, op->copy, op->copy_bytes, 1);
    if (op->gpu_memory)
        op->gpu_memory->call.way->free(op);
    tt_free(program->mem, op->block, op->block_bytes, 1);
    tt_free(program->mem, op, 1, sizeof(*op));
}

void tt_program_unref(tt_program *program)
{
    if (!program || --program->n_refs > 0)
        return;
    while (program->idle) {
        tt_op *op = program->idle;
        program->idle = op->next;
        free_op(program, op);
    }
    tt_bound_free(program->bound);
    tt_free(program->mem, program, 1, sizeof(*program));
}
