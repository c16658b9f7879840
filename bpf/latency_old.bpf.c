/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* The programs of latency.bpf.c for kernels without compare-and-swap; see compat.h. */
#define NO_SWAP
#include "latency.bpf.c"
