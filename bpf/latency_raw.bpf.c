/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The programs of latency.bpf.c for kernels without BTF; see compat.h. These may also lack
 * compare-and-swap, so only the block layer is followed.
 */
#define RAW
#define NO_SWAP
#include "latency.bpf.c"
