/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Issues I/O that neither busybox nor `biopsy load` can issue, one by one, COUNT times:
 *   issue KIND DEVICE COUNT
 * It prints the total duration in nanoseconds. It also creates up to three partitions, each of a
 * quarter of a disk, after its first quarter: issue partition DEVICE COUNT
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/blkpg.h>
#include <linux/fs.h>
#include <linux/io_uring.h>
#include <linux/nvme_ioctl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define BLOCK 4096

#define HELD_PAGES 64

static char block[BLOCK] __attribute__((aligned(BLOCK)));

/* Reads by the driver's own command. One block is eight logical blocks of 512 bytes. */
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

/* A ring with one request in flight, with the large entries that driver commands need. */
static struct ring {
	int fd;
	char *rings;
	struct io_uring_sqe *sqe;
	struct io_uring_params of;
} ring;

static int ring_made(void)
{
	struct io_uring_params *of = &ring.of;
	size_t bytes;

	of->flags = IORING_SETUP_SQE128 | IORING_SETUP_CQE32;
	ring.fd = syscall(__NR_io_uring_setup, 1, of);
	if (ring.fd < 0)
		return -1;
	bytes = of->cq_off.cqes + of->cq_entries * 2 * sizeof(struct io_uring_cqe);
	ring.rings = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring.fd,
			  IORING_OFF_SQ_RING);
	ring.sqe = mmap(0, 2 * sizeof(struct io_uring_sqe), PROT_READ | PROT_WRITE,
			MAP_SHARED | MAP_POPULATE, ring.fd, IORING_OFF_SQES);
	return ring.rings == MAP_FAILED || ring.sqe == MAP_FAILED ? -1 : 0;
}

static unsigned *ring_word(unsigned offset)
{
	return (unsigned *)(ring.rings + offset);
}

/* Submits the request in the ring's entry and waits for its result, which must be `result`. */
static int ring_done(int result)
{
	struct io_uring_cqe *cqe;
	unsigned head;

	*ring_word(ring.of.sq_off.array) = 0;
	__atomic_fetch_add(ring_word(ring.of.sq_off.tail), 1, __ATOMIC_RELEASE);
	if (syscall(__NR_io_uring_enter, ring.fd, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) != 1)
		return -1;
	head = *ring_word(ring.of.cq_off.head);
	cqe = (struct io_uring_cqe *)(ring.rings + ring.of.cq_off.cqes) +
	      2 * (head & (ring.of.cq_entries - 1));
	__atomic_store_n(ring_word(ring.of.cq_off.head), head + 1, __ATOMIC_RELEASE);
	errno = -cqe->res;
	return cqe->res == result ? 0 : -1;
}

/* Prepares an io_uring request: returns its entry in the ring. */
static struct io_uring_sqe *ring_request(int opcode, int fd, long i)
{
	if (!ring.fd && ring_made())
		return 0;
	memset(ring.sqe, 0, 2 * sizeof(*ring.sqe));
	ring.sqe->opcode = opcode;
	ring.sqe->fd = fd;
	ring.sqe->user_data = i;
	return ring.sqe;
}

/* A sync, which an io_uring worker executes. */
static int ring_synced(int fd, long i)
{
	return ring_request(IORING_OP_FSYNC, fd, i) ? ring_done(0) : -1;
}

/* A read through the page cache by an io_uring worker, far from the last one. */
static int ring_buffered(int fd, long i)
{
	struct io_uring_sqe *read = ring_request(IORING_OP_READ, fd, i);

	if (!read)
		return -1;
	read->flags = IOSQE_ASYNC;
	read->addr = (uintptr_t)block;
	read->len = BLOCK;
	read->off = i * 256 * BLOCK;
	return ring_done(BLOCK);
}

/* The read of `passthrough` as an io_uring request, on the drive's character device. */
static int ring_passthrough(int fd, long i)
{
	struct io_uring_sqe *request = ring_request(IORING_OP_URING_CMD, fd, i);
	struct nvme_uring_cmd *read;

	if (!request)
		return -1;
	request->cmd_op = NVME_URING_CMD_IO;
	read = (struct nvme_uring_cmd *)request->cmd;
	read->opcode = 2;
	read->nsid = 1;
	read->addr = (uintptr_t)block;
	read->data_len = BLOCK;
	read->cdw10 = i * (BLOCK / 512);
	read->cdw12 = BLOCK / 512 - 1;
	return ring_done(0);
}

/*
 * Holds a mutex while a page is read from the device: a writer to a pipe holds the pipe's mutex
 * while it copies the bytes, which are not in memory yet. Another process contends for the mutex
 * all the time (FIONREAD).
 */
static int held(int fd, long i)
{
	static int ends[2];
	static char *pages;
	static pid_t other;
	char byte;
	int bytes;

	if (!pages) {
		pages = mmap(0, HELD_PAGES * BLOCK, PROT_READ, MAP_SHARED, fd, 0);
		if (pages == MAP_FAILED || madvise(pages, HELD_PAGES * BLOCK, MADV_RANDOM) ||
		    pipe(ends))
			return -1;
		other = fork();
		if (!other) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			while (!ioctl(ends[0], FIONREAD, &bytes))
				usleep(1000);
			_exit(1);
		}
		if (other < 0)
			return -1;
	}
	if (write(ends[1], pages + i % HELD_PAGES * BLOCK, 1) != 1)
		return -1;
	return read(ends[0], &byte, 1) == 1 ? 0 : -1;
}

static int written(int fd, long i)
{
	return pwrite(fd, block, BLOCK, i * BLOCK) == BLOCK ? 0 : -1;
}

/* Number of adjacent reads, which merge into one request. */
#define NEIGHBOURS 7

static int neighbours(int fd, long i)
{
	static aio_context_t context;
	static char room[NEIGHBOURS][BLOCK] __attribute__((aligned(BLOCK)));
	struct iocb reads[NEIGHBOURS] = {0}, *all[NEIGHBOURS];
	struct io_event results[NEIGHBOURS];
	long k;

	if (!context && syscall(__NR_io_setup, NEIGHBOURS, &context))
		return -1;
	for (k = 0; k < NEIGHBOURS; k++) {
		reads[k].aio_lio_opcode = IOCB_CMD_PREAD;
		reads[k].aio_fildes = fd;
		reads[k].aio_buf = (uintptr_t)room[k];
		reads[k].aio_nbytes = BLOCK;
		reads[k].aio_offset = (i * NEIGHBOURS + k) * BLOCK;
		reads[k].aio_data = i * NEIGHBOURS + k;
		all[k] = &reads[k];
	}
	if (syscall(__NR_io_submit, context, NEIGHBOURS, all) != NEIGHBOURS ||
	    syscall(__NR_io_getevents, context, NEIGHBOURS, NEIGHBOURS, results, 0) != NEIGHBOURS)
		return -1;
	for (k = 0; k < NEIGHBOURS; k++)
		if (results[k].res != BLOCK)
			return -1;
	return 0;
}

static int flushed(int fd, long i)
{
	return written(fd, i) || fsync(fd);
}

/* A sync without dirty data. */
static int only_flushed(int fd, long i)
{
	(void)i;
	return fsync(fd);
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
	part.start = bytes / 4 * (i + 1);
	part.length = bytes / 4;
	return ioctl(fd, BLKPG, &add);
}

static const struct kind {
	const char *name;
	int flags;
	int (*once)(int fd, long i);
} kinds[] = {
    {"passthrough", O_DIRECT, passthrough},
    {"ring-passthrough", 0, ring_passthrough},
    {"ring-fsync", O_DIRECT, ring_synced},
    {"ring-buffered", 0, ring_buffered},
    {"held", 0, held},
    {"write", O_DIRECT, written},
    {"write-fsync", O_DIRECT, flushed},
    {"write-dsync", O_DIRECT | O_DSYNC, written},
    {"neighbours", O_DIRECT, neighbours},
    {"discard", O_DIRECT, discarded},
    {"zero", O_DIRECT, zeroed},
    {"partition", O_DIRECT, partition},
    {"fsync", O_DIRECT, only_flushed},
};

static long long now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000000ll + time.tv_nsec;
}

int main(int argc, char **argv)
{
	const struct kind *kind = kinds, *end = kinds + sizeof(kinds) / sizeof(*kinds);
	long long begin, took = 0;
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
	fd = open(argv[2], O_RDWR | kind->flags);
	if (fd < 0) {
		perror(argv[2]);
		return 1;
	}
	for (i = 0; i < count; i++) {
		begin = now();
		if (kind->once(fd, i)) {
			perror(argv[1]);
			return 1;
		}
		took += now() - begin;
	}
	printf("%lld\n", took);
	return 0;
}
