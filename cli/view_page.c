/* SPDX-License-Identifier: BSD-3-Clause
 * view_page.c - the page of `tutti view`: share/view/view.html, which page.S
 * has put into the program, with its style, scripts and the data in their
 * places, {{NAME}}. So the page needs no other file and no network. */
#include "view.h"

#include <stdlib.h>
#include <string.h>

/* page.S. Each ends with a NUL. */
extern const char cli_page_html[], cli_page_css[], cli_page_js[], cli_page_d3[];

/* JSON within a page: what might end the script is written as an escape. A < is
 * only ever within a string. */
static void put_json(FILE *out, const char *json)
{
    for (size_t n; *json; json += n) {
        n = strcspn(json, "<");
        fwrite(json, 1, n, out);
        if (json[n] == '<') {
            fputs("\\u003c", out);
            n++;
        }
    }
}

static void put_part(FILE *out, const char *name, size_t len, const char *json)
{
    const struct {
        const char *name, *text;
    } parts[] = {
        {"css", cli_page_css}, {"js", cli_page_js}, {"d3", cli_page_d3}};
    for (size_t i = 0; i < sizeof(parts) / sizeof(parts[0]); i++) {
        if (strlen(parts[i].name) == len && !memcmp(name, parts[i].name, len))
            fputs(parts[i].text, out);
    }
    if (len == 4 && !memcmp(name, "data", len))
        put_json(out, json);
}

static void put_page(FILE *out, const char *json)
{
    const char *at = cli_page_html;
    for (const char *open; (open = strstr(at, "{{")) != NULL;) {
        const char *close = strstr(open, "}}");
        if (!close)
            break;
        fwrite(at, 1, (size_t)(open - at), out);
        put_part(out, open + 2, (size_t)(close - open - 2), json);
        at = close + 2;
    }
    fputs(at, out);
}

int view_page_write(const cli_command *self, const char *path, const char *json,
                    size_t *len)
{
    char *text = NULL;
    FILE *out = open_memstream(&text, len);
    if (!out)
        return cli_fail(self, "no memory for the page");
    put_page(out, json);
    const bool is_whole = !ferror(out);
    int status = CLI_OK;
    if (fclose(out) || !is_whole)
        status = cli_fail(self, "no memory for the page");
    else
        status = cli_write_file(self, path, text, *len);
    free(text);
    return status;
}
