/* SPDX-License-Identifier: BSD-3-Clause
 * status_sheet.c - what the texts of status_text.c and status_partial.c are made of:
 * a table, strings and numbers of JSON. */
#include <inttypes.h>
#include <string.h>

#include "status/status.h"

static void add_row(tt_sheet_row cells, int n, const int *widths, tt_str *out)
{
    for (int c = 0; c < n; c++) {
        tt_str_puts(out, cells[c]);
        if (c + 1 < n)
            tt_str_fill(out, ' ', widths[c] + 2 - (int)strlen(cells[c]));
    }
    tt_str_puts(out, "\n");
}

static void fill(const tt_sheet *sheet, uint32_t row, tt_sheet_row cells)
{
    for (int c = 0; c < sheet->n_columns; c++)
        snprintf(cells[c], TT_SHEET_CELL, "-");
    sheet->fill(sheet->arg, row, cells);
}

void tt_sheet_add(const tt_sheet *sheet, tt_str *out)
{
    int widths[TT_SHEET_COLUMNS];
    tt_sheet_row cells;
    for (int c = 0; c < sheet->n_columns; c++)
        widths[c] = (int)strlen(sheet->titles[c]);
    for (uint32_t r = 0; r < sheet->n_rows; r++) {
        fill(sheet, r, cells);
        for (int c = 0; c < sheet->n_columns; c++)
            if ((int)strlen(cells[c]) > widths[c])
                widths[c] = (int)strlen(cells[c]);
    }
    for (int c = 0; c < sheet->n_columns; c++)
        snprintf(cells[c], TT_SHEET_CELL, "%s", sheet->titles[c]);
    add_row(cells, sheet->n_columns, widths, out);
    for (uint32_t r = 0; r < sheet->n_rows; r++) {
        fill(sheet, r, cells);
        add_row(cells, sheet->n_columns, widths, out);
    }
}

void tt_sheet_string(const char *text, tt_str *out)
{
    tt_str_puts(out, "\"");
    for (; *text; text++)
        if (*text == '"' || *text == '\\')
            tt_str_printf(out, "\\%c", *text);
        else
            tt_str_printf(out, "%c", *text < ' ' || *text > '~' ? '?' : *text);
    tt_str_puts(out, "\"");
}

void tt_sheet_member(const char *name, const char *text, tt_str *out)
{
    tt_str_printf(out, ",\"%s\":", name);
    tt_sheet_string(text, out);
}

void tt_sheet_number(const char *name, uint32_t number_or_none, tt_str *out)
{
    if (number_or_none == TT_NONE)
        tt_str_printf(out, ",\"%s\":null", name);
    else
        tt_str_printf(out, ",\"%s\":%" PRIu32, name, number_or_none);
}
