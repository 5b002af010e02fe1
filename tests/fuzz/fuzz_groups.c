/* SPDX-License-Identifier: BSD-3-Clause
 * fuzz_groups.c - any text as a log of groups: it replays or is refused with a
 * sentence; and any bytes as what comes from a worker: messages or nothing, and
 * as its card, whose addresses are then where it says. */
#include <string.h>

#include "partial/partial.h"
#include "support/fuzz_main.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void nobody(void *ctx, const tutti_group_decision *group)
{
    (void)ctx;
    (void)group;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    tutti_diag diag;
    tt_rule_metrics m;
    tt_rule_up up = {nobody, NULL};
    tt_diag_clear(&diag);
    tutti_err err = tt_rule_replay((const char *)data, len, &tt_mem_std, &up,
                                   &m, &diag);
    if (err && diag.text[0] == '\0')
        tt_fuzz_fail("a refusal without a sentence");
    tt_talk head;
    const unsigned char *payload;
    unsigned char *copy = tt_new(&tt_mem_std, len + 1, 1);
    tt_pipe p = {.mem = &tt_mem_std, .s.fd = -1, .in = copy, .in_len = len};
    memcpy(copy, data, len);
    size_t seen = 0;
    while (tt_pipe_next(&p, 4096, &head, &payload))
        seen += sizeof(head) + head.len;
    if (seen > len)
        tt_fuzz_fail("more came out than went in");
    tt_card card;
    if (tt_card_is_sound(data, len)) {
        memcpy(&card, data, sizeof(card));
        size_t end = sizeof(card);
        for (int i = 0; i < TT_CARD_NETS; i++)
            end += card.lens[i];
        if (end != len || len > TT_CARD_MOST)
            tt_fuzz_fail("a card that does not end where its addresses do");
    }
    tt_free(&tt_mem_std, copy, len + 1, 1);
    return 0;
}

#if !defined(TT_LIBFUZZER)
int main(int argc, char **argv)
{
    return tt_fuzz_main(argc, argv, "tests/fuzz/corpus/groups",
                        LLVMFuzzerTestOneInput);
}
#endif
