/* SPDX-License-Identifier: BSD-3-Clause
 * fuzz_main.c - see fuzz_main.h. A crash ends the program in the middle of
 * its TAP plan, which counts as a failure. What a driver itself finds wrong is
 * reported with the seed of the mutation: `TT_SEED=seed driver corpus 1` runs
 * that one again. */
#include "support/fuzz_main.h"

#include "support/seed.h"

#include "base/rng.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MAX_FILES = 4096, MAX_FILE_BYTES = 1 << 20 };

size_t tt_fuzz_mutations = 20000;

typedef struct input {
    uint8_t *data;
    size_t len;
} input;

typedef struct corpus {
    input files[MAX_FILES];
    size_t n;
} corpus;

static char running[512];

void tt_fuzz_fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", running, what);
    abort();
}

uint8_t tt_fuzz_next(tt_fuzz_input *in)
{
    if (in->len == 0)
        return 0;
    in->len--;
    return *in->data++;
}

void tt_fuzz_change(tt_fuzz_input *in, void *bytes, size_t len)
{
    while (in->len >= 2 && in->data[0] < len) {
        ((uint8_t *)bytes)[in->data[0]] = in->data[1];
        in->data += 2, in->len -= 2;
    }
    tt_fuzz_next(in);
}

static int read_input(const char *path, input *out)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return -1;
    out->data = malloc(MAX_FILE_BYTES);
    out->len = out->data ? fread(out->data, 1, MAX_FILE_BYTES, file) : 0;
    int failed = !out->data || ferror(file);
    fclose(file);
    return failed ? -1 : 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The files of a directory in order of name, or the one file. Returns the
 * number of paths, each malloc'd. */
static size_t list_paths(const char *where, char **paths)
{
    struct stat info;
    if (stat(where, &info) != 0)
        return 0;
    if (!S_ISDIR(info.st_mode)) {
        paths[0] = strdup(where);
        return paths[0] ? 1 : 0;
    }
    DIR *dir = opendir(where);
    size_t n = 0;
    struct dirent *entry;
    while (dir && n < MAX_FILES && (entry = readdir(dir)) != NULL) {
        char path[1024];
        snprintf(path, sizeof(path), "%s/%s", where, entry->d_name);
        if (entry->d_name[0] != '.' && (paths[n] = strdup(path)) != NULL)
            n++;
    }
    if (dir)
        closedir(dir);
    qsort(paths, n, sizeof(*paths), compare_names);
    return n;
}

static void run_corpus(const char *where, corpus *all,
                       int (*one)(const uint8_t *, size_t))
{
    static char *paths[MAX_FILES];
    size_t n = list_paths(where, paths);
    for (size_t i = 0; i < n; i++) {
        input *in = &all->files[all->n];
        snprintf(running, sizeof(running), "%s", paths[i]);
        if (read_input(paths[i], in) != 0) {
            fprintf(stderr, "cannot read %s\n", paths[i]);
            free(in->data);
        } else {
            one(in->data, in->len);
            all->n++;
        }
        free(paths[i]);
    }
}

/* Inputs, numbers and pieces that parsers stumble over. */
static const char *const dictionary[] = {
    "0",          "-1",    "18446744073709551616",
    "4294967295", "65536", "#",
    "\n",         " ",     "\t",
    "\r\n",       ":",     "end",
    "1e9",        "0x10",  "\xff\xfe",
    "",           "\n\n",  "2147483648",
    "99999",      "\x7f"};

/* One random change of buf, which has room for `room` bytes. */
static size_t change(tt_rng *rng, const corpus *all, uint8_t *buf, size_t len,
                     size_t room)
{
    const input *other = &all->files[tt_rng_below(rng, all->n)];
    const char *word =
        dictionary[tt_rng_below(rng, sizeof(dictionary) / sizeof(char *))];
    const uint8_t *from = (const uint8_t *)word;
    size_t at = tt_rng_below(rng, len + 1), n = strlen(word);
    size_t cut = tt_rng_below(rng, 8);
    switch (tt_rng_below(rng, 6)) {
    case 0: /* flip a bit */
        if (at < len)
            buf[at] ^= (uint8_t)(1u << tt_rng_below(rng, 8));
        return len;
    case 1: /* cut the rest off */
        return at;
    case 2: /* a piece of another input */
        if (other->len == 0)
            return len;
        from = other->data + tt_rng_below(rng, other->len);
        n = tt_rng_below(rng, (size_t)(other->data + other->len - from) + 1);
        cut = 0;
        break;
    case 3: /* only remove */
        n = 0;
        break;
    default: /* a word, over what is there or in front of it */
        cut = tt_rng_below(rng, 2) ? cut : 0;
    }
    if (cut > len - at)
        cut = len - at;
    if (n > room - (len - cut))
        return len;
    memmove(buf + at + n, buf + at + cut, len - at - cut);
    memcpy(buf + at, from, n);
    return len - cut + n;
}

static void run_mutations(const corpus *all, uint64_t seed, size_t count,
                          int (*one)(const uint8_t *, size_t))
{
    for (size_t i = 0; i < count && all->n > 0; i++) {
        tt_rng rng = {seed + i};
        const input *from = &all->files[tt_rng_below(&rng, all->n)];
        size_t len = from->len, room = len * 2 + 1024;
        uint8_t *buf = malloc(room);
        if (!buf)
            return;
        memcpy(buf, from->data, len);
        for (uint64_t k = 1 + tt_rng_below(&rng, 4); k > 0; k--)
            len = change(&rng, all, buf, len, room);
        snprintf(running, sizeof(running), "a mutation, TT_SEED=%llu",
                 (unsigned long long)(seed + i));
        /* An exact copy, so that a sanitizer sees a read past the end. */
        uint8_t *exact = malloc(len ? len : 1);
        if (exact) {
            memcpy(exact, buf, len);
            one(exact, len);
        }
        free(exact);
        free(buf);
    }
}

int tt_fuzz_main(int argc, char **argv, const char *where,
                 int (*one)(const uint8_t *data, size_t len))
{
    static corpus all;
    size_t count = argc > 2 ? strtoull(argv[2], NULL, 10) : tt_fuzz_mutations;
    printf("1..2\n");
    fflush(stdout);
    run_corpus(argc > 1 ? argv[1] : where, &all, one);
    printf("%s 1 - %zu files of the corpus\n", all.n > 0 ? "ok" : "not ok",
           all.n);
    fflush(stdout);
    run_mutations(&all, tt_test_seed(1), count, one);
    printf("ok 2 - %zu mutations of them\n", count);
    for (size_t i = 0; i < all.n; i++)
        free(all.files[i].data);
    return all.n > 0 ? 0 : 1;
}
