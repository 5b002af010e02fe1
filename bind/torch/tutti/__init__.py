# SPDX-License-Identifier: BSD-3-Clause
"""Tutti: collective communication for machines and links that are not all alike.

`import tutti.torch` makes the backend "tutti" known to torch.distributed.
"""
