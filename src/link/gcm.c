/* SPDX-License-Identifier: BSD-3-Clause
 * gcm.c - AES-128-GCM by the widest instructions that the processor has.
 *
 * Idea       OpenSSL 3.0 does not know VAES: Intel's library ipsec-mb does, and
 *            takes a third of the time. It is looked for once, at run time, and
 *            used only where the processor has VAES.
 * Trust      It must be of the release that this was built by, and before it is
 *            used it must give what a published example says.
 * Without    OpenSSL's cipher (records.c).
 * Next       records.c. */
#include "link/tls.h"

#if TT_HAVE_OPENSSL

#if TT_HAVE_IPSEC_MB && defined(__x86_64__)

#include <dlfcn.h>
#include <intel-ipsec-mb.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define LIBRARY "libIPSec_MB.so.1"
#define TAG 16

struct tt_gcm {
    _Alignas(64) struct gcm_key_data key; /* as the library has its own */
    struct gcm_context_data record;
    bool seals;
};

/* What the library is asked by name. The rest it tells in its IMB_MGR. */
typedef struct calls {
    unsigned (*version)(void);
    IMB_MGR *(*open)(uint64_t flags);
    void (*choose)(IMB_MGR *mgr, IMB_ARCH *arch);
    void (*close)(IMB_MGR *mgr);
} calls;

static struct {
    pthread_once_t once;
    IMB_MGR *mgr; /* NULL: it is not to be used */
} library = {.once = PTHREAD_ONCE_INIT};

void tt_gcm_key(tt_gcm *g, const uint8_t key[16])
{
    IMB_AES128_GCM_PRE(library.mgr, key, &g->key);
}

void tt_gcm_start(tt_gcm *g, const uint8_t nonce[12], const void *aad, size_t n)
{
    IMB_AES128_GCM_INIT(library.mgr, &g->key, &g->record, nonce, aad, n);
}

void tt_gcm_update(tt_gcm *g, const void *from, size_t n, void *to)
{
    if (g->seals)
        IMB_AES128_GCM_ENC_UPDATE(library.mgr, &g->key, &g->record, to, from,
                                  n);
    else
        IMB_AES128_GCM_DEC_UPDATE(library.mgr, &g->key, &g->record, to, from,
                                  n);
}

void tt_gcm_tag(tt_gcm *g, uint8_t tag[16])
{
    if (g->seals)
        IMB_AES128_GCM_ENC_FINALIZE(library.mgr, &g->key, &g->record, tag, TAG);
    else
        IMB_AES128_GCM_DEC_FINALIZE(library.mgr, &g->key, &g->record, tag, TAG);
}

/* Test case 4 of "The Galois/Counter Mode of Operation (GCM)" by McGrew and
 * Viega, in pieces as records have them. */
static bool knows_example(void)
{
    static const char key[] = "feffe9928665731c6d6a8f9467308308",
                      nonce[] = "cafebabefacedbaddecaf888",
                      aad[] = "feedfacedeadbeeffeedfacedeadbeefabaddad2",
                      text[] = "d9313225f88406e5a55909c5aff5269a"
                               "86a7a9531534f7da2e4c303d8a318a72"
                               "1c3c0c95956809532fcf0e2449a6b525"
                               "b16aedf5aa0de657ba637b39",
                      sealed[] = "42831ec2217774244b7221b784d0d49c"
                                 "e3aa212f2c02a4e035c17e2329aca12e"
                                 "21d514b25466931c7d8f6a5aac84aa05"
                                 "1ba30b396a0aac973d58e091",
                      tag[] = "5bc94fbc3221a5db94fae95ae7121a47";
    static const char *const words[] = {key, nonce, aad, text, sealed, tag};
    uint8_t in[6][60], out[2][60], out_tag[2][TAG];
    bool is_well = true;
    for (int i = 0; i < 6; i++) {
        size_t n;
        is_well = is_well && OPENSSL_hexstr2buf_ex(in[i], sizeof(in[i]), &n,
                                                   words[i], '\0');
    }
    for (int seals = 0; seals < 2 && is_well; seals++) {
        tt_gcm *g = aligned_alloc(64, sizeof(*g));
        if (!g)
            return false;
        g->seals = seals;
        tt_gcm_key(g, in[0]);
        tt_gcm_start(g, in[1], in[2], 20);
        tt_gcm_update(g, in[seals ? 3 : 4], 59, out[seals]);
        tt_gcm_update(g, in[seals ? 3 : 4] + 59, 1, out[seals] + 59);
        tt_gcm_tag(g, out_tag[seals]);
        is_well = memcmp(out[seals], in[seals ? 4 : 3], 60) == 0 &&
                  memcmp(out_tag[seals], in[5], TAG) == 0;
        tt_gcm_free(g);
    }
    return is_well;
}

static bool find_calls(void *lib, calls *out)
{
    static const char *const names[] = {"imb_get_version", "alloc_mb_mgr",
                                        "init_mb_mgr_auto", "free_mb_mgr"};
    void *at[4];
    for (int i = 0; i < 4; i++) {
        at[i] = dlsym(lib, names[i]);
        if (!at[i])
            return false;
    }
    memcpy(&out->version, &at[0], sizeof(at[0]));
    memcpy(&out->open, &at[1], sizeof(at[1]));
    memcpy(&out->choose, &at[2], sizeof(at[2]));
    memcpy(&out->close, &at[3], sizeof(at[3]));
    return true;
}

static void load(void)
{
    void *lib = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    calls c;
    IMB_ARCH arch;
    /* The same release as our header, up to its last number: an older one may
     * have less in its IMB_MGR, and the keys of a newer one may be longer (1.4
     * has the name of 1.3, and writes 256 bytes more). */
    if (!lib || !find_calls(lib, &c) ||
        c.version() >> 8 != IMB_VERSION_NUM >> 8)
        return;
    library.mgr = c.open(0);
    if (!library.mgr)
        return;
    c.choose(library.mgr, &arch);
    bool is_wide = (library.mgr->features & IMB_FEATURE_VAES) != 0;
    if (is_wide && knows_example())
        return;
    if (is_wide)
        TT_WARN("link: " LIBRARY " does not encrypt as it should; OpenSSL's "
                "cipher is used, which is slower");
    c.close(library.mgr);
    library.mgr = NULL;
}

tt_gcm *tt_gcm_new(bool seals)
{
    pthread_once(&library.once, load);
    tt_gcm *g = library.mgr ? aligned_alloc(64, sizeof(*g)) : NULL;
    if (g)
        g->seals = seals;
    return g;
}

void tt_gcm_free(tt_gcm *g)
{
    if (g)
        tt_secret_wipe(g, sizeof(*g));
    free(g);
}

#else /* without ipsec-mb */

tt_gcm *tt_gcm_new(bool seals)
{
    (void)seals;
    return NULL;
}

void tt_gcm_key(tt_gcm *g, const uint8_t key[16])
{
    (void)g, (void)key;
}

void tt_gcm_start(tt_gcm *g, const uint8_t nonce[12], const void *aad, size_t n)
{
    (void)g, (void)nonce, (void)aad, (void)n;
}

void tt_gcm_update(tt_gcm *g, const void *from, size_t n, void *to)
{
    (void)g, (void)from, (void)n, (void)to;
}

void tt_gcm_tag(tt_gcm *g, uint8_t tag[16])
{
    (void)g, (void)tag;
}

void tt_gcm_free(tt_gcm *g)
{
    (void)g;
}

#endif

#endif
