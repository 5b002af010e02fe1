/* SPDX-License-Identifier: BSD-3-Clause
 * str.c - see str.h. */
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Room for n more bytes, or NULL. */
static char *room(tt_str *s, size_t n)
{
    if (s->err)
        return NULL;
    if (n > SIZE_MAX - s->len)
        s->err = TUTTI_ENOMEM;
    else
        s->err = tt_grow(s->mem, (void **)(void *)&s->data, &s->cap, s->len + n,
                         1);
    return s->err ? NULL : s->data + s->len;
}

void tt_str_add(tt_str *s, const char *bytes, size_t n)
{
    char *at = room(s, n);
    if (!at || n == 0)
        return;
    memcpy(at, bytes, n);
    s->len += n;
}

void tt_str_puts(tt_str *s, const char *text)
{
    tt_str_add(s, text, strlen(text));
}

void tt_str_printf(tt_str *s, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *at = n < 0 ? NULL : room(s, (size_t)n + 1);
    if (!at)
        return;
    va_start(args, fmt);
    vsnprintf(at, (size_t)n + 1, fmt, args);
    va_end(args);
    s->len += (size_t)n;
}

void tt_str_u64(tt_str *s, uint64_t value)
{
    char digits[20];
    size_t at = sizeof(digits);
    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    tt_str_add(s, digits + at, sizeof(digits) - at);
}

void tt_str_fill(tt_str *s, char c, int n)
{
    if (n <= 0)
        return;
    char *at = room(s, (size_t)n);
    if (!at)
        return;
    memset(at, c, (size_t)n);
    s->len += (size_t)n;
}

tutti_err tt_str_finish(tt_str *s, char **text, size_t *len)
{
    tt_str_add(s, "", 1);
    char *exact = NULL;
    if (!s->err)
        exact = s->mem->fn(s->mem->ctx, s->data, s->cap, s->len);
    if (!exact) {
        tt_str_free(s);
        return TUTTI_ENOMEM;
    }
    *text = exact;
    *len = s->len - 1;
    *s = (tt_str){.mem = s->mem};
    return TUTTI_OK;
}

void tt_str_free(tt_str *s)
{
    tt_free(s->mem, s->data, s->cap, 1);
    *s = (tt_str){.mem = s->mem};
}

static tutti_err add_file(tt_str *s, FILE *f, size_t most, const char *path,
                          tutti_diag *diag)
{
    char piece[16384];
    size_t n;
    while ((n = fread(piece, 1, sizeof(piece), f)) > 0) {
        if (s->len + n > most)
            return tt_fail(diag, TUTTI_ELIMIT,
                           "%s is larger than %zu MiB, the most that is read",
                           path, most >> 20);
        tt_str_add(s, piece, n);
    }
    if (ferror(f))
        return tt_fail_errno(diag, TUTTI_ESYS, errno, "cannot read %s", path);
    return TUTTI_OK;
}

tutti_err tt_file_text(const tt_mem *mem, FILE *f, size_t most,
                       const char *path, char **text, size_t *len,
                       tutti_diag *diag)
{
    tt_str s = {.mem = mem};
    tutti_err err = add_file(&s, f, most, path, diag);
    fclose(f);
    if (err) {
        tt_str_free(&s);
        return err;
    }
    err = tt_str_finish(&s, text, len);
    return err ? tt_fail(diag, err, "no memory for %s", path) : TUTTI_OK;
}

char *tt_file_head(const char *path, char *out, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? 0 : read(fd, out, size - 1);
    if (fd >= 0)
        close(fd);
    out[len > 0 ? len : 0] = '\0';
    return out;
}
