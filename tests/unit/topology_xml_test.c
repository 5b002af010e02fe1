/* SPDX-License-Identifier: BSD-3-Clause
 * topology_xml_test.c - networks out of NCCL's topology XML. */
#include "support/tap.h"

#include "support/alloc.h"

#include "topology/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CPU(i, more)                                                   \
    "<cpu numaid=\"" #i "\" host_hash=\"0x1\" arch=\"x86_64\" "        \
    "vendor=\"GenuineIntel\" familyid=\"6\" modelid=\"143\" affinity=" \
    "\"ff\">\n" more "</cpu>\n"
#define DEVICE(id, class, more)                                               \
    "<pci busid=\"" id "\" class=\"" class "\" link_speed=\"16.0 GT/s "       \
                                           "PCIe\" link_width=\"16\">\n" more \
                                           "</pci>\n"
#define GPU(id, dev, rank, more)                           \
    DEVICE(id, "0x030200",                                 \
           "<gpu dev=\"" #dev "\" sm=\"90\" rank=\"" #rank \
           "\" gdr=\"1\">" more "</gpu>\n")
#define NVLINK(target, count, class)                      \
    "<nvlink target=\"" target "\" count=\"" #count "\" " \
    "tclass=\"" class "\"/>"

static tutti_err import(const char *text, tutti_topology **t, tutti_diag *diag)
{
    *t = NULL;
    memset(diag, 0, sizeof(*diag));
    return tt_topology_import_nccl(&tt_mem_std, text, strlen(text), t, diag);
}

/* Reads, and is this network as a file. */
static void expect(const char *body, const char *want)
{
    char text[8192];
    tutti_topology *t;
    tutti_diag diag;
    snprintf(text, sizeof(text), "<system version=\"1\">\n%s</system>\n", body);
    tutti_err err = import(text, &t, &diag);
    if (err == TUTTI_ENOFIT)
        skip();
    if (err)
        fail_msg("%s", diag.text);
    tt_str s = {.mem = &tt_mem_std};
    tt_topology_write(t, &s);
    tt_str_add(&s, "", 1);
    assert_string_equal(s.data, want);
    tutti_topology *u = NULL;
    assert_int_equal(
        tt_topology_parse(&tt_mem_std, s.data, s.len - 1, &u, NULL), TUTTI_OK);
    assert_true(t->id == u->id);
    tt_topology_free(t);
    tt_topology_free(u);
    tt_str_free(&s);
}

static void refused(const char *text, tutti_err err, uint32_t line,
                    uint32_t column, const char *words)
{
    tutti_topology *t;
    tutti_diag diag;
    tutti_err got = import(text, &t, &diag);
    if (got == TUTTI_ENOFIT) {
        assert_non_null(strstr(diag.text, "libxml2"));
        skip();
    }
    if (got != err || diag.line != line || diag.column != column ||
        !strstr(diag.text, words))
        fail_msg("%s: error %d at %u:%u: %s", text, got, diag.line, diag.column,
                 diag.text);
    assert_null(t);
}

/* A box of two sockets: a PCI bridge with a GPU and a NIC below it, a GPU on
 * the other socket, NVLinks between the two. */
static void test_box(void **state)
{
    (void)state;
    expect(CPU(0, DEVICE("0000:10:00.0", "0x060400",
                         GPU("0000:11:00.0", 0, 1,
                             NVLINK("0000:21:00.0", 4, "0x030200"))
                             DEVICE("0000:12:00.0", "0x020000",
                                    "<nic><net name=\"mlx5_0\" dev=\"0\" "
                                    "speed=\"200000\" port=\"1\"/></nic>\n")))
               CPU(1, GPU("0000:21:00.0", 1, 0,
                          NVLINK("0000:11:00.0", 4, "0x030200"))),
           "tutti-topology 1\n"
           "switch cpu0\n"
           "host gpu0 rank=1\n"
           "switch pci0 nic0 cpu1\n"
           "host gpu1 rank=0\n"
           "link pci0 cpu0 192Gbit 500ns\n"
           "link gpu0 pci0 192Gbit 500ns\n"
           "link nic0 pci0 192Gbit 500ns\n"
           "link gpu1 cpu1 192Gbit 500ns\n"
           "link cpu0 cpu1 176Gbit 500ns\n"
           "link gpu0 gpu1 659200Mbit 500ns\n");
}

static void test_nvswitch(void **state)
{
    (void)state;
    expect(CPU(0, GPU("a", 0, 0,
                      NVLINK("f", 9, "0x068000") NVLINK("g", 9, "0x068000"))
                      GPU("b", 1, 1, NVLINK("f", 18, "0x068000"))),
           "tutti-topology 1\n"
           "switch cpu0\n"
           "host gpu0 gpu1\n"
           "switch nvs\n"
           "link gpu0 cpu0 192Gbit 500ns\n"
           "link gpu1 cpu0 192Gbit 500ns\n"
           "link gpu0 nvs 2966400Mbit 500ns\n"
           "link gpu1 nvs 2966400Mbit 500ns\n");
}

/* GPUs without a rank come after those with one; what is not known is passed
 * over; a GPU that sits in a CPU, C2C and NVLink to the CPU. */
static void test_odd(void **state)
{
    (void)state;
    expect("<!-- made by hand -->"
           "<cpu arch=\"arm64\"><gpu dev=\"0\" sm=\"100\">"
           "<c2c bw=\"45000\" count=\"10\"/></gpu>"
           "<pci busid=\"b\" class=\"0x030200\" link_speed=\"Unknown\" "
           "link_width=\"0\"><gpu dev=\"1\" sm=\"70\" rank=\"7\">"
           "<nvlink target=\"c\" count=\"2\" tclass=\"0x068001\"/>"
           "<nvlink target=\"zz\" count=\"1\" tclass=\"0x030200\"/></gpu></pci>"
           "<future a=\"1\"><thing/></future></cpu>",
           "tutti-topology 1\n"
           "switch cpu0\n"
           "host gpu0 rank=1\n"
           "host gpu1 rank=0\n"
           "link gpu0 cpu0 192Gbit 500ns\n"
           "link gpu0 cpu0 3600Gbit 500ns\n"
           "link gpu1 cpu0 96Gbit 500ns\n"
           "link gpu1 cpu0 320Gbit 500ns\n");
}

/* CPUs of two hosts: their NICs meet. */
static void test_hosts(void **state)
{
    (void)state;
    expect("<cpu host_hash=\"0xa\" vendor=\"AuthenticAMD\" arch=\"x86_64\">"
           "<pci busid=\"1\"><gpu rank=\"0\"/></pci>"
           "<nic><net speed=\"100000\" latency=\"1.5\"/></nic></cpu>"
           "<cpu host_hash=\"0xb\" vendor=\"AuthenticAMD\" arch=\"x86_64\">"
           "<pci busid=\"1\" link_speed=\"32.0 GT/s PCIe\" link_width=\"8\">"
           "<gpu rank=\"1\"/></pci><nic><net speed=\"0\"/></nic></cpu>",
           "tutti-topology 1\n"
           "switch cpu0\n"
           "host gpu0\n"
           "switch nic0 cpu1\n"
           "host gpu1\n"
           "switch nic1 network\n"
           "link gpu0 cpu0 96Gbit 500ns\n"
           "link nic0 cpu0 192Gbit 500ns\n"
           "link gpu1 cpu1 192Gbit 500ns\n"
           "link nic1 cpu1 192Gbit 500ns\n"
           "link nic0 network 100Gbit 1500ns\n"
           "link nic1 network 100Gbit 0\n");
}

/* The hosts of a text may have the same bus ids: a link's target is on the
 * host of the one that names it. */
#define TWIN(host, a, z)                                                   \
    "<cpu host_hash=\"" host "\"><pci busid=\"s\"><pcilink target=\"t\"/>" \
    "<pci busid=\"1\"><gpu rank=\"" a "\" sm=\"70\">"                      \
    "<nvlink target=\"2\" count=\"1\" tclass=\"0x03\"/></gpu></pci></pci>" \
    "<pci busid=\"t\"><pcilink target=\"s\"/>"                             \
    "<pci busid=\"2\"><gpu rank=\"" z "\" sm=\"70\">"                      \
    "<nvlink target=\"1\" count=\"1\" tclass=\"0x03\"/></gpu></pci></pci>" \
    "<nic><net speed=\"1000\"/></nic></cpu>"

static void test_twins(void **state)
{
    (void)state;
    expect(TWIN("0xa", "0", "1") TWIN("0xb", "2", "3"),
           "tutti-topology 1\n"
           "switch cpu0 pci0\n"
           "host gpu0\n"
           "switch pci1\n"
           "host gpu1\n"
           "switch nic0 cpu1 pci2\n"
           "host gpu2\n"
           "switch pci3\n"
           "host gpu3\n"
           "switch nic1 network\n"
           "link pci0 cpu0 96Gbit 500ns\n"
           "link gpu0 pci0 96Gbit 500ns\n"
           "link pci1 cpu0 96Gbit 500ns\n"
           "link gpu1 pci1 96Gbit 500ns\n"
           "link nic0 cpu0 192Gbit 500ns\n"
           "link pci2 cpu1 96Gbit 500ns\n"
           "link gpu2 pci2 96Gbit 500ns\n"
           "link pci3 cpu1 96Gbit 500ns\n"
           "link gpu3 pci3 96Gbit 500ns\n"
           "link nic1 cpu1 192Gbit 500ns\n"
           "link gpu0 gpu1 160Gbit 500ns\n"
           "link gpu2 gpu3 160Gbit 500ns\n"
           "link pci0 pci1 96Gbit 500ns\n"
           "link pci2 pci3 96Gbit 500ns\n"
           "link nic0 network 1Gbit 0\n"
           "link nic1 network 1Gbit 0\n");
}

/* Two PCI switches with a link of their own; both list it. */
static void test_pcilink(void **state)
{
    (void)state;
    expect("<cpu><pci busid=\"s\"><pcilink target=\"t\"/>"
           "<pci busid=\"1\"><gpu/></pci></pci>"
           "<pci busid=\"t\"><pcilink target=\"s\"/>"
           "<pci busid=\"2\"><gpu/></pci></pci></cpu>",
           "tutti-topology 1\n"
           "switch cpu0 pci0\n"
           "host gpu0\n"
           "switch pci1\n"
           "host gpu1\n"
           "link pci0 cpu0 96Gbit 500ns\n"
           "link gpu0 pci0 96Gbit 500ns\n"
           "link pci1 cpu0 96Gbit 500ns\n"
           "link gpu1 pci1 96Gbit 500ns\n"
           "link pci0 pci1 96Gbit 500ns\n");
}

static void test_bad(void **state)
{
    (void)state;
    refused("", TUTTI_EFORMAT, 1, 1, "empty");
    refused("<system version=\"1\"", TUTTI_EFORMAT, 1, 20, "not XML");
    refused("<system version=\"1\">\n<cpu>\n</system>", TUTTI_EFORMAT, 3, 10,
            "not XML: Opening and ending tag mismatch");
    refused("<graphs version=\"1\"/>", TUTTI_EFORMAT, 1, 1, "`system`");
    refused("<system version=\"2\"/>", TUTTI_EFORMAT, 1, 1, "version");
    refused("<system version=\"1\"/>", TUTTI_EINVAL, 1, 1, "no `gpu`");
    refused("<system version=\"1\">\n  <gpu/></system>", TUTTI_EFORMAT, 2, 3,
            "inside a `cpu`");
    refused("<system version=\"1\">\n <nic/></system>", TUTTI_EFORMAT, 2, 2,
            "inside a `cpu`");
    refused("<system version=\"1\"><system version=\"1\"/></system>",
            TUTTI_EFORMAT, 1, 21, "inside another");
    refused("<!DOCTYPE x [<!ENTITY a \"b\">]>\n<system version=\"1\"/>",
            TUTTI_EFORMAT, 1, 1, "document type");
    refused("<!DOCTYPE x SYSTEM \"file:///etc/passwd\">\n<system/>",
            TUTTI_EFORMAT, 1, 1, "document type");
    /* Two hosts, and no NIC between them. */
    refused("<system version=\"1\"><cpu host_hash=\"1\"><gpu/></cpu>\n"
            "<cpu host_hash=\"2\"><gpu/></cpu></system>",
            TUTTI_EINVAL, 2, 20, "no path from `gpu0` to `gpu1`");
}

/* Other encodings than UTF-8 are not looked at, and nothing is printed. */
static void test_encodings(void **state)
{
    static const char *const texts[] = {
        "<?xml version=\"1.0\" encoding=\"UTF-7\"?><system version=\"1\">"
        "+AA\xff\xff-</system>",
        "<?xml version=\"1.0\" encoding=\"SHIFT_JIS\"?><system "
        "version=\"1\">\xff\xff-</system>"};
    (void)state;
    FILE *said = tmpfile();
    assert_non_null(said);
    fflush(stderr);
    int kept = dup(STDERR_FILENO);
    dup2(fileno(said), STDERR_FILENO);
    tutti_diag diag[3];
    tutti_err err[3];
    tutti_topology *t;
    for (size_t i = 0; i < 2; i++)
        err[i] = import(texts[i], &t, &diag[i]);
    memset(&diag[2], 0, sizeof(diag[2]));
    err[2] = tt_topology_import_nccl(&tt_mem_std, "<\0\0\0\0\0\0\0\0\0\0", 12,
                                     &t, &diag[2]);
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    close(kept);
    fseek(said, 0, SEEK_END);
    long n_said = ftell(said);
    fclose(said);
    if (err[0] == TUTTI_ENOFIT)
        skip();
    assert_int_equal(n_said, 0);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(err[i], TUTTI_EFORMAT);
        assert_non_null(strstr(diag[i].text, "UTF-8"));
    }
}

static void test_deep(void **state)
{
    (void)state;
    tt_str s = {.mem = &tt_mem_std};
    tt_str_puts(&s, "<system version=\"1\">\n<cpu>");
    for (int i = 0; i < 100; i++)
        tt_str_puts(&s, "<pci>");
    tt_str_add(&s, "", 1);
    refused(s.data, TUTTI_ELIMIT, 2, 6 + 5 * 62, "64 deep");
    tt_str_free(&s);
}

/* So many elements that looking through all pairs of them would take hours. */
static void test_many(void **state)
{
    (void)state;
    tt_str s = {.mem = &tt_mem_std};
    tt_str_puts(&s, "<system version=\"1\">");
    uint32_t column = 0;
    for (uint32_t i = 0; i < 200000; i++) {
        column = i == 8192 ? (uint32_t)s.len + 1 : column;
        tt_str_printf(&s, "<cpu host_hash=\"%x\"/>", i);
    }
    tt_str_add(&s, "", 1);
    refused(s.data, TUTTI_ELIMIT, 1, column, "at most 8192");
    tt_str_free(&s);
}

/* A long line: the parser forgets what it has read of it, and counting each
 * tag's column from the line's beginning would take minutes. */
static void test_long_line(void **state)
{
    (void)state;
    tt_str s = {.mem = &tt_mem_std};
    tt_str_puts(&s, "<system version=\"1\">\n<cpu>");
    for (int i = 0; i < 1 << 20; i++)
        tt_str_puts(&s, "        ");
    tt_str_puts(&s, "<pci busid=\"1\"><gpu>");
    for (int i = 0; i < 8000; i++)
        tt_str_puts(&s, "<nvlink target=\"x\" count=\"1\"/>");
    tt_str_puts(&s, "</gpu></pci></cpu>");
    const uint32_t column = (uint32_t)s.len - 21 + 1;
    tt_str_puts(&s, "<nic/></system>");
    tt_str_add(&s, "", 1);
    const clock_t start = clock();
    refused(s.data, TUTTI_EFORMAT, 2, column, "inside a `cpu`");
    assert_true(clock() - start < 10 * CLOCKS_PER_SEC);
    tt_str_free(&s);
}

/* NVLinks to one place become one link; still there may not be any number. */
static void test_many_nvlinks(void **state)
{
    (void)state;
    tt_str s = {.mem = &tt_mem_std};
    tt_str_puts(&s, "<system version=\"1\">\n<cpu><gpu>\n");
    for (int i = 0; i < 8193; i++)
        tt_str_puts(&s, "<nvlink target=\"x\" count=\"1\"/>\n");
    tt_str_puts(&s, "</gpu></cpu></system>");
    tt_str_add(&s, "", 1);
    refused(s.data, TUTTI_ELIMIT, 3 + 8192, 1, "at most 8192");
    tt_str_free(&s);
}

static void test_no_memory(void **state)
{
    (void)state;
    static const char text[] =
        "<system version=\"1\"><cpu><pci busid=\"a\"><gpu rank=\"1\">"
        "<nvlink target=\"b\" count=\"1\" tclass=\"0x03\"/></gpu></pci>"
        "<pci busid=\"b\"><pci busid=\"c\"><gpu/></pci></pci></cpu></system>";
    tutti_err err = TUTTI_ENOMEM;
    for (uint64_t k = 1; err; k++) {
        tt_test_mem m;
        const tt_mem mem = tt_test_mem_init(&m, k);
        tutti_topology *t = NULL;
        tutti_diag diag = {0};
        err = tt_topology_import_nccl(&mem, text, strlen(text), &t, &diag);
        if (err == TUTTI_ENOFIT)
            skip();
        if (err && err != TUTTI_ENOMEM)
            fail_msg("%s", diag.text);
        assert_true(err == TUTTI_OK || strstr(diag.text, "no memory"));
        tt_topology_free(t);
        assert_true(tt_test_mem_is_clean(&m));
        assert_true(k < 1000);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_box),          cmocka_unit_test(test_nvswitch),
        cmocka_unit_test(test_odd),          cmocka_unit_test(test_hosts),
        cmocka_unit_test(test_pcilink),      cmocka_unit_test(test_bad),
        cmocka_unit_test(test_deep),         cmocka_unit_test(test_many),
        cmocka_unit_test(test_twins),        cmocka_unit_test(test_long_line),
        cmocka_unit_test(test_many_nvlinks), cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_encodings),
    };
    return TT_RUN_TAP(tests);
}
