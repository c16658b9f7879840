/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * I/O that neither busybox nor `biopsy load` makes, one by one and as often as told:
 *   issue KIND DEVICE COUNT
 * and a partition over the second half of a disk: issue partition DEVICE 1
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/blkpg.h>
#include <linux/fs.h>
#include <linux/nvme_ioctl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define BLOCK 4096

static char block[BLOCK] __attribute__((aligned(BLOCK)));

/* A read as the driver's own command. Eight logical blocks of 512 bytes are a block. */
static int passthrough(int fd, long i)
{
	struct nvme_user_io read = {
	    .opcode = 2,
	    .nblocks = BLOCK / 512 - 1,
	    .addr = (uintptr_t)block,
	    .slba = i * (BLOCK / 512),
	};

	return ioctl(fd, NVME_IOCTL_SUBMIT_IO, &read);
}

static int written(int fd, long i)
{
	return pwrite(fd, block, BLOCK, i * BLOCK) == BLOCK ? 0 : -1;
}

static int flushed(int fd, long i)
{
	return written(fd, i) || fsync(fd);
}

static int on_range(int fd, long i, unsigned long request)
{
	uint64_t range[2] = {i * 16 * BLOCK, 16 * BLOCK};

	return ioctl(fd, request, range);
}

static int discarded(int fd, long i)
{
	return on_range(fd, i, BLKDISCARD);
}

static int zeroed(int fd, long i)
{
	return on_range(fd, i, BLKZEROOUT);
}

static int partition(int fd, long i)
{
	struct blkpg_partition part = {0};
	struct blkpg_ioctl_arg add = {
	    .op = BLKPG_ADD_PARTITION, .datalen = sizeof(part), .data = &part};
	uint64_t bytes;

	part.pno = i + 1;
	if (ioctl(fd, BLKGETSIZE64, &bytes))
		return -1;
	part.start = bytes / 2;
	part.length = bytes / 2;
	return ioctl(fd, BLKPG, &add);
}

static const struct kind {
	const char *name;
	int flags;
	int (*once)(int fd, long i);
} kinds[] = {
    {"passthrough", 0, passthrough},   {"write", 0, written},	  {"write-fsync", 0, flushed},
    {"write-dsync", O_DSYNC, written}, {"discard", 0, discarded}, {"zero", 0, zeroed},
    {"partition", 0, partition},
};

int main(int argc, char **argv)
{
	const struct kind *kind = kinds, *end = kinds + sizeof(kinds) / sizeof(*kinds);
	long i, count;
	int fd;

	if (argc != 4) {
		fprintf(stderr, "usage: issue KIND DEVICE COUNT\n");
		return 2;
	}
	while (kind < end && strcmp(kind->name, argv[1]))
		kind++;
	if (kind == end) {
		fprintf(stderr, "issue: no kind %s\n", argv[1]);
		return 2;
	}
	count = atol(argv[3]);
	fd = open(argv[2], O_RDWR | O_DIRECT | kind->flags);
	if (fd < 0) {
		perror(argv[2]);
		return 1;
	}
	for (i = 0; i < count; i++) {
		if (kind->once(fd, i)) {
			perror(argv[1]);
			return 1;
		}
	}
	return 0;
}
