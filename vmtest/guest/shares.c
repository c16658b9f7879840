/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Spends known shares of CPU time or I/O in its functions:
 *   shares cpu SECONDS         spends CPU time: 60, 30 and 10 % in sixty(), thirty() and ten()
 *   shares sides SECONDS       alternates between user_side() and the kernel below kernel_side();
 *                              prints the ns of each by the thread's clock
 *   shares io DEVICE ROUNDS    reads three blocks per round in thrice() and one in once();
 *                              prints the ns of each
 * Built without optimisation and with frame pointers. The C library is built without frame pointers
 * and hides its callers, so the system calls that the tests check are made here.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#define BLOCK 4096

static volatile unsigned long sink;
static char block[BLOCK] __attribute__((aligned(BLOCK)));
static int fd;
static long at;

static unsigned long clock_ns(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec * 1000000000ul + time.tv_nsec;
}

static unsigned long now(void)
{
	return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

static void work(long times)
{
	for (long i = 0; i < times * 20000; i++)
		sink += i;
}

__attribute__((noinline)) void sixty(void)
{
	work(6);
	__asm__("");
}

__attribute__((noinline)) void thirty(void)
{
	work(3);
	__asm__("");
}

__attribute__((noinline)) void ten(void)
{
	work(1);
	__asm__("");
}

static inline __attribute__((always_inline)) long call(long number, long a, long b, long c, long d)
{
	register long fourth __asm__("r10") = d;
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth)
			 : "rcx", "r11", "memory");
	return result;
}

static inline __attribute__((always_inline)) void read_one(void)
{
	if (call(SYS_pread64, fd, (long)block, BLOCK, at++ % 4096 * BLOCK) != BLOCK)
		exit(1);
}

__attribute__((noinline)) void thrice(void)
{
	read_one();
	read_one();
	read_one();
	__asm__("");
}

__attribute__((noinline)) void once(void)
{
	read_one();
	__asm__("");
}

__attribute__((noinline)) void user_side(void)
{
	work(20);
	__asm__("");
}

static char page[1 << 16];

__attribute__((noinline)) void kernel_side(void)
{
	call(SYS_pread64, fd, (long)page, sizeof(page), 0);
	__asm__("");
}

int main(int argc, char **argv)
{
	unsigned long first = 0, second = 0, until, begin, middle;

	if (argc < 3)
		return 2;
	until = strtoul(argv[2], 0, 10) * 1000000000ul;
	if (!strcmp(argv[1], "cpu")) {
		while (now() < until) {
			sixty();
			thirty();
			ten();
		}
		return 0;
	}
	if (!strcmp(argv[1], "sides")) {
		fd = open("/dev/zero", O_RDONLY);
		while (now() < until) {
			begin = now();
			user_side();
			middle = now();
			for (int i = 0; i < 20; i++)
				kernel_side();
			first += middle - begin;
			second += now() - middle;
		}
		printf("%lu %lu\n", first, second);
		return 0;
	}
	if (strcmp(argv[1], "io") || argc != 4)
		return 2;
	fd = open(argv[2], O_RDONLY | O_DIRECT);
	if (fd < 0)
		return 1;
	for (long i = 0; i < atol(argv[3]); i++) {
		begin = clock_ns(CLOCK_MONOTONIC);
		thrice();
		middle = clock_ns(CLOCK_MONOTONIC);
		once();
		first += middle - begin;
		second += clock_ns(CLOCK_MONOTONIC) - middle;
	}
	printf("%lu %lu\n", first, second);
	return 0;
}
