//! The generated skeletons, and the proof that both sides of the line mean the same.

#[allow(warnings, clippy::all, reason = "libbpf-cargo writes it")]
mod generated {
    pub mod latency {
        include!(concat!(env!("OUT_DIR"), "/latency.skel.rs"));
    }
    /// For its types only: [`super::object`] holds it.
    pub mod latency_old {
        include!(concat!(env!("OUT_DIR"), "/latency_old.skel.rs"));
    }
    pub mod blocked {
        include!(concat!(env!("OUT_DIR"), "/blocked.skel.rs"));
    }
    pub mod reclaim {
        include!(concat!(env!("OUT_DIR"), "/reclaim.skel.rs"));
    }
    pub mod interrupts {
        include!(concat!(env!("OUT_DIR"), "/interrupts.skel.rs"));
    }
    pub mod locks {
        include!(concat!(env!("OUT_DIR"), "/locks.skel.rs"));
    }
    pub mod pagecache {
        include!(concat!(env!("OUT_DIR"), "/pagecache.skel.rs"));
    }
    pub mod paths {
        include!(concat!(env!("OUT_DIR"), "/paths.skel.rs"));
    }
    pub mod stacks {
        include!(concat!(env!("OUT_DIR"), "/stacks.skel.rs"));
    }
    pub mod threads {
        include!(concat!(env!("OUT_DIR"), "/threads.skel.rs"));
    }
    pub mod baseline {
        include!(concat!(env!("OUT_DIR"), "/baseline.skel.rs"));
    }
}

pub use generated::{
    baseline, blocked, interrupts, latency, locks, pagecache, paths, reclaim, stacks, threads,
};

use self::generated::latency_old;

use super::{btf, libbpf};
use crate::wire::blocked::{
    Sum, Waits, WireAsleep, WireSleeper, WireWaitProcess, WireWaitStack, WireWaiter, WireWaitsRow,
};
use crate::wire::events::{WireEmitter, WireIo, WireOperation, WireSubmitter};
use crate::wire::files::{WireFile, WireFileIos, WireFileKey};
use crate::wire::generator::WireGenerator;
use crate::wire::groups::{WireGroup, WireGroupKey};
use crate::wire::interrupts::{WireCompletions, WireQueue, WireSoftirq, WireVector};
use crate::wire::locks::stacks::{WireLockStack, WireLockStackKey, WireLockWho, WireLockWhoKey};
use crate::wire::locks::{
    WireLock, WireLockCpu, WireLockHolder, WireLockProcess, WireLockRecent, WireLockRecentProcess,
    WireLockWaiter, WireNvmePlaces, WireWaits,
};
use crate::wire::pagecache::{
    WireIsolated, WirePath, WireReadahead, WireReclaim, WireReclaimer, WireReclaimerKey,
};
use crate::wire::parts::WirePartRow;
use crate::wire::places::{WirePlace, WireStamps};
use crate::wire::process_ios::{WireProcessIos, WireProcessKey};
use crate::wire::rows::{WireBounds, WireOperationRow, WireRow, WireTotal};
use crate::wire::stacks::{Counters, SampleHead, WireBudget, WireStackKey, WireTaskStack};
use crate::wire::submits::{WireSubmitRow, WireSubmitStack};
use crate::wire::threads::WireThread;
use crate::wire::{WireBioIo, WireCounters, WireDevice, WireExtent, WireSlot};

macro_rules! compiled {
    ($name:literal) => {
        ($name, include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".bpf.o")))
    };
}

/// All objects by the names of their sources.
pub const OBJECTS: &[(&str, &[u8])] = &[
    compiled!("latency"),
    LATENCY_OLD,
    LATENCY_RAW,
    INTERRUPTS,
    compiled!("locks"),
    compiled!("pagecache"),
    compiled!("paths"),
    compiled!("baseline"),
    compiled!("stacks"),
    compiled!("threads"),
    compiled!("blocked"),
    compiled!("reclaim"),
];

/// The programs of interrupts.bpf.c.
const INTERRUPTS: (&str, &[u8]) = compiled!("interrupts");

/// The programs of latency.bpf.c without compare-and-swap.
const LATENCY_OLD: (&str, &[u8]) = compiled!("latency_old");

/// The same without types of the kernel's.
const LATENCY_RAW: (&str, &[u8]) = compiled!("latency_raw");

/// Which of the objects the skeleton [`latency`] opens: what this kernel takes.
pub fn object(usual: &'static [u8]) -> &'static [u8] {
    match btf::file() {
        Some(_) => LATENCY_RAW.1,
        None if libbpf::has_swap() => usual,
        None => LATENCY_OLD.1,
    }
}

/// What opens it: with the file that stands in for the kernel's own BTF.
pub fn latency_builder() -> libbpf_rs::Result<latency::LatencySkelBuilder> {
    let mut builder = latency::LatencySkelBuilder::default();
    if let Some(file) = btf::file() {
        builder.obj_builder.btf_custom_path(file)?;
    }
    Ok(builder)
}

/// Whether that is the usual one, which follows operations, bios of bio-based devices and submitters.
pub fn is_usual() -> bool {
    btf::file().is_none() && libbpf::has_swap()
}

/// The number that a header of `bpf/` defines, as `#define NAME 14`. Macros are not in the BTF of the objects.
pub const fn header_number(header: &str, name: &str) -> u32 {
    const DEFINE: &[u8] = b"#define ";
    let (header, name) = (header.as_bytes(), name.as_bytes());
    let mut line = 0;
    while line < header.len() {
        let mut at = after(header, line, DEFINE);
        if at > line {
            let rest = after(header, at, name);
            if rest > at && (header[rest] == b' ' || header[rest] == b'\t') {
                at = rest;
                while header[at] == b' ' || header[at] == b'\t' {
                    at += 1;
                }
                let mut number = 0;
                while header[at].is_ascii_digit() {
                    number = number * 10 + (header[at] - b'0') as u32;
                    at += 1;
                }
                assert!(header[at] == b'\n' && header[at - 1].is_ascii_digit(), "not a plain decimal number");
                return number;
            }
        }
        while line < header.len() && header[line] != b'\n' {
            line += 1;
        }
        line += 1;
    }
    panic!("the header does not define it")
}

/// The place behind `word` where the text at `at` begins with it; else `at`.
const fn after(text: &[u8], at: usize, word: &[u8]) -> usize {
    let mut n = 0;
    while n < word.len() {
        if at + n >= text.len() || text[at + n] != word[n] {
            return at;
        }
        n += 1;
    }
    at + n
}

const _: () = assert!(
    crate::wire::MAX_DEVICES == header_number(include_str!("../../bpf/owner.h"), "MAX_DEVICES") as usize
);

/// Compares a mirror with the type that clang saw: size, and offset of each named field.
macro_rules! same_layout {
    ($rust:ty, $clang:ty: $($field:ident)+) => {
        const _: () = {
            assert!(size_of::<$rust>() == size_of::<$clang>());
            $(assert!(std::mem::offset_of!($rust, $field) == std::mem::offset_of!($clang, $field));)+
        };
    };
}

same_layout!(WireExtent, latency::types::wire_extent: sum not_min max);
same_layout!(WireRow, latency::types::wire_row: bytes untimed no_start never_issued unowned further bios bio_ns flushed extents counts);
same_layout!(WirePartRow, latency::types::wire_part_row: extents unknown counts);
same_layout!(WireBounds, latency::types::wire_bounds: not_min max);
same_layout!(WireTotal, latency::types::wire_total: operations sums);
same_layout!(WireOperationRow, latency::types::wire_operation_row: bounds torn bare by_total counts);
same_layout!(WireDevice, latency::types::wire_device:
    major first_minor slot_base slots_per_queue hw_queues row_base shards rare_row_base flags
    operation_row_base operation_shards unowned_row_base unowned_shards partition first_sector sectors);
same_layout!(WireCounters, latency::types::wire_counters:
    splits merges requeues retries negative out_of_range stale no_queue_start evicted evicted_ended held_unknown
    too_many_bios);
same_layout!(latency_old::types::rodata, latency::types::rodata: config arguments file_callbacks syscall_kinds);
same_layout!(latency_old::types::bss, latency::types::bss: running over unlearned unfollowed event_floor_ns groups_made);
same_layout!(WireSubmitter, latency::types::wire_submitter:
    cgroup pid tid cpu flags stands_for plugged took comm sector bytes stack);
same_layout!(SampleHead, stacks::types::stack_sample: pid tid cpu flags period kernel_frames user_frames comm);
same_layout!(Counters, stacks::types::stack_counters: ring_full no_scratch);
same_layout!(WireBudget, locks::types::wire_budget: stack_ns threshold most_threshold period_began period_ns raise_at
    raised);
same_layout!(WireTaskStack, latency::types::wire_task_stack: kernel_frames user_frames comm ips);
same_layout!(WireSubmitStack, latency::types::wire_submit_stack: number stack);
same_layout!(WireSubmitRow, latency::types::wire_submit_row: full over nested period_began
    period_ns raise_at bio stack stands_for plugged took skip one_in numbered busy);
same_layout!(WireIo, latency::types::wire_io:
    kind marks io operation queued issued reaped ended sector bytes cmd_flags device slot_base op cpu by file);
same_layout!(WireOperation, latency::types::wire_operation:
    kind opcode operation user_data entered queued issued reaped ended io leader seen from parts fused);
same_layout!(WireEmitter, latency::types::wire_emitter: matched skip numbers lost_ios lost_operations
    early_operations);
same_layout!(WireSlot, latency::types::wire_slot: request queued issued reaped ended proof link group cpu
    device op fused state used);
same_layout!(WireStamps, latency::types::stamps: queued issued reaped ended device op fused group);
same_layout!(WirePlace, latency::types::operation: request entered next parts stamps);
same_layout!(WireBioIo, latency::types::wire_bio_io: bio queued proof link device bytes op parts
    flush_ahead group cpu place);
same_layout!(WireFile, latency::types::wire_file: inode device kind);
same_layout!(WireFileKey, latency::types::wire_file_key: file device selected);
same_layout!(WireFileIos, latency::types::wire_file_ios: bios bytes sampled opener pad);
same_layout!(WireGroupKey, latency::types::wire_group_key: cgroup file device queue cpu pid op size known);
same_layout!(WireProcessKey, latency::types::wire_process_key: device pid selected);
same_layout!(WireProcessIos, latency::types::wire_process_ios: bios bytes comm relation);
same_layout!(WireGenerator, latency::types::wire_generator: handed looked entered returned tid);
same_layout!(WireVector, interrupts::types::wire_vector: action interrupts inside outside counted next_timed arrived
    queue cpu cpu_since most unhandled threaded thread device interrupted handler apart carried handler_counts
    apart_counts);
same_layout!(WireQueue, interrupts::types::wire_queue: place kind single elsewhere);
same_layout!(WireCompletions, interrupts::types::wire_completions: ios contexts);
same_layout!(WireSoftirq, interrupts::types::wire_softirq: runs deferred next_timed time timed others);
same_layout!(WireGroup, latency::types::wire_group: number opener comm);
same_layout!(WireLock, locks::types::wire_lock: not_min max lock failed reads flags waits);
same_layout!(WireWaits, locks::types::wire_waits: count sum);
same_layout!(WireLockCpu, locks::types::wire_lock_cpu: begins repeats filtered contentions wait_ns spin_contentions
    spin_wait_ns unmatched abandoned unkept slow_calls other_locks other_processes stacks stacks_failed stacks_full
    stacks_over budget other_holders other_waiters);
same_layout!(WireLockRecent, locks::types::wire_lock_recent: lock count sum not_min max failed reads flags bucket);
same_layout!(WireLockRecentProcess, locks::types::wire_lock_recent_process: pid contentions sum max);
same_layout!(WireLockHolder, locks::types::wire_lock_holder: releases holds at_least hold_ns max_hold_ns last_hold_ns
    queued_since got queued released flags pid comm);
same_layout!(WireNvmePlaces, locks::types::wire_nvme_places: size sq_lock cq_poll_lock dev qid queues instance known);
same_layout!(WireLockWaiter, locks::types::wire_lock_waiter: lock began flags pid tid comm);
same_layout!(WireLockProcess, locks::types::wire_lock_process: contentions wait lock comm);
same_layout!(WireLockStackKey, locks::types::wire_lock_stack_key: lock hash who);
same_layout!(WireLockWhoKey, locks::types::wire_lock_who_key: hash pid flags);
same_layout!(WireLockWho, locks::types::wire_lock_who: comm frames ips);
same_layout!(WireLockStack, locks::types::wire_lock_stack: contentions wait_ns samples frames ips);
same_layout!(WireReclaim, pagecache::types::wire_reclaim: lock begun ended time batches scanned reclaimed throttled
    throttled_us counts);
same_layout!(WireIsolated, pagecache::types::wire_isolated: looked_at taken);
same_layout!(WireReclaimerKey, pagecache::types::wire_reclaimer_key: cgroup pid kind comm);
same_layout!(WireReclaimer, pagecache::types::wire_reclaimer: count ns max_ns pages);
same_layout!(WireReadahead, pagecache::types::wire_readahead: calls asked reads wanted faulted mapped);
same_layout!(WirePath, paths::types::wire_path: calls ns spins spin_ns);
same_layout!(WireThread, threads::types::wire_thread: pid tid state exit_state flags syscall frames device lower cpu cgroup
    last_ran comm);
same_layout!(Sum, blocked::types::wire_sum: count ns);
same_layout!(WireWaitsRow, blocked::types::wire_waits_row: all io uninterruptible brief bare before queued_ns events
    filtered unkept unmatched stacks full over budget
    unnamed uninterrupted half_tid half_flags half_took half_ended half_chance half_lost
    ahead ahead_at pad);
same_layout!(WireStackKey, blocked::types::wire_stack_key: hash pid flags);
same_layout!(WireWaitStack, blocked::types::wire_wait_stack: sum stack);
same_layout!(Waits, blocked::types::wire_waits_sum: waits ns sure_ns squares samples);
same_layout!(WireWaiter, blocked::types::wire_waiter: all bare);
same_layout!(WireWaitProcess, blocked::types::wire_wait_process: pid comm);
same_layout!(WireSleeper, blocked::types::wire_sleeper: began run_delay ran all flags process);
same_layout!(WireAsleep, blocked::types::wire_asleep: key took ip sp bp switches tid);

#[cfg(test)]
mod tests {
    use super::header_number;

    #[test]
    fn numbers_of_a_header() {
        let header =
            "/* #define BITS 1 */\n#define BITS_MORE 2\n#define BITS\t   14\n#define LAST (1 << 3)\n";
        assert_eq!(header_number(header, "BITS"), 14);
        assert_eq!(header_number(header, "BITS_MORE"), 2);
        for name in ["LAST", "NONE", "BIT"] {
            assert!(std::panic::catch_unwind(|| header_number(header, name)).is_err(), "{name}");
        }
    }
}
