/* SPDX-License-Identifier: BSD-3-Clause
 * fuzz_nccl_xml.c - any bytes may be handed to the reader of NCCL's topology
 * XML. What is refused has a place and a sentence; what is read writes a file
 * that reads back to the same network. */
#include "support/alloc.h"
#include "support/fuzz_main.h"

#include "topology/topology.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    tt_test_mem m;
    const tt_mem mem = tt_test_mem_init(&m, 0);
    tutti_topology *t = NULL, *u = NULL;
    tt_str text = {.mem = &mem};
    tutti_diag diag;
    tutti_err err = tt_topology_import_nccl(&mem, (const char *)data, len, &t,
                                            &diag);
    if (err && err != TUTTI_ENOFIT &&
        (diag.line == 0 || diag.column == 0 || !diag.text[0]))
        tt_fuzz_fail("an error without a place or a sentence");
    /* An element has four bytes, and is no more than a host and its links. */
    if (m.peak_bytes > (1 << 18) + 1024 * len)
        tt_fuzz_fail("the text costs more memory than it justifies");
    if (!err) {
        tt_topology_write(t, &text);
        if (text.err || tt_topology_parse(&mem, text.data, text.len, &u, NULL))
            tt_fuzz_fail("a written network cannot be read");
        if (u->id != t->id)
            tt_fuzz_fail("a written network reads back to another");
    }
    tt_topology_free(t);
    tt_topology_free(u);
    tt_str_free(&text);
    if (!tt_test_mem_is_clean(&m))
        tt_fuzz_fail("memory is lost");
    return 0;
}

#ifndef TT_LIBFUZZER
int main(int argc, char **argv)
{
    return tt_fuzz_main(argc, argv, "tests/fuzz/corpus/nccl_xml",
                        LLVMFuzzerTestOneInput);
}
#endif
