/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Declares types of drivers that are mostly modules, in the manner of kernel.h. CO-RE finds them in
 * the BTF of the module (5.11), or in the kernel's own if the driver is built in. A module may not
 * be loaded: check before reading any of these.
 */
#ifndef BIOPSY_MODULES_H
#define BIOPSY_MODULES_H

#include "kernel.h"

/* Its members are not used. */
struct spinlock {
} CORE;

/* drivers/nvme/host. */
struct nvme_ctrl {
	int instance;
} CORE;

struct nvme_dev {
	struct nvme_queue *queues;
	struct nvme_ctrl ctrl;
} CORE;

struct nvme_queue {
	struct nvme_dev *dev;
	struct spinlock sq_lock;
	struct spinlock cq_poll_lock;
	__u16 qid;
} CORE;

#endif
