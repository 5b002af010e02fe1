/* SPDX-License-Identifier: BSD-3-Clause
 * greet.c - judges words; pure. See greet.h. */
#include "link/greet.h"

#include <string.h>

#include "base/random.h"

tutti_err tt_link_id_make(tt_link_id *out, tutti_diag *diag)
{
    tutti_err err;
    do
        err = tt_random(out, sizeof(*out), diag);
    while (!err && tt_link_id_is_none(out));
    return err;
}

int tt_link_id_compare(const tt_link_id *a, const tt_link_id *b)
{
    return memcmp(a->bytes, b->bytes, sizeof(a->bytes));
}

bool tt_link_id_is_none(const tt_link_id *id)
{
    static const tt_link_id none;
    return tt_link_id_compare(id, &none) == 0;
}

const char *tt_link_why_text(tt_link_why why)
{
    switch (why) {
    case TT_LINK_OTHER_VERSION:
        return "it speaks another version";
    case TT_LINK_OTHER_PURPOSE:
        return "nobody there serves this";
    case TT_LINK_OTHER_JOB:
        return "it belongs to another job";
    case TT_LINK_OTHER_PROCESS:
        return "it is another process";
    case TT_LINK_OTHER_TOKEN:
        return "it has another token";
    case TT_LINK_CROSSED:
        return "its own dial is under way";
    case TT_LINK_FULL:
        return "it has no room for more links";
    case TT_LINK_UNPROVEN:
        return "it asks for a secret, and none is set here";
    case TT_LINK_OTHER_SEAL:
        return "only one side has TUTTI_ENCRYPT=0";
    case TT_LINK_NO_WAY:
        return "it knows no way there";
    case TT_LINK_REFUSED:
        return "it cannot be reached";
    case TT_LINK_WELL: /* it was not tried to its end */
    case TT_LINK_SILENT:
        return "no answer";
    case TT_LINK_UNGREETED:
        return "it is connected, but does not answer";
    case TT_LINK_STRANGE:
        return "what is there is not Tutti, or hangs up";
    case TT_LINK_OTHER_USER:
        return "it is a process of another user";
    case TT_LINK_OTHER_SECRET:
        return "it does not know the secret (or has another CA)";
    case TT_LINK_NO_SECRET:
        return "it does not prove who it is (no secret?)";
    }
    return "unknown";
}

/* The greatest version of both ranges; 0: none. */
static uint32_t agree(const tt_greet_word *w)
{
    uint32_t most = w->version_max < TT_GREET_VERSION_MAX
                        ? w->version_max
                        : TT_GREET_VERSION_MAX;
    bool is_common = w->version_min <= most && most >= TT_GREET_VERSION_MIN;
    return is_common ? most : 0;
}

/* In a time that does not tell how much of it was right. */
static bool is_token(const uint8_t *a, const uint8_t *b)
{
    uint8_t other = 0;
    for (size_t i = 0; i < TT_LINK_TOKEN; i++)
        other |= a[i] ^ b[i];
    return other == 0;
}

tt_link_why tt_greet_judge(const tt_greet_word *hello,
                           const tt_greet_terms *terms, uint32_t *version)
{
    if (hello->magic != TT_GREET_MAGIC)
        return TT_LINK_STRANGE;
    *version = agree(hello);
    if (*version == 0) {
        *version = hello->version_max;
        return TT_LINK_OTHER_VERSION;
    }
    if (hello->kind != TT_GREET_HELLO)
        return TT_LINK_STRANGE;
    if (hello->purpose >= TT_LINK_PURPOSES ||
        !(terms->purposes & TT_LINK_FOR(hello->purpose)))
        return TT_LINK_OTHER_PURPOSE;
    if (terms->job != 0 && hello->job != terms->job)
        return TT_LINK_OTHER_JOB;
    if (!tt_link_id_is_none(&hello->to) &&
        tt_link_id_compare(&hello->to, &terms->self) != 0)
        return TT_LINK_OTHER_PROCESS;
    if (terms->has_token && !is_token(hello->token, terms->token))
        return TT_LINK_OTHER_TOKEN;
    return TT_LINK_WELL;
}

tt_link_why tt_greet_judge_reply(const tt_greet_word *reply,
                                 const tt_greet_word *hello, uint32_t *version)
{
    if (reply->magic != TT_GREET_MAGIC)
        return TT_LINK_STRANGE;
    *version = agree(reply);
    if (*version == 0) {
        *version = reply->version_max;
        return TT_LINK_OTHER_VERSION;
    }
    if (reply->nonce != hello->nonce || reply->purpose != hello->purpose ||
        reply->strand != hello->strand)
        return TT_LINK_STRANGE;
    if (reply->kind == TT_GREET_REFUSE && reply->why > TT_LINK_WELL &&
        reply->why <= TT_LINK_NO_WAY)
        return (tt_link_why)reply->why;
    if (reply->kind != TT_GREET_REPLY)
        return TT_LINK_STRANGE;
    if (!tt_link_id_is_none(&hello->to) &&
        tt_link_id_compare(&reply->from, &hello->to) != 0)
        return TT_LINK_OTHER_PROCESS;
    return TT_LINK_WELL;
}

tt_greet_word tt_greet_answer(const tt_greet_word *hello, tt_link_why why,
                              const tt_link_id *self, uint32_t version)
{
    bool is_well = why == TT_LINK_WELL;
    tt_greet_word w = {.magic = TT_GREET_MAGIC,
                       .version_min = TT_GREET_VERSION_MIN,
                       .version_max = TT_GREET_VERSION_MAX,
                       .kind = is_well ? TT_GREET_REPLY : TT_GREET_REFUSE,
                       .purpose = hello->purpose,
                       .why = (uint8_t)why,
                       .strand = hello->strand,
                       .nonce = hello->nonce};
    if (!is_well)
        return w; /* who is not let in learns nothing more */
    w.version_min = w.version_max = (uint16_t)version;
    w.job = hello->job;
    w.from = *self;
    w.to = hello->from;
    return w;
}

bool tt_greet_is_taken(const tt_greet_word *word, const tt_greet_word *hello,
                       uint64_t nonce)
{
    return memcmp(word->said, &nonce, sizeof(nonce)) == 0 &&
           word->magic == TT_GREET_MAGIC && word->kind == TT_GREET_TAKEN &&
           word->nonce == hello->nonce && word->purpose == hello->purpose &&
           word->strand == hello->strand;
}
