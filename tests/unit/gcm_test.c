/* SPDX-License-Identifier: BSD-3-Clause
 * gcm_test.c - ipsec-mb is used where it encrypts as OpenSSL does, and is the
 * release that this was built by: each time in a process of its own, as it is
 * looked for once. Sanitizers need the dlsym() that this replaces. */
#include "support/tap.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "link/tls.h"

#if TT_HAVE_OPENSSL && TT_HAVE_IPSEC_MB && defined(__x86_64__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <intel-ipsec-mb.h>

/* What is wrong with the library. */
typedef enum fault {
    NONE,
    LACKS_A_CALL,
    OTHER_RELEASE,
    NO_MANAGER,
    NOT_WIDE,
    ENC_TEXT,
    ENC_LATE, /* the last byte only */
    ENC_TAG,
    DEC_TEXT,
    DEC_TAG,
    N_FAULTS
} fault;

static fault what;
static unsigned version; /* of the library */
static void *real_init;  /* its init_mb_mgr_auto */
static IMB_MGR saved;

static unsigned tell_other(void)
{
    return version + (1u << 8);
}

static IMB_MGR *open_none(uint64_t flags)
{
    (void)flags;
    return NULL;
}

static void spoil_text(const struct gcm_key_data *key,
                       struct gcm_context_data *record, uint8_t *out,
                       const uint8_t *in, uint64_t n)
{
    const bool is_enc = what == ENC_TEXT || what == ENC_LATE;
    (is_enc ? saved.gcm128_enc_update : saved.gcm128_dec_update)(key, record,
                                                                 out, in, n);
    if (what != ENC_LATE || n == 1)
        out[n - 1] ^= 1;
}

static void spoil_tag(const struct gcm_key_data *key,
                      struct gcm_context_data *record, uint8_t *tag, uint64_t n)
{
    (what == ENC_TAG ? saved.gcm128_enc_finalize
                     : saved.gcm128_dec_finalize)(key, record, tag, n);
    tag[n - 1] ^= 1;
}

static void init_wrong(IMB_MGR *mgr, IMB_ARCH *arch)
{
    void (*init)(IMB_MGR *, IMB_ARCH *);
    memcpy(&init, &real_init, sizeof(init));
    init(mgr, arch);
    saved = *mgr;
    if (what == NOT_WIDE)
        mgr->features &= ~(uint64_t)IMB_FEATURE_VAES;
    if (what == ENC_TEXT || what == ENC_LATE)
        mgr->gcm128_enc_update = spoil_text;
    if (what == DEC_TEXT)
        mgr->gcm128_dec_update = spoil_text;
    if (what == ENC_TAG)
        mgr->gcm128_enc_finalize = spoil_tag;
    if (what == DEC_TAG)
        mgr->gcm128_dec_finalize = spoil_tag;
}

/* Stands in front of the C library's. */
__attribute__((visibility("default"))) void *dlsym(void *lib, const char *name)
{
    static void *(*real)(void *, const char *);
    if (!real)
        *(void **)(&real) = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    void *at = real(lib, name);
    if (what == NONE || !at)
        return at;
    if (strcmp(name, "imb_get_version") == 0) {
        unsigned (*tell)(void);
        memcpy(&tell, &at, sizeof(at));
        version = tell();
        tell = tell_other;
        memcpy(&at, what == OTHER_RELEASE ? (void *)&tell : (void *)&at,
               sizeof(at));
    } else if (strcmp(name, "alloc_mb_mgr") == 0 && what == NO_MANAGER) {
        IMB_MGR *(*open)(uint64_t) = open_none;
        memcpy(&at, &open, sizeof(at));
    } else if (strcmp(name, "init_mb_mgr_auto") == 0) {
        void (*init)(IMB_MGR *, IMB_ARCH *) = init_wrong;
        real_init = at;
        memcpy(&at, &init, sizeof(at));
    } else if (strcmp(name, "free_mb_mgr") == 0 && what == LACKS_A_CALL) {
        at = NULL;
    }
    return at;
}

static void say_nothing(void *arg, tutti_log_level level, const char *line)
{
    (void)arg, (void)level, (void)line;
}

/* Is it used, in a process where that is wrong? */
static bool is_used(fault f)
{
    int status = -1;
    pid_t child = fork();
    if (child == 0) {
        what = f;
        tutti_log_set(say_nothing, NULL);
        tt_gcm *g = tt_gcm_new(true);
        const bool has_one = g != NULL;
        tt_gcm_free(g);
        _exit(has_one ? 1 : 0);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) <= 1);
    return WEXITSTATUS(status) == 1;
}

static void only_where_it_is_right(void **state)
{
    (void)state;
    if (!is_used(NONE))
        skip(); /* it is not here, or this processor is not wide */
    for (int f = LACKS_A_CALL; f < N_FAULTS; f++)
        if (is_used((fault)f))
            fail_msg("it is used with fault %d", f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_where_it_is_right),
    };
    return TT_RUN_TAP(tests);
}

#else

int main(void)
{
    printf("1..0 # SKIP built without ipsec-mb, or with a sanitizer\n");
    return 0;
}

#endif
