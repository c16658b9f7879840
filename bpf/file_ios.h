/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Counts the bios of each file on each device, by sampling. For the latency programs, which define
 * `config` before this header.
 */
#ifndef BIOPSY_FILE_IOS_H
#define BIOPSY_FILE_IOS_H

#include "files.h"
#include "rows.h"
#include "submitter.h"
#include "wire.h"

/* User space sets the size, and adds one FILE_OTHERS row for each device. */
HASH(file_ios, struct wire_file_key, struct wire_file_ios, 1);

/* Files that have a row. */
__u64 files_found = 0;

/* A bio that was counted by process. */
struct counted_bio {
	/* Bios that its process submitted to the device before. */
	__u64 before;
	__u32 device;
	__u32 selected;
};

static __always_inline struct wire_file_ios *add_file(struct wire_file_key *key,
						      const struct origin *origin)
{
	struct wire_file_ios fresh = {
	    .opener = origin ? origin->by.pid : bpf_get_current_pid_tgid() >> 32,
	};

	if (!bpf_map_update_elem(&file_ios, key, &fresh, BPF_NOEXIST)) {
		__sync_fetch_and_add(&files_found, 1);
	} else if (!bpf_map_lookup_elem(&file_ios, key)) {
		__builtin_memset(&key->file, 0, sizeof(key->file));
		key->file.kind = FILE_OTHERS;
		key->selected = 0;
	}
	return bpf_map_lookup_elem(&file_ios, key);
}

static __noinline int count_file_io(__u64 bio, const struct counted_bio *of,
				    const struct origin *origin)
{
	struct wire_file_key key = {};
	struct wire_file_ios *row;
	__u64 counts = 1;
	__u32 op;

	if (!CAN_FOLLOW || !of)
		return 0;
	if (of->before >= FILE_SAMPLED_FROM) {
		counts = FILE_SAMPLED_EVERY;
		/* At random, since files may alternate. */
		if (bpf_get_prandom_u32() % FILE_SAMPLED_EVERY)
			return 0;
	}
	key.device = of->device;
	key.selected = of->selected;
	find_file(bio, &key.file);
	row = bpf_map_lookup_elem(&file_ios, &key);
	if (!row)
		row = add_file(&key, origin);
	if (!row)
		return 0;
	__sync_fetch_and_add(&row->sampled, 1);
	__sync_fetch_and_add(&row->bios, counts);
	op = classify((__u32)WORD_OF(bio, bio, bi_opf));
	if (op == OP_READ || op == OP_WRITE || op == OP_FUA)
		__sync_fetch_and_add(&row->bytes,
				     counts * (__u32)WORD_OF(bio, bio, bi_iter.bi_size));
	return 0;
}

#endif
