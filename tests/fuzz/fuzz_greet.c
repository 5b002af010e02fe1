/* SPDX-License-Identifier: BSD-3-Clause
 * fuzz_greet.c - any bytes may greet, answer, or be told as a card. What is let
 * in has proved all that the listener asks for; an answer tells nothing to
 * somebody who is sent away; a card that is taken has its bytes, and leads to
 * no more ways than there is room for. */
#include "support/fuzz_main.h"

#include <string.h>

#include "link/greet.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static const tt_greet_terms terms = {.purposes = TT_LINK_FOR(TT_LINK_TCP) |
                                                 TT_LINK_FOR(TT_LINK_PROBE) |
                                                 TT_LINK_FOR(TT_LINK_PASS),
                                     .self = {{9, 1}},
                                     .job = 7,
                                     .has_token = true,
                                     .token = {1, 2, 3}};

static void check_answer(const tt_greet_word *hello, tt_link_why why,
                         uint32_t version)
{
    static const tt_greet_word nothing;
    tt_greet_word w = tt_greet_answer(hello, why, &terms.self, version);
    uint32_t agreed;
    tt_link_why heard = tt_greet_judge_reply(&w, hello, &agreed);
    bool is_no_secret = memcmp(w.said, nothing.said, sizeof(w.said)) == 0 &&
                        memcmp(&w.from, &nothing.from, sizeof(w.from)) == 0 &&
                        memcmp(w.token, nothing.token, sizeof(w.token)) == 0;
    if (why != TT_LINK_WELL && !is_no_secret)
        tt_fuzz_fail("who is sent away learns something");
    bool is_same = heard == why ||
                   (why == TT_LINK_WELL && heard == TT_LINK_OTHER_PROCESS);
    if (!is_same)
        tt_fuzz_fail("an answer is heard as another one");
}

static void check_hello(const uint8_t *data, size_t len)
{
    tt_greet_word hello;
    uint32_t version = 0;
    if (len < sizeof(hello))
        return;
    memcpy(&hello, data, sizeof(hello));
    tt_link_why why = tt_greet_judge(&hello, &terms, &version);
    bool is_right = hello.magic == TT_GREET_MAGIC &&
                    hello.version_min <= TT_GREET_VERSION_MAX &&
                    hello.version_max >= TT_GREET_VERSION_MIN &&
                    hello.kind == TT_GREET_HELLO &&
                    (hello.purpose == TT_LINK_TCP ||
                     hello.purpose == TT_LINK_PROBE ||
                     hello.purpose == TT_LINK_PASS) &&
                    hello.job == terms.job &&
                    memcmp(hello.token, terms.token, sizeof(hello.token)) == 0;
    if (why == TT_LINK_WELL && (!is_right || version < TT_GREET_VERSION_MIN ||
                                version > TT_GREET_VERSION_MAX))
        tt_fuzz_fail("a greeting that cannot be has passed");
    if (why > TT_LINK_FULL && why != TT_LINK_STRANGE)
        tt_fuzz_fail("a reason that no listener has");
    if (why != TT_LINK_STRANGE)
        check_answer(&hello, why, version);
}

static void check_reply(const uint8_t *data, size_t len)
{
    static const tt_greet_word hello = {.magic = TT_GREET_MAGIC,
                                        .version_min = 1,
                                        .version_max = 1,
                                        .kind = TT_GREET_HELLO,
                                        .purpose = TT_LINK_TCP,
                                        .nonce = 5,
                                        .to = {{9, 1}}};
    tt_greet_word reply;
    uint32_t version = 0;
    if (len < sizeof(reply))
        return;
    memcpy(&reply, data, sizeof(reply));
    tt_link_why why = tt_greet_judge_reply(&reply, &hello, &version);
    if (why == TT_LINK_WELL &&
        (reply.kind != TT_GREET_REPLY || reply.nonce != hello.nonce ||
         tt_link_id_compare(&reply.from, &hello.to) != 0))
        tt_fuzz_fail("a reply that cannot be has passed");
    if (tt_greet_is_taken(&reply, &hello, 0) && reply.nonce != hello.nonce)
        tt_fuzz_fail("a last word of somebody else");
    if (tt_link_why_text(why)[0] == '\0')
        tt_fuzz_fail("a reason without a text");
}

static void check_card(const uint8_t *data, size_t len)
{
    static const tt_link_card own = {.netns = 1};
    static const tt_iface none;
    tt_link_card card;
    tt_link_way ways[TT_LINK_WAYS];
    size_t used = 0;
    uint8_t *exact = len ? tt_new(&tt_mem_std, len, 1) : NULL;
    if (!exact)
        return;
    memcpy(exact, data, len); /* so that a read beyond it is seen */
    if (tt_link_card_read(&card, exact, len, &used)) {
        const tt_link_here here = {
            .card = &own, .interfaces = "", .ifaces = &none, .n_ifaces = 0};
        if (used > len || used != tt_link_card_bytes(&card))
            tt_fuzz_fail("a card of more bytes than there were");
        size_t n = tt_link_ways(&here, &card, NULL, ways);
        if (n > TT_LINK_WAYS || n > 2 * (size_t)card.n_places)
            tt_fuzz_fail("more ways than addresses");
        for (size_t i = 0; i < n; i++)
            if (ways[i].to.len == 0 || ways[i].to.len > sizeof(ways[i].to.u))
                tt_fuzz_fail("a way to nowhere");
    }
    tt_free(&tt_mem_std, exact, len, 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    check_hello(data, len);
    check_reply(data, len);
    check_card(data, len);
    return 0;
}

#if !defined(TT_LIBFUZZER)
int main(int argc, char **argv)
{
    return tt_fuzz_main(argc, argv, "tests/fuzz/corpus/greet",
                        LLVMFuzzerTestOneInput);
}
#endif
