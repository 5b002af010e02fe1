/* SPDX-License-Identifier: BSD-3-Clause
 * gcm.c - AES-128-GCM by the widest instructions that the processor has.
 *
 * Idea       OpenSSL 3.0 does not know VAES: Intel's library ipsec-mb does, and
 *            takes a third of the time. It is looked for once, at run time, and
 *            used only where the processor has VAES and AVX-512.
 * Trust      It must be of the release that this was built by, and before it is
 *            used it must give what OpenSSL gives.
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
/* What the library's widest way needs. */
#define WIDE IMB_CPUFLAGS_AVX512_T2
#define EXAMPLE 5000

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

/* EXAMPLE bytes of text, by OpenSSL; the tag goes behind them. */
static bool seal_by_openssl(const uint8_t key[16], const uint8_t nonce[12],
                            const uint8_t *text, uint8_t *out)
{
    int n;
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    bool is_well =
        c && EVP_EncryptInit_ex(c, EVP_aes_128_gcm(), NULL, key, nonce) == 1 &&
        EVP_EncryptUpdate(c, NULL, &n, nonce, 5) == 1 &&
        EVP_EncryptUpdate(c, out, &n, text, EXAMPLE) == 1 &&
        EVP_EncryptFinal_ex(c, out + EXAMPLE, &n) == 1 &&
        EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_GET_TAG, TAG, out + EXAMPLE) == 1;
    EVP_CIPHER_CTX_free(c);
    return is_well;
}

/* Does it seal and open as OpenSSL does? In pieces as records have them, and
 * long enough for all that it makes of a key. */
static bool is_as_openssl(tt_gcm *g)
{
    static const uint8_t key[16] = "tutti's example", nonce[12] = "of a record";
    uint8_t text[EXAMPLE], sealed[EXAMPLE + TAG], out[EXAMPLE + TAG];
    for (uint32_t i = 0; i < EXAMPLE; i++)
        text[i] = (uint8_t)(i * 0x9e3779b1u >> 24);
    bool is_well = seal_by_openssl(key, nonce, text, sealed);
    for (int seals = 0; seals < 2 && is_well; seals++) {
        const uint8_t *from = seals ? text : sealed;
        g->seals = seals;
        tt_gcm_key(g, key);
        tt_gcm_start(g, nonce, nonce, 5);
        tt_gcm_update(g, from, EXAMPLE - 1, out);
        tt_gcm_update(g, from + EXAMPLE - 1, 1, out + EXAMPLE - 1);
        tt_gcm_tag(g, out + EXAMPLE);
        is_well = memcmp(out, seals ? sealed : text, EXAMPLE) == 0 &&
                  memcmp(out + EXAMPLE, sealed + EXAMPLE, TAG) == 0;
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
    bool is_wide = (library.mgr->features & WIDE) == WIDE;
    tt_gcm *g = is_wide ? aligned_alloc(64, sizeof(*g)) : NULL;
    bool is_good = g && is_as_openssl(g);
    tt_gcm_free(g);
    if (is_good)
        return;
    if (g)
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
