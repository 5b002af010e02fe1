/* SPDX-License-Identifier: BSD-3-Clause
 * fuzz_boot.c - any bytes may come to a rank at start-up: from strangers, and
 * from launchers in the form of texts. A header that passes promises no more
 * bytes than its kind may have; a sentence from outside is printable. */
#include "support/fuzz_main.h"

#include <string.h>

#include "base/sock.h"
#include "boot/frame.h"
#include "boot/launch.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

#define N_RANKS 8
#define PIECE 1000

static void check_frame(const uint8_t *data, size_t len)
{
    static const tt_frame like = {.job = 1, .n_ranks = N_RANKS};
    tt_frame frame;
    if (len < sizeof(frame))
        return;
    memcpy(&frame, data, sizeof(frame));
    if (tt_frame_check(&frame, &like, PIECE) != TT_FRAME_GOOD)
        return;
    uint64_t most = frame.kind == TT_FRAME_ALL     ? N_RANKS * PIECE
                    : frame.kind == TT_FRAME_DATA  ? PIECE
                    : frame.kind == TT_FRAME_ERROR ? TT_FRAME_TEXT
                                                   : 0;
    if (frame.magic != TT_FRAME_MAGIC || frame.version != TT_FRAME_VERSION ||
        frame.len > most)
        tt_fuzz_fail("a header that cannot be has passed");
    if (frame.kind != TT_FRAME_ERROR &&
        (frame.job != 1 || frame.n_ranks != N_RANKS || frame.rank >= N_RANKS))
        tt_fuzz_fail("a header of another job has passed");
}

static void check_sentence(const uint8_t *data, size_t len)
{
    uint32_t extra;
    if (len < sizeof(extra))
        return;
    memcpy(&extra, data, sizeof(extra));
    tutti_diag diag;
    tutti_err err = tt_frame_error(extra, (const char *)data + sizeof(extra),
                                   len - sizeof(extra), &diag);
    if (err >= 0 || strcmp(tutti_errname(err), "unknown") == 0)
        tt_fuzz_fail("a refusal became a success or an unknown error");
    size_t n = strnlen(diag.text, sizeof(diag.text));
    if (n == 0 || n > TT_FRAME_TEXT)
        tt_fuzz_fail("a sentence of impossible length");
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)diag.text[i] < ' ' || diag.text[i] == 127)
            tt_fuzz_fail("a sentence with control characters");
    }
}

static void check_texts(const char *text)
{
    char host[TT_SOCK_HOST];
    uint16_t port = 0;
    memset(host, 'x', sizeof(host));
    if (tt_hostport_split(text, host, &port) &&
        (port == 0 || strnlen(host, sizeof(host)) == sizeof(host) ||
         host[0] == '\0'))
        tt_fuzz_fail("host and port out of nothing");
    tt_addr addr;
    if (tt_addr_numeric(text, 1, &addr) && addr.len > sizeof(addr.u))
        tt_fuzz_fail("an address that is too long");
    char name[16];
    memset(name, 'x', sizeof(name));
    if (tt_slurm_first_host(text, name, sizeof(name)) &&
        (strnlen(name, sizeof(name)) == sizeof(name) || name[0] == '\0' ||
         strpbrk(name, "[],")))
        tt_fuzz_fail("a host's name that cannot be");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    char text[600];
    check_frame(data, len);
    check_sentence(data, len);
    size_t n = len < sizeof(text) - 1 ? len : sizeof(text) - 1;
    memcpy(text, data, n);
    text[n] = '\0';
    check_texts(text);
    return 0;
}

#ifndef TT_LIBFUZZER
int main(int argc, char **argv)
{
    return tt_fuzz_main(argc, argv, "tests/fuzz/corpus/boot",
                        LLVMFuzzerTestOneInput);
}
#endif
