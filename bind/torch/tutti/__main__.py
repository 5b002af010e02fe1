# SPDX-License-Identifier: BSD-3-Clause
"""python -m tutti: the program `tutti`."""

from tutti._program import main

main()
