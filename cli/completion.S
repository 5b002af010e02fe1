/* SPDX-License-Identifier: BSD-3-Clause
 * completion.S - the files of share/completion within the program; complete.c
 * uses them. */
    .section .rodata
    .global cli_completion_bash, cli_completion_zsh
cli_completion_bash:
    .incbin "share/completion/tutti.bash"
    .byte 0
cli_completion_zsh:
    .incbin "share/completion/_tutti"
    .byte 0
#if defined(__linux__)
    .section .note.GNU-stack, "", %progbits
#endif
