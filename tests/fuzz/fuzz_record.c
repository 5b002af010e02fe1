/* SPDX-License-Identifier: BSD-3-Clause
 * fuzz_record.c - any bytes may lie where a rank's record is looked for. What
 * is refused comes with a sentence; of the rest a trace is made, as one rank of
 * a job and as two, whatever the numbers in it say, and no memory is lost. */
#include "support/alloc.h"
#include "support/fuzz_main.h"

#include "export/export.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static bool add(tt_measured *m, const uint8_t *data, size_t len, uint32_t rank)
{
    tutti_diag diag = {0};
    tt_trail_head head;
    const bool is_whole = len >= sizeof(head);
    if (is_whole) {
        memcpy(&head, data, sizeof(head));
        head.rank = rank ? rank : head.rank;
    }
    const void *what = is_whole ? (const void *)&head : data;
    if (!tt_measured_add(m, "x", what, is_whole ? sizeof(head) : len, &diag))
        return true;
    if (!diag.text[0])
        tt_fuzz_fail("a refusal without a sentence");
    return false;
}

static bool read_all(tt_measured *m, const uint8_t *data, size_t len)
{
    if (tt_measured_choose(m, 0, NULL))
        tt_fuzz_fail("there is no latest job");
    for (size_t i = 0; i < m->n_files; i++) {
        m->files[i].data = tt_new(m->mem, len + 1, 1);
        if (!m->files[i].data)
            return false;
        memcpy(m->files[i].data, data, len);
        m->files[i].len = len;
    }
    return true;
}

static void merge(const tt_mem *mem, const uint8_t *data, size_t len,
                  uint32_t n_files)
{
    tt_measured m = {.mem = mem};
    const tutti_merge_opts opts = TUTTI_MERGE_OPTS_INIT;
    tutti_merge_info info;
    tutti_diag diag = {0};
    char *text = NULL;
    size_t text_len = 0;
    bool is_read = true;
    for (uint32_t r = 0; r < n_files && is_read; r++)
        is_read = add(&m, data, len, r);
    is_read = is_read && read_all(&m, data, len);
    if (is_read &&
        tt_measured_trace(&m, &opts, &info, &text, &text_len, &diag)) {
        if (!diag.text[0])
            tt_fuzz_fail("an error without a sentence");
    } else if (is_read) {
        if (strlen(text) != text_len || text[0] != '{')
            tt_fuzz_fail("the trace is no text");
        tt_free(mem, text, text_len + 1, 1);
    }
    tt_measured_free(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    tt_test_mem m;
    const tt_mem mem = tt_test_mem_init(&m, 0);
    tt_trail_head head;
    if (len >= sizeof(head)) {
        memcpy(&head, data, sizeof(head));
        if (head.n_ranks > 64) /* rows for all of them: it is a lot of text */
            return 0;
    }
    merge(&mem, data, len, 1);
    merge(&mem, data, len, 2);
    if (!tt_test_mem_is_clean(&m))
        tt_fuzz_fail("memory is lost");
    return 0;
}

#ifndef TT_LIBFUZZER
int main(int argc, char **argv)
{
    return tt_fuzz_main(argc, argv, "tests/fuzz/corpus/record",
                        LLVMFuzzerTestOneInput);
}
#endif
