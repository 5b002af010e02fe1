/* SPDX-License-Identifier: BSD-3-Clause
 * page.S - the files of share/view within the program; view_page.c uses them. */
    .section .rodata
    .global cli_page_html, cli_page_css, cli_page_js, cli_page_d3
cli_page_html:
    .incbin "share/view/view.html"
    .byte 0
cli_page_css:
    .incbin "share/view/view.css"
    .byte 0
cli_page_js:
    .incbin "share/view/view.js"
    .byte 0
cli_page_d3:
    .incbin "share/view/d3.min.js"
    .byte 0
#if defined(__linux__)
    .section .note.GNU-stack, "", %progbits
#endif
