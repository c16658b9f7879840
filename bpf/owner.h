/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Finds the traced device of a request or bio, from the address of its hardware queue or block
 * device. For programs that define `config`, with the number of devices, before this header.
 *
 * A partition is traced as a device in place of its disk: I/O of the rest of the disk has no owner.
 * The kernel counts a request for the partition of its first bio (0b6e522cdc4a, 5.12; before, for
 * the one that contains its first sector), and so do these programs.
 */
#ifndef BIOPSY_OWNER_H
#define BIOPSY_OWNER_H

#include "compat.h"
#include "wire.h"

#define MAX_DEVICES 256
#define OWNER_BITS  14

ARRAY(devices, struct wire_device, MAX_DEVICES);

/*
 * The owner of a kernel address: a block device of bios, or a hardware queue of requests. Filled
 * when an address is first seen, since user space knows numbers and not addresses. Found by hashing
 * the address in the event's own struct, so that no pointer is followed on the hot path.
 */
struct owner {
	/* The address; 0: free, 1: being filled. */
	__u64 key;
	/* 0: not traced; cached as well. */
	__u32 traced;
	__u32 device;
	/* Of this hardware queue (not of a block device): */
	__u32 slot_base;
	__u32 slots;
	__u32 row_base;
	__u32 rare_row_base;
	__u32 shards;
	__u32 shared;
	/* Without compare-and-swap: how many CPUs tried to claim this entry. */
	__u64 claims;
	/* BIO_BASED, BELOW, FLUSHES_APART, PARTITION. */
	__u32 layer;
	__u32 pad[3];
};
_Static_assert(sizeof(struct owner) == 64, "owner");

/* Number of consecutive entries that are probed from an address's hash on. */
#define OWNER_PROBES 8

MAPPED_ARRAY(owners, struct owner, 1 << OWNER_BITS);

/* 1: a traced device is a partition. Set before the programs are loaded. */
const volatile __u32 partitions = 0;

/* Addresses that had no room in `owners`: their events are lost. */
__u64 unlearned = 0;

/*
 * Set when all programs are attached, and cleared before the first is detached: recording begins
 * and ends for all of them at once, so that no request is seen by only some of them. Bios are
 * stamped before that too, so that the first requests have their queue stage.
 */
volatile __u32 running = 0;

/* The interval has ended: the state of operations stays unchanged, for user space to read. */
volatile __u32 over = 0;

/* Which operations are followed: FOLLOW_*. Next to `running`, in the same cache line. */
volatile __u32 following = 0;

/* Hashes the address of a block device or hardware queue to an index of `owners`. */
static __always_inline __u32 owner_place(__u32 low)
{
	return ((low >> 6) * 0x9e3779b1u) >> (32 - OWNER_BITS);
}

/* Whether the caller has claimed the entry, to fill it. */
static __always_inline int claim(struct owner *owner)
{
#ifdef NO_SWAP
	/* If two CPUs tried at once, the entry stays unused for good. There are many. */
	if (owner->claims || !try_lock(&owner->claims))
		return 0;
	owner->key = 1;
	return 1;
#else
	return !__sync_val_compare_and_swap(&owner->key, 0, 1);
#endif
}

static __always_inline __u32 device_number(__u32 major, __u32 minor)
{
	return major << 20 | minor;
}

static __always_inline __u32 disk_number(struct gendisk *disk)
{
	return device_number(BPF_CORE_READ(disk, major), BPF_CORE_READ(disk, first_minor));
}

/*
 * Fills an entry for a new address: finds its device by number. Several CPUs may do this at once:
 * each claims its own entry, all write the same, and `key` last. `disk` and `block_device` are the
 * kernel's device numbers; the latter is 0 for a queue, which serves all partitions of its disk.
 */
static __noinline int learn(__u64 key, __u32 place, __u32 disk, __u32 block_device, __u32 queue)
{
	struct owner *owner = 0;

	for (__u32 i = 0; i < OWNER_PROBES; i++) {
		__u32 at = (place + i) & ((1 << OWNER_BITS) - 1);

		owner = bpf_map_lookup_elem(&owners, &at);
		if (owner && claim(owner))
			break;
		owner = 0;
	}
	if (!owner)
		return -1;
	for (__u32 i = 0; i < MAX_DEVICES && i < config.devices; i++) {
		/* For verifiers like 6.12's, a loop whose counter has its address taken is not
		 * bounded. */
		__u32 at = i;
		struct wire_device *device = bpf_map_lookup_elem(&devices, &at);

		if (!device || device_number(device->major, device->first_minor) != disk)
			continue;
		owner->device = i;
		owner->traced = queue < device->hw_queues;
		if (partitions && block_device && device->flags & PARTITION &&
		    device->partition != block_device)
			owner->traced = 0;
		owner->slots = device->slots_per_queue;
		owner->slot_base = device->slot_base + queue * device->slots_per_queue;
		owner->row_base = device->row_base + queue * device->shards * OPS_SHARDED;
		owner->rare_row_base = device->rare_row_base;
		owner->shards = device->shards;
		owner->shared = device->flags & SHARED_ROWS;
		owner->layer = device->flags & (BIO_BASED | BELOW | FLUSHES_APART | PARTITION);
		break;
	}
	barrier();
	owner->key = key;
	return 0;
}

static __always_inline struct owner *owner_at(__u32 place)
{
	return bpf_map_lookup_elem(&owners, &place);
}

static __noinline struct owner *find_owner(__u64 key, __u32 place)
{
	for (__u32 i = 0; i < OWNER_PROBES; i++) {
		__u32 at = (place + i) & ((1 << OWNER_BITS) - 1);
		struct owner *owner = bpf_map_lookup_elem(&owners, &at);

		if (!owner)
			return 0;
		if (owner->key == key)
			return owner;
#ifndef NO_SWAP
		/* Without compare-and-swap, an entry can stay empty while entries behind it are in
		 * use. */
		if (!owner->key)
			return 0;
#endif
	}
	return 0;
}

/* Finds an owner that is not in its first entry. */
static __noinline struct owner *other_owner_of_request(struct request *rq, __u32 place)
{
	struct blk_mq_hw_ctx *hctx = BPF_CORE_READ(rq, mq_hctx);
	struct owner *owner = find_owner((__u64)hctx, place);
	struct gendisk *disk;

	if (owner)
		return owner;
	disk = request_disk(rq);
	/* An NVMe admin queue has no disk. */
	if (!disk)
		return 0;
	if (learn((__u64)hctx, place, disk_number(disk), 0, BPF_CORE_READ(hctx, queue_num)))
		__sync_fetch_and_add(&unlearned, 1);
	return find_owner((__u64)hctx, place);
}

/* The owner of a request's hardware queue if the device is traced, else NULL. */
static __always_inline struct owner *owner_of_queue(struct request *rq)
{
	struct blk_mq_hw_ctx *hctx = FIELD(rq, mq_hctx);
	__u32 place = owner_place(low_half(hctx));
	struct owner *owner;

	if (!running)
		return 0;
	owner = owner_at(place);
	if (unlikely(!owner || owner->key != (__u64)hctx))
		owner = other_owner_of_request(rq, place);
	return owner && owner->traced ? owner : 0;
}

static __noinline struct owner *other_owner_of_bio(struct bio *bio, __u64 home, __u32 place)
{
	struct owner *owner = find_owner(home, place);
	__u32 number = 0;

	if (owner)
		return owner;
	if (partitions)
		number = bio_device_number(bio);
	if (learn(home, place, disk_number(bio_disk(bio)), number, 0))
		__sync_fetch_and_add(&unlearned, 1);
	return find_owner(home, place);
}

#ifdef NO_SWAP
/* Whether a sector of the disk lies in the traced partition. */
static __noinline int has_sector(__u32 device, __u64 sector)
{
	struct wire_device *of = bpf_map_lookup_elem(&devices, &device);

	return of && sector >= of->first_sector && sector - of->first_sector < of->sectors;
}
#endif

/* The owner of a bio's block device (each partition is one) if it is traced, else NULL. */
static __always_inline struct owner *owner_of_bio(struct bio *bio)
{
	const void *home = bio_home(bio);
	__u32 place = owner_place(low_half(home));
	struct owner *owner = owner_at(place);

	if (unlikely(!owner || owner->key != (__u64)home))
		owner = other_owner_of_bio(bio, (__u64)home, place);
	if (!owner || !owner->traced)
		return 0;
#ifdef NO_SWAP
	/* Kernels with compare-and-swap always have the block device. */
	if (partitions && owner->layer & PARTITION && !bio_has_bdev() &&
	    !has_sector(owner->device, FIELD(bio, bi_iter.bi_sector)))
		return 0;
#endif
	return owner;
}

/*
 * Whether a request of the disk belongs to the traced partition. A flush of the whole drive passes,
 * since requests of the partition wait for it.
 */
static __noinline int is_in_partition(struct request *rq, __u32 device)
{
	struct bio *bio = BPF_CORE_READ(rq, bio);
	struct owner *owner;
	__u64 home;
	__u32 place;

	if ((BPF_CORE_READ(rq, cmd_flags) & REQ_OP_MASK) == REQ_OP_FLUSH)
		return 1;
#ifdef NO_SWAP
	if (!bio_has_bdev())
		return has_sector(device, BPF_CORE_READ(rq, __sector));
#endif
	home = bio ? (__u64)BPF_CORE_READ(bio, bi_bdev) : 0;
	/* A driver command: it belongs to the disk. */
	if (!home)
		return 0;
	place = owner_place((__u32)home);
	owner = owner_at(place);
	if (!owner || owner->key != home)
		owner = other_owner_of_bio(bio, home, place);
	return owner && owner->traced;
}

/*
 * The owner of a request: that of its queue, unless only a partition is traced and the request does
 * not belong to it.
 */
static __always_inline struct owner *owner_of_request(struct request *rq)
{
	struct owner *owner = owner_of_queue(rq);

	if (partitions && owner && owner->layer & PARTITION && !is_in_partition(rq, owner->device))
		return 0;
	return owner;
}

#endif
