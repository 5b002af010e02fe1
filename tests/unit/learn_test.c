/* SPDX-License-Identifier: BSD-3-Clause
 * learn_test.c - networks that were measured before: what is kept is found
 * again, and nothing else is believed. */
#include "support/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "probe/learn.h"

#define PRINT UINT64_C(0x0123456789abcdef)

static const char network[] = "tutti-topology 1\n"
                              "# a comment\n"
                              "host a b\n"
                              "link a b 1Gbit 5us dev=eth1\n";

static char top[64], dir[128], path[192];
static unsigned n_warnings;
static char warning[512];

static void hear(void *arg, tutti_log_level level, const char *line)
{
    (void)arg;
    if (level != TUTTI_LOG_WARN)
        return;
    n_warnings++;
    snprintf(warning, sizeof(warning), "%s", line);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(top, sizeof(top), "/tmp/tutti-learn-XXXXXX");
    if (!mkdtemp(top))
        return -1;
    snprintf(dir, sizeof(dir), "%s/some/where", top);
    snprintf(path, sizeof(path), "%s/0123456789abcdef.topo", dir);
    n_warnings = 0;
    warning[0] = '\0';
    tutti_log_set(hear, NULL);
    return 0;
}

static int clean_up(void **state)
{
    (void)state;
    char command[128];
    tutti_log_set(NULL, NULL);
    snprintf(command, sizeof(command), "rm -rf %s", top);
    return system(command);
}

static void keep(void)
{
    n_warnings = 0;
    tt_probe_cache_write(dir, PRINT, network, sizeof(network) - 1);
    assert_int_equal(n_warnings, 0);
}

/* The file's bytes; the caller frees. */
static char *load(size_t *len)
{
    char *text = malloc(4096);
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    *len = fread(text, 1, 4096, f);
    fclose(f);
    return text;
}

static void store(const char *text, size_t len)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, len, f), len);
    assert_int_equal(fclose(f), 0);
}

/* One warning that says so, and that the network is measured again. */
static void is_refused(const char *why)
{
    tutti_topology *kept;
    n_warnings = 0;
    assert_false(tt_probe_cache_read(dir, PRINT, 2, &kept));
    assert_null(kept);
    assert_int_equal(n_warnings, 1);
    assert_non_null(strstr(warning, why));
    assert_non_null(strstr(warning, "the network is measured again"));
    assert_null(strchr(warning, '\n'));
}

static void test_kept(void **state)
{
    (void)state;
    tutti_topology *kept;
    assert_false(tt_probe_cache_read(dir, PRINT, 2, &kept));
    assert_int_equal(n_warnings, 0); /* that there is none is no fault */
    keep();
    assert_true(tt_probe_cache_read(dir, PRINT, 2, &kept));
    assert_int_equal(kept->n_ranks, 2);
    assert_string_equal(kept->links[0].dev, "eth1");
    tt_topology_free(kept);
    /* It is a topology file. */
    tutti_topology *t;
    assert_int_equal(tutti_topology_open(path, &t, NULL), TUTTI_OK);
    tutti_topology_free(t);
    keep(); /* over the old one */
    assert_true(tt_probe_cache_read(dir, PRINT, 2, &kept));
    tt_topology_free(kept);
    assert_false(tt_probe_cache_read(dir, PRINT + 1, 2, &kept));
    assert_int_equal(n_warnings, 0);
}

/* What somebody else could have put there is not read. */
static void test_not_private(void **state)
{
    (void)state;
    char other[256];
    keep();
    assert_int_equal(chmod(path, 0664), 0);
    is_refused("users other than this one can write to it");
    assert_int_equal(chmod(path, 0646), 0);
    is_refused("users other than this one can write to it");
    keep(); /* takes its place */
    if (geteuid() == 0) {
        assert_int_equal(chown(path, 12345, 12345), 0);
        is_refused("users other than this one can write to it");
        keep();
    }
    snprintf(other, sizeof(other), "%s/elsewhere", top);
    assert_int_equal(rename(path, other), 0);
    assert_int_equal(symlink(other, path), 0);
    is_refused("symbolic links");
    keep();
    tutti_topology *kept;
    assert_true(tt_probe_cache_read(dir, PRINT, 2, &kept));
    tt_topology_free(kept);
}

static void test_off(void **state)
{
    (void)state;
    tutti_topology *kept;
    tt_probe_cache_write("", PRINT, network, sizeof(network) - 1);
    assert_false(tt_probe_cache_read("", PRINT, 2, &kept));
    assert_int_equal(n_warnings, 0);
}

static void test_damaged(void **state)
{
    (void)state;
    size_t len;
    keep();
    char *text = load(&len);
    for (size_t i = 0; i < len; i++) { /* a bit, anywhere */
        text[i] ^= 1 << i % 8;
        store(text, len);
        is_refused("damaged");
        text[i] ^= 1 << i % 8;
    }
    for (size_t i = 0; i < len; i++) { /* an end, anywhere */
        store(text, i);
        is_refused("damaged");
    }
    free(text);
}

static void test_of_others(void **state)
{
    (void)state;
    char other[192];
    keep();
    tutti_topology *kept;
    tt_probe_cache_write(dir, PRINT + 1, network, sizeof(network) - 1);
    snprintf(other, sizeof(other), "%s/0123456789abcdf0.topo", dir);
    assert_int_equal(rename(other, path), 0);
    is_refused("of other hosts");
    keep();
    assert_false(tt_probe_cache_read(dir, PRINT, 3, &kept));
    assert_non_null(strstr(warning, "another number of ranks"));
}

/* Of a build that has measured otherwise, and kept it by the same number. */
static void test_of_an_older(void **state)
{
    (void)state;
    enum { FOOT = 28 }; /* "# checksum 0123456789abcdef\n" */
    size_t len;
    char now[16], then[16], foot[FOOT + 1];
    keep();
    char *text = load(&len);
    int n = snprintf(now, sizeof(now), "# cache %d ", TT_LEARN_VERSION);
    snprintf(then, sizeof(then), "# cache %d ", TT_LEARN_VERSION - 1);
    char *at = strstr(text, now);
    assert_non_null(at);
    memcpy(at, then, (size_t)n);
    uint64_t sum = tt_fnv1a(TT_FNV1A_START, text, len - FOOT);
    snprintf(foot, sizeof(foot), "# checksum %016llx\n",
             (unsigned long long)sum);
    memcpy(text + len - FOOT, foot, FOOT);
    store(text, len);
    is_refused("of another Tutti");
    free(text);
}

static void test_no_network(void **state)
{
    (void)state;
    const char bad[] = "tutti-topology 1\nhost a b\nlink a c 1Gbit 5us\n";
    tt_probe_cache_write(dir, PRINT, bad, sizeof(bad) - 1);
    is_refused("holds no network");
}

static void test_no_file(void **state)
{
    (void)state;
    keep();
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkfifo(path, 0600), 0);
    is_refused("Invalid argument");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    is_refused("Is a directory");
    assert_int_equal(rmdir(path), 0);
    store("", 0);
    assert_int_equal(truncate(path, (off_t)1 << 40), 0);
    is_refused("File too large");
    keep();
}

static void test_no_place(void **state)
{
    (void)state;
    char under[256];
    keep();
    snprintf(under, sizeof(under), "%s/more", path);
    tt_probe_cache_write(under, PRINT, network, sizeof(network) - 1);
    assert_int_equal(n_warnings, 1);
    assert_non_null(strstr(warning, "cannot keep the measured network in"));
    assert_non_null(strstr(warning, "TUTTI_PROBE_CACHE"));
    n_warnings = 0;
    tt_probe_cache_write("/proc/nowhere", PRINT, network, sizeof(network) - 1);
    assert_int_equal(n_warnings, 1);
    /* Why the first one could not be made: not that it lacks after that. */
    snprintf(under, sizeof(under), "%s/more/and/more", path);
    tt_probe_cache_write(under, PRINT, network, sizeof(network) - 1);
    assert_non_null(strstr(warning, strerror(ENOTDIR)));
    if (mkdir("/sys/nowhere", 0700) != 0 && errno != ENOENT) {
        const char *why = strerror(errno);
        tt_probe_cache_write("/sys/nowhere/under", PRINT, network,
                             sizeof(network) - 1);
        assert_non_null(strstr(warning, why));
    }
}

static void test_directory(void **state)
{
    (void)state;
    tt_settings s = {.probe_cache = "off"};
    char out[32];
    setenv("XDG_CACHE_HOME", "/x", 1);
    setenv("HOME", "/h", 1);
    tt_probe_cache_dir(&s, out, sizeof(out));
    assert_string_equal(out, "");
    s.probe_cache[0] = '\0';
    tt_probe_cache_dir(&s, out, sizeof(out));
    assert_string_equal(out, "/x/tutti");
    setenv("XDG_CACHE_HOME", "relative", 1);
    tt_probe_cache_dir(&s, out, sizeof(out));
    assert_string_equal(out, "/h/.cache/tutti");
    tt_probe_cache_dir(&s, out, 8); /* too long for us */
    assert_string_equal(out, "");
    unsetenv("HOME");
    tt_probe_cache_dir(&s, out, sizeof(out));
    assert_string_equal(out, "");
    snprintf(s.probe_cache, sizeof(s.probe_cache), "here");
    tt_probe_cache_dir(&s, out, sizeof(out));
    assert_string_equal(out, "here");
}

static void test_fingerprint(void **state)
{
    (void)state;
    tt_settings s = {.interfaces = ""};
    uint64_t print = tt_fingerprint_host(&s, "a");
    assert_true(print == tt_fingerprint_host(&s, "a"));
    assert_true(print != tt_fingerprint_host(&s, "b"));
    snprintf(s.interfaces, sizeof(s.interfaces), "=nothing");
    assert_true(print != tt_fingerprint_host(&s, "a"));
}

/* ------------------------------------------------------------ interfaces -- */

/* What is left of it; NULL: all. */
static char *sifted(const char *text)
{
    tutti_topology *t, *less = NULL;
    char *out = NULL;
    size_t len;
    assert_int_equal(
        tt_topology_parse(&tt_mem_std, text, strlen(text), &t, NULL), TUTTI_OK);
    assert_int_equal(tt_without_slow_ifaces(t, &less, NULL), TUTTI_OK);
    if (less)
        assert_int_equal(tutti_topology_text(less, &out, &len), TUTTI_OK);
    tt_topology_free(less);
    tt_topology_free(t);
    return out;
}

static void sifts_to(const char *text, const char *want)
{
    char *got = sifted(text);
    tutti_topology *t;
    assert_int_equal(
        tt_topology_parse(&tt_mem_std, want, strlen(want), &t, NULL), TUTTI_OK);
    char *canonical;
    size_t len;
    assert_int_equal(tutti_topology_text(t, &canonical, &len), TUTTI_OK);
    assert_non_null(got);
    assert_string_equal(got, canonical);
    tutti_text_free(canonical);
    tutti_text_free(got);
    tt_topology_free(t);
}

/* Switches that are joined, numbered after the hosts. */
static void test_sifts_chains(void **state)
{
    (void)state;
    assert_null(sifted("tutti-topology 1\nhost a b c d\nswitch s0 s1 s2 s3\n"
                       "link a s0 1Gbit 5us\nlink b s1 1Gbit 5us\n"
                       "link c s2 1Gbit 5us\nlink d s3 1Gbit 5us\n"
                       "link s0 s1 1Gbit 5us\nlink s1 s2 1Gbit 5us\n"
                       "link s2 s3 1Gbit 5us\n"));
}

static void test_sifts(void **state)
{
    (void)state;
    /* A slow network of all; with several ranks on a host, in their order. */
    sifts_to("tutti-topology 1\nswitch slow fast far\n"
             "host a rank=2\nhost b rank=0,3 memory=9GB/s,1us\n"
             "host c rank=1\n"
             "link a slow 10Mbit 9us dev=aa0\nlink b slow 10Mbit 9us dev=aa0\n"
             "link c slow 10Mbit 9us dev=aa0\n"
             "link a fast 100Mbit 5us dev=e1\nlink b fast 100Mbit 5us dev=e2\n"
             "link fast far 90Mbit/80Mbit 5us\n"
             "link c far 100Mbit 5us dev=e3\n",
             "tutti-topology 1\nswitch fast far\n"
             "host a rank=2\nhost b rank=0,3 memory=9GB/s,1us\n"
             "host c rank=1\n"
             "link a fast 100Mbit 5us dev=e1\nlink b fast 100Mbit 5us dev=e2\n"
             "link fast far 90Mbit/80Mbit 5us\n"
             "link c far 100Mbit 5us dev=e3\n");
    /* A slow cable beside a network. */
    sifts_to("tutti-topology 1\nswitch s\nhost a b c\n"
             "link a b 10Mbit 9us dev=x/y\n"
             "link a s 1Gbit 5us\nlink b s 1Gbit 5us\nlink c s 1Gbit 5us\n",
             "tutti-topology 1\nswitch s\nhost a b c\n"
             "link a s 1Gbit 5us\nlink b s 1Gbit 5us\nlink c s 1Gbit 5us\n");
}

static void test_leaves_all(void **state)
{
    (void)state;
    const char *const networks[] = {
        /* Both are worth using. */
        "tutti-topology 1\nswitch s f\nhost a b\n"
        "link a s 100Mbit 9us\nlink b s 100Mbit 9us\n"
        "link a f 400Mbit 5us\nlink b f 400Mbit 5us\n",
        /* The fast one has a slow place. */
        "tutti-topology 1\nswitch s f g\nhost a b\n"
        "link a s 10Mbit 9us\nlink b s 10Mbit 9us\n"
        "link a f 1Gbit 5us\nlink f g 20Mbit 5us\nlink b g 1Gbit 5us\n",
        /* Not all hosts are in the fast one. */
        "tutti-topology 1\nswitch s f\nhost a b c\n"
        "link a s 10Mbit 9us\nlink b s 10Mbit 9us\nlink c s 10Mbit 9us\n"
        "link a f 1Gbit 5us\nlink b f 1Gbit 5us\n",
        ("tutti-topology 1\nhost a b c\nlink a b 1Gbit 5us\n"
         "link b c 1Mbit 5us\n"),
    };
    for (size_t i = 0; i < sizeof(networks) / sizeof(networks[0]); i++)
        assert_null(sifted(networks[i]));
}

int main(void)
{
#define WITH_DIR(test) cmocka_unit_test_setup_teardown(test, set_up, clean_up)
    const struct CMUnitTest tests[] = {
        WITH_DIR(test_kept),
        WITH_DIR(test_not_private),
        WITH_DIR(test_off),
        WITH_DIR(test_damaged),
        WITH_DIR(test_of_others),
        WITH_DIR(test_of_an_older),
        WITH_DIR(test_no_network),
        WITH_DIR(test_no_file),
        WITH_DIR(test_no_place),
        cmocka_unit_test(test_directory),
        cmocka_unit_test(test_fingerprint),
        cmocka_unit_test(test_sifts),
        cmocka_unit_test(test_sifts_chains),
        cmocka_unit_test(test_leaves_all),
    };
    return TT_RUN_TAP(tests);
}
