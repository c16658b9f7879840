/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Declares the kernel types and fields that the programs read, as CO-RE views: libbpf adjusts the
 * offsets to the running kernel's BTF when it loads an object. No vmlinux.h is needed to build.
 * Only fields that are read are declared; comments say where a field moved.
 */
#ifndef BIOPSY_KERNEL_H
#define BIOPSY_KERNEL_H

#include <linux/types.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "maps.h"

#define CORE __attribute__((preserve_access_index))

struct request_queue;

struct gendisk {
	int major;
	int first_minor;
	char disk_name[32];
	struct request_queue *queue;
} CORE;

/* Only the offsets of members of these types are used. */
struct work_struct {
} CORE;

struct delayed_work {
} CORE;

struct request_queue {
	/* Since d152c682f03c (5.15); before, the request itself had its disk. */
	struct gendisk *disk;
	struct work_struct timeout_work;
	struct delayed_work requeue_work;
} CORE;

struct block_device {
	struct gendisk *bd_disk;
	__u32 bd_dev;
} CORE;

struct bio;
struct bio_list;
struct buffer_head;

struct bvec_iter {
	__u64 bi_sector;
	unsigned int bi_size;
	unsigned int bi_idx;
	unsigned int bi_bvec_done;
} CORE;

/* In a tail page compound_head is the head's address + 1. */
struct page {
	unsigned long compound_head;
	struct address_space *mapping;
} CORE;

/* Bits of a page's flags. */
enum pageflags {
	PG_locked,
	PG_uptodate,
	PG_writeback,
	PG_swapbacked,
};

/* x86. */
#define PAGE_BITS 12

struct bio_vec {
	struct page *bv_page;
	unsigned int bv_offset;
} CORE;

typedef void bio_end_io_t(struct bio *bio);
typedef void bh_end_io_t(struct buffer_head *buffer, int uptodate);

struct buffer_head {
	bh_end_io_t *b_end_io;
} CORE;

struct kernfs_node {
	/* The inode number of a cgroup's directory, since 67c0496e87d1 (5.5). */
	__u64 id;
} CORE;

struct cgroup {
	struct kernfs_node *kn;
	/* Depth below the root, whose level is 0. */
	int level;
} CORE;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
} CORE;

/* With CONFIG_BLK_CGROUP and CONFIG_MEMCG. */
enum cgroup_subsys_id {
	io_cgrp_id = 3,
	memory_cgrp_id = 4,
};

/* A task's cgroup for each controller; `dfl_cgrp` is its cgroup of v2. */
struct css_set {
	struct cgroup_subsys_state *subsys[16];
	struct cgroup *dfl_cgrp;
} CORE;

struct blkcg {
	struct cgroup_subsys_state css;
} CORE;

struct blkcg_gq {
	struct blkcg *blkcg;
} CORE;

struct bio {
	struct bio *bi_next;
	/* Since 309dca309fc3 (5.12). */
	struct block_device *bi_bdev;
	bio_end_io_t *bi_end_io;
	void *bi_private;
	__u32 bi_opf;
	struct bvec_iter bi_iter;
	struct bio_vec *bi_io_vec;
	/* The pool that it was allocated from; NULL: none. */
	void *bi_pool;
	/* With CONFIG_BLK_CGROUP: the cgroup that the block controller charges. */
	struct blkcg_gq *bi_blkg;
} CORE;

/* fs/iomap/direct-io.c of newer kernels; it begins with the kiocb. */
struct iomap_dio_simple {
	struct bio bio;
} CORE;

/* block/fops.c; like the struct of fs/iomap it begins with its kiocb. */
struct blkdev_dio {
	struct bio bio;
} CORE;

struct io_cqe {
	__u64 user_data;
} CORE;

/* The part of a request that an io_uring worker handles; only its offset is used. */
struct io_wq_work {
} CORE;

/* io_uring/io-wq.c */
struct io_worker {
	struct io_wq_work *cur_work;
} CORE;

struct io_ring_ctx;

/*
 * The kiocb of a read or write, or the command, is its first member (since 5.1), so the addresses
 * are equal.
 */
struct io_kiocb {
	__u8 opcode;
	struct io_ring_ctx *ctx;
	/* Since cef216fc32d7 (5.19), and so in each kernel whose events name a request. */
	struct io_cqe cqe;
	struct io_wq_work work;
} CORE;

/* `obj` is the address of the application's iocb, `data` the iocb's first word. */
struct io_event {
	__u64 data;
	__u64 obj;
} CORE;

/*
 * `user_id` is the context id that io_setup returned: the address of the completion ring, which
 * begins with the context's index in the process's table.
 */
struct kioctx {
	unsigned long user_id;
} CORE;

struct kioctx_table {
	unsigned int nr;
	struct kioctx *table[];
} CORE;

struct mm_struct {
	struct kioctx_table *ioctx_table;
} CORE;

/* fs/aio.c; its kiocb is its first member. */
struct aio_kiocb {
	struct kioctx *ki_ctx;
	struct io_event ki_res;
} CORE;

/* x86-64: registers with a system call's first four arguments (r10 is the fourth). */
struct pt_regs {
	unsigned long bp;
	unsigned long r10;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	/* System call number; -1 if the kernel was entered in another way. */
	unsigned long orig_ax;
	unsigned long ip;
	unsigned long cs;
	unsigned long sp;
} CORE;

/* Code segment of 64-bit user mode: __USER_CS of x86-64, a macro. */
#define USER_CS 0x33

struct timespec64 {
	__s64 tv_sec;
} CORE;

struct blk_mq_hw_ctx {
	struct delayed_work run_work;
	struct request_queue *queue;
	__u32 queue_num;
	/* The driver's pointer: for NVMe its struct nvme_queue. */
	void *driver_data;
} CORE;

/* State of a request in the driver: the same names since 4.18. */
enum mq_rq_state {
	MQ_RQ_IDLE,
	MQ_RQ_IN_FLIGHT,
	MQ_RQ_COMPLETE,
};

struct request {
	struct request_queue *q;
	struct blk_mq_hw_ctx *mq_hctx;
	__u32 cmd_flags;
	__u32 rq_flags;
	int tag;
	int internal_tag;
	__u32 __data_len;
	__u64 __sector;
	struct bio *bio;
	enum mq_rq_state state;
	/* Set by the task that waits for a request without a bio. */
	void *end_io_data;
} CORE;

enum req_flag_bits {
	__REQ_META = 12,
	__REQ_FUA = 17,
	__REQ_PREFLUSH = 18,
	__REQ_DRV = 24,
	__REQ_SWAP = 25,
};

/* Request operations, the same numbers from 5.10 to 7.2 (enum req_opf became enum req_op). */
#define REQ_OP_MASK	    0xff
#define REQ_OP_READ	    0
#define REQ_OP_WRITE	    1
#define REQ_OP_FLUSH	    2
#define REQ_OP_DISCARD	    3
#define REQ_OP_WRITE_ZEROES 9
/* 32 and 33 were REQ_OP_SCSI_IN and _OUT until 5.12; from there on 34 is the first driver op. */
#define REQ_OP_FIRST_DRIVER 32

/* linux/sched.h: a macro, so not in BTF; unchanged since 2.6. */
#define PF_KTHREAD 0x00200000
/* Since 5.12. */
#define PF_IO_WORKER 0x00000010
#define PF_WQ_WORKER 0x00000020
/* On kernels with vhost tasks (54e6842d0775, 6.4); another flag before. */
#define PF_USER_WORKER 0x00004000

/* kernel/kthread.c, kernel/workqueue.c: the workqueue of a worker's current work. */
struct workqueue_struct {
	char name[24];
} CORE;

struct pool_workqueue {
	struct workqueue_struct *wq;
} CORE;

struct worker {
	/* NULL: the worker is idle. */
	struct work_struct *current_work;
	struct pool_workqueue *current_pwq;
	/* The name of its workqueue, or the description that the work set (flush-254:0): on every
	 * worker since 8bf895931ee3 (4.18). */
	char desc[24];
} CORE;

struct kthread {
	void *data;
} CORE;

struct list_head {
	struct list_head *next;
} CORE;

/* x86. */
struct thread_info {
	__u32 status;
	__u32 cpu;
} CORE;

/* TS_COMPAT of x86: a macro, so not in BTF. */
#define THREAD_STATUS_COMPAT 0x0002

struct rq {
	/* Run-queue clock of its CPU at the last update; it differs much between CPUs. */
	__u64 clock;
} CORE;

struct cfs_rq {
	/* With CONFIG_FAIR_GROUP_SCHED. */
	struct rq *rq;
} CORE;

struct sched_entity {
	/* When its run time was last added up: for a task that is not running, when it was switched
	 * out. */
	__u64 exec_start;
	/* Total CPU time until then. */
	__u64 sum_exec_runtime;
	/* With CONFIG_FAIR_GROUP_SCHED: the run queue of the CPU that it runs on or waits for. */
	struct cfs_rq *cfs_rq;
} CORE;

/* With CONFIG_SCHED_INFO. */
struct sched_info {
	/* Total run-queue delay, without the current wait. */
	unsigned long long run_delay;
	/* Since when it has been queued for a CPU, by its run queue's clock; 0: not queued. */
	unsigned long long last_queued;
} CORE;

/* Number of requests, since 5f0ed774ed29 (5.0). */
struct blk_plug {
	unsigned short rq_count;
} CORE;

/* atomic_t. */
struct atomic {
	int counter;
};

struct signal_struct {
	/* Threads that have not begun to exit. */
	struct atomic live;
} CORE;

struct task_struct {
	struct thread_info thread_info;
	struct sched_entity se;
	struct sched_info sched_info;
	/* Since 2f064a59a11f (5.14); `state` before. */
	unsigned int __state;
	int exit_state;
	unsigned int flags;
	/* An int until it became smaller (seen on 7.2): CO-RE adapts the size of unsigned fields
	 * only. */
	unsigned int on_cpu;
	unsigned in_iowait : 1;
	/* Voluntary and involuntary context switches. */
	unsigned long nvcsw;
	unsigned long nivcsw;
	__u64 start_time;
	struct css_set *cgroups;
	/* Links the threads of a process. */
	struct list_head thread_node;
	struct signal_struct *signal;
	int tgid;
	int pid;
	struct mm_struct *mm;
	void *stack;
	/* The bios that it has submitted while it is inside submit_bio of a stacked driver; else
	 * NULL. */
	struct bio_list *bio_list;
	/* Of an io_uring worker its struct io_worker, of a kernel thread its struct kthread. Since
	 * e32cf5dfbe22 (5.17). */
	void *worker_private;
	struct task_struct *group_leader;
	char comm[16];
	struct blk_plug *plug;
} CORE;

/* A mapping's flags contain its folio sizes since 4f661701731a (6.12). */
enum mapping_flags {
	AS_FOLIO_ORDER_MIN = 16,
};

struct inode;

struct address_space {
	struct inode *host;
	unsigned long flags;
} CORE;

struct super_block {
	__u32 s_dev;
} CORE;

struct inode {
	__u16 i_mode;
	struct super_block *i_sb;
	struct address_space *i_mapping;
	unsigned long i_ino;
	__u32 i_rdev;
	__s64 i_size;
} CORE;

/* linux/stat.h: macros, so not in BTF. */
#define S_IFMT	0170000
#define S_IFBLK 0060000

struct file {
	struct inode *f_inode;
} CORE;

struct kiocb {
	struct file *ki_filp;
} CORE;

/* fs/direct-io.c: direct I/O of file systems that do not use iomap. */
struct dio {
	struct inode *inode;
} CORE;

/* Size of the current read-ahead, in pages. */
struct file_ra_state {
	unsigned int size;
} CORE;

struct readahead_control {
	struct address_space *mapping;
	unsigned long _index;
} CORE;

/* `dev_id` is the driver's pointer: for NVMe the struct nvme_queue that the vector serves. */
struct irqaction {
	void *dev_id;
	/* Set if the handler only wakes it (IRQF_ONESHOT, threadirqs). */
	struct task_struct *thread;
} CORE;

struct kmem_cache {
	const char *name;
} CORE;

/* Return values of a handler: enum irqreturn, unchanged since threaded handlers came in 2.6.30. */
#define IRQ_NONE	0
#define IRQ_WAKE_THREAD 2

/* linux/interrupt.h: unchanged since it was added in 2.6.16. */
#define BLOCK_SOFTIRQ 4

/* The registers before this field differ by architecture: CO-RE finds the offset. */
struct bpf_perf_event_data {
	__u64 sample_period;
} CORE;

struct seq_file;

/* Output of an iterator. */
struct bpf_iter_meta {
	struct seq_file *seq;
} CORE;

/* `task` is NULL after the last task. */
struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
} CORE;

#endif
