/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The programs of latency.bpf.c for kernels without BTF: compat.h says how. They may also be older
 * than compare-and-swap, so the block layer is all that they follow. */
#define RAW
#define NO_SWAP
#include "latency.bpf.c"
