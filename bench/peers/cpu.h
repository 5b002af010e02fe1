/* SPDX-License-Identifier: BSD-3-Clause
 * cpu.h - processor time. with_gloo.py loads it, too. */
#ifndef TUTTI_BENCH_CPU_H
#define TUTTI_BENCH_CPU_H

/* Seconds that this process has used, all its threads, in user and in kernel
 * mode. Packets that the kernel receives in the middle of a system call are in
 * it, whoever they are for. */
double cpu_of_process(void);

/* Seconds that the kernel's threads for softirqs (ksoftirqd) have used, all of
 * the machine: packets that no process has been charged with. 0 where /proc
 * does not say. */
double cpu_of_softirqs(void);

#endif
