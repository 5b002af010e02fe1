/* SPDX-License-Identifier: BSD-3-Clause
 * status_desk.c - a launcher answers tutti_status() for ranks on other hosts.
 *
 * It listens as ranks do. One question at a time goes to a rank; its answer, in
 * lines of what the rank writes (status_far.c), goes to all who have come by then as
 * it is: an onlooker reads it with care. Who has nothing to tell says so, so that
 * nobody calls the launcher one that does not answer. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/random.h"
#include "status/status.h"

/* The rank takes a second where others do not answer. Who does not read its answer
 * must not hold up the job's output. */
static const uint64_t ask_ns = 2 * TT_NS_PER_S;
static const uint64_t tell_ns = 300 * TT_NS_PER_MS;
enum { MOST_GUESTS = 8, MOST_BYTES = 32 << 20 };

struct tutti_desk {
    tt_link_box *box;
    tt_link_stream guests[MOST_GUESTS];
    size_t n_guests;
    /* Names of its questions begin so; that of the one that is open, "": none is. */
    uint32_t family, n_asked;
    char name[TT_FAR_NAME];
    uint64_t until_ns;
    unsigned char *data; /* of the answer */
    size_t len, cap;
};

tutti_err tutti_desk_open(tutti_desk **out)
{
    tutti_diag diag = TT_DIAG_NONE;
    tutti_err err = tt_process_enter(&diag);
    tutti_desk *d = err ? NULL : tt_new(&tt_mem_std, 1, sizeof(*d));
    if (!err && !d)
        err = tt_fail(&diag, TUTTI_ENOMEM, "out of memory");
    if (!err)
        err = tt_random(&d->family, sizeof(d->family), &diag);
    if (!err)
        err = tt_service_listen(&d->box, &diag);
    if (err)
        tutti_desk_close(d);
    else
        *out = d;
    return tt_report(err, &diag, NULL);
}

/* Whatever was asked is answered. */
static void tell(tutti_desk *d, const void *data, size_t len)
{
    const uint64_t until_ns = tt_now_ns() + tell_ns;
    for (size_t i = 0; i < d->n_guests; i++) {
        tt_link_write_all(&d->guests[i], data, len, until_ns);
        tt_link_stream_close(&d->guests[i]);
    }
    d->n_guests = d->len = 0;
    d->name[0] = '\0';
}

void tutti_desk_give_up(tutti_desk *d)
{
    const tt_job_head nothing = {.magic = TT_REPORT_MAGIC,
                                 .version = TT_STATUS_VERSION};
    tell(d, &nothing, sizeof(nothing));
}

void tutti_desk_close(tutti_desk *d)
{
    if (!d)
        return;
    for (size_t i = 0; i < d->n_guests; i++)
        tt_link_stream_close(&d->guests[i]);
    tt_link_box_close(d->box);
    tt_free(&tt_mem_std, d->data, d->cap, 1);
    tt_free(&tt_mem_std, d, 1, sizeof(*d));
}

int tutti_desk_fd(const tutti_desk *d)
{
    return tt_link_box_fd(d->box);
}

const char *tutti_desk_question(tutti_desk *d)
{
    tt_link_event link;
    const bool is_open = d->name[0] != '\0';
    while (d->n_guests < MOST_GUESTS && tt_link_box_take(d->box, &link))
        d->guests[d->n_guests++] = link.stream;
    if (is_open || d->n_guests == 0)
        return NULL;
    snprintf(d->name, sizeof(d->name), "%08" PRIx32 "%08" PRIx32, d->family,
             ++d->n_asked);
    d->until_ns = tt_now_ns() + ask_ns;
    d->len = 0;
    return d->name;
}

double tutti_desk_waits(const tutti_desk *d)
{
    const uint64_t now_ns = tt_now_ns();
    if (!d->name[0])
        return -1;
    return now_ns < d->until_ns ? (double)(d->until_ns - now_ns) / 1e9 : 0;
}

static int value_of(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -1;
}

static bool add(tutti_desk *d, const char *hex, size_t n)
{
    if (d->len + n / 2 > MOST_BYTES ||
        tt_grow(&tt_mem_std, (void **)(void *)&d->data, &d->cap,
                d->len + n / 2 + 1, 1))
        return false;
    for (size_t i = 0; i + 1 < n; i += 2) {
        const int high = value_of(hex[i]), low = value_of(hex[i + 1]);
        if (high < 0 || low < 0)
            return false;
        d->data[d->len++] = (unsigned char)(high << 4 | low);
    }
    return true;
}

/* What is behind the name, in a line; NULL: the line is none of this desk's. An
 * answer that was given up may come late. */
static const char *find_answer(const tutti_desk *d, const char *line,
                               size_t len, const char **mark)
{
    static const char text[] = TT_FAR_MARK;
    const size_t n = sizeof(text) - 1;
    char family[9];
    snprintf(family, sizeof(family), "%08" PRIx32, d->family);
    const char *at = memmem(line, len, text, n);
    if (!at || (size_t)(line + len - at) < n + TT_FAR_NAME ||
        memcmp(at + n, family, sizeof(family) - 1) != 0)
        return NULL;
    *mark = at;
    return at + n + TT_FAR_NAME;
}

bool tutti_desk_hear(tutti_desk *d, const char *line, size_t len, size_t *n_own)
{
    const char *mark, *end = line + len;
    const char *word = find_answer(d, line, len, &mark);
    if (!word)
        return false;
    *n_own = (size_t)(mark - line);
    while (end > word && (end[-1] == '\n' || end[-1] == '\r'))
        end--;
    const size_t n = (size_t)(end - word);
    const bool is_end = n == 3 && memcmp(word, "end", n) == 0;
    if (memcmp(word - TT_FAR_NAME, d->name, TT_FAR_NAME - 1) != 0)
        return true; /* or there is no question */
    if (is_end && d->len > 0)
        tell(d, d->data, d->len);
    else if (is_end || !add(d, word, n))
        tutti_desk_give_up(d);
    return true;
}
