/* SPDX-License-Identifier: BSD-3-Clause
 * table.c - the generators and the papers' machines, one row each.
 *
 * Unless told otherwise a link carries 1 GB/s, and a message takes 20 us
 * between two hosts next to each other: 20 us on a direct link, 10 us on each
 * of the two links by way of a switch. docs/topology.md has the list. */
#include "topology/generate.h"

#define GBIT UINT64_C(1000000000)
#define NS UINT64_C(1000)
#define US (1000 * NS)

#define DIRECT                    \
    {                             \
        "link", 8 * GBIT, 20 * US \
    }
#define NIC                      \
    {                            \
        "nic", 8 * GBIT, 10 * US \
    }
#define TRUNK                      \
    {                              \
        "trunk", 8 * GBIT, 10 * US \
    }

const tt_generator tt_generators[] = {
    {.name = "full",
     .form = "full:8",
     .blurb = "a link for each pair of hosts",
     .least = 1,
     .most = 1,
     .kinds = {DIRECT},
     .make = tt_make_full},
    {.name = "ring",
     .form = "ring:8",
     .blurb = "hosts in a ring, each linked with the next",
     .least = 1,
     .most = 1,
     .kinds = {DIRECT},
     .make = tt_make_torus},
    {.name = "star",
     .form = "star:8 or star:25,25,10",
     .blurb = "hosts on one switch; two numbers or more: multiples of the rate",
     .separator = ',',
     .least = 1,
     .may_scale = true,
     .kinds = {NIC},
     .make = tt_make_star},
    {.name = "rails",
     .form = "rails:8",
     .blurb = "hosts on two switches, by interfaces eth0 and eth1",
     .least = 1,
     .most = 1,
     .kinds = {{"eth0", 8 * GBIT, 10 * US}, {"eth1", 8 * GBIT, 10 * US}},
     .make = tt_make_rails},
    {.name = "racks",
     .form = "racks:5+3",
     .blurb = "hosts on rack switches, each with a trunk to the core",
     .separator = '+',
     .least = 1,
     .kinds = {NIC, TRUNK},
     .make = tt_make_racks},
    {.name = "boxes",
     .form = "boxes:8+8+4",
     .blurb = "GPUs in boxes, each with an uplink to the core",
     .separator = '+',
     .least = 1,
     .kinds = {{"gpu", 80 * GBIT, US}, {"uplink", 8 * GBIT, 10 * US}},
     .make = tt_make_boxes},
    {.name = "torus",
     .form = "torus:8x8",
     .blurb = "a grid that goes around, of up to 8 dimensions",
     .separator = 'x',
     .least = 1,
     .most = TT_MAX_DIMS,
     .kinds = {DIRECT},
     .make = tt_make_torus},
    {.name = "mesh",
     .form = "mesh:8x8",
     .blurb = "a grid that ends at its borders, of up to 8 dimensions",
     .separator = 'x',
     .least = 1,
     .most = TT_MAX_DIMS,
     .kinds = {DIRECT},
     .make = tt_make_mesh},
    {.name = "fattree",
     .form = "fattree:8x8",
     .blurb = "leaf switches x hosts each, and as many spines as hosts a leaf",
     .separator = 'x',
     .least = 2,
     .most = 2,
     .kinds = {NIC, TRUNK},
     .make = tt_make_fattree},
    {.name = "bigraph",
     .form = "bigraph:4x16",
     .blurb = "switches x hosts each; each upper switch linked with each lower",
     .separator = 'x',
     .least = 2,
     .most = 2,
     .kinds = {NIC, {"trunk", 0, 10 * US}},
     .make = tt_make_bigraph},
    {.name = "minsky",
     .form = "minsky:48",
     .blurb = "hosts of two sockets and four GPUs, one NIC each",
     .least = 1,
     .most = 1,
     .kinds = {{"nvlink", 320 * GBIT, US},
               {"xbus", 307 * GBIT + GBIT / 5, 500 * NS},
               {"nic", 100 * GBIT, US}},
     .make = tt_make_minsky},
    {.name = NULL},
};

#define MULTITREE "@16GB/s,150ns"
#define MACHINE(name, spec, what)  \
    {                              \
        name, spec, what ": " spec \
    }

const tt_machine tt_machines[] = {
    MACHINE("blueconnect-192", "minsky:48", "BlueConnect's 192 GPUs"),
    MACHINE("multitree-torus-4x4", "torus:4x4" MULTITREE, "MultiTree's torus"),
    MACHINE("multitree-torus-8x8", "torus:8x8" MULTITREE, "MultiTree's torus"),
    MACHINE("multitree-mesh-4x4", "mesh:4x4" MULTITREE, "MultiTree's mesh"),
    MACHINE("multitree-mesh-8x8", "mesh:8x8" MULTITREE, "MultiTree's mesh"),
    MACHINE("multitree-fattree-16", "fattree:4x4" MULTITREE,
            "a small fat tree for MultiTree"),
    MACHINE("multitree-fattree-64", "fattree:8x8" MULTITREE,
            "MultiTree's fat tree"),
    MACHINE("multitree-bigraph-32", "bigraph:4x8" MULTITREE,
            "MultiTree's BiGraph"),
    MACHINE("multitree-bigraph-64", "bigraph:4x16" MULTITREE,
            "MultiTree's BiGraph"),
    MACHINE("flexreduce-2+4", "boxes:2+4@gpu=10GB/s,uplink=1GB/s",
            "FlexReduce's uneven boxes"),
    MACHINE("flexreduce-1+3", "boxes:1+3@gpu=10GB/s,uplink=1GB/s",
            "FlexReduce's uneven boxes"),
    MACHINE("flexreduce-3+4", "boxes:3+4@gpu=10GB/s,uplink=1GB/s",
            "FlexReduce's uneven boxes"),
    MACHINE("flexreduce-8+8+4", "boxes:8+8+4@gpu=10GB/s,uplink=2GB/s",
            "FlexReduce's uneven boxes"),
    {.name = NULL},
};
