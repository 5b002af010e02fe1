/* SPDX-License-Identifier: BSD-3-Clause
 * ptx.S - kernels.ptx within the library, as a string; reduction.c uses it. */
    .section .rodata
    .global tt_device_ptx
    .hidden tt_device_ptx
tt_device_ptx:
    .incbin "src/device/kernels.ptx"
    .byte 0
#if defined(__linux__)
    .section .note.GNU-stack, "", %progbits
#endif
