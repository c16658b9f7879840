//! A weighted set of stacks: the data behind every flame graph, folded text and profile file.

pub mod folded;
pub mod tree;

use std::collections::HashMap;
use std::collections::hash_map::{DefaultHasher, Entry};
use std::hash::{Hash, Hasher};

use serde::Serialize;

use self::tree::{StackRow, Tree};
/// Where a frame without a name is located.
pub use crate::symbols::Place;
pub use crate::symbols::by_label;

/// The code area of a frame, or its kind if it is not code. Flame graphs are coloured by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Area {
    /// Not code: a thread's name, a lock's name, a group.
    Label,
    User,
    /// The rest of the kernel.
    Kernel,
    /// The block layer with its schedulers.
    Block,
    /// A block driver, or one that stacks devices.
    Driver,
    /// Interrupt entry, and softirqs.
    Interrupt,
    /// Page cache, LRU lists, reclaim and writeback.
    Reclaim,
    /// Taking a lock.
    Lock,
    /// Not code: a stage of an I/O.
    Stage,
}

impl Area {
    /// In the order of a legend: from the root of a stack to its leaf.
    pub const ALL: [Area; 9] = [
        Area::Label,
        Area::User,
        Area::Kernel,
        Area::Block,
        Area::Driver,
        Area::Interrupt,
        Area::Reclaim,
        Area::Lock,
        Area::Stage,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Area::Label => "label",
            Area::User => "user",
            Area::Kernel => "kernel",
            Area::Block => "block layer",
            Area::Driver => "driver",
            Area::Interrupt => "interrupt",
            Area::Reclaim => "reclaim and page cache",
            Area::Lock => "lock",
            Area::Stage => "stage",
        }
    }

    /// Whether it is kernel code.
    pub fn in_kernel(self) -> bool {
        !matches!(self, Area::Label | Area::User | Area::Stage)
    }

    /// The area of a kernel function.
    pub fn of_kernel(function: &str) -> Area {
        // `__` marks an inner function, of the same area.
        let function = function.trim_start_matches('_');
        let of = |(_, beginnings): &&(Area, &[&str])| beginnings.iter().any(|b| function.starts_with(b));
        KERNEL.iter().find(of).map_or(Area::Kernel, |(area, _)| *area)
    }
}

/// Prefixes of the functions of an area, without leading `_`. The first match decides.
const KERNEL: &[(Area, &[&str])] = &[
    // First, because locks are taken on behalf of any other area. Spinlocks are recognised by the functions that take
    // them, as the slow path is inlined in some builds. Unlock functions are excluded: with interrupts off `cpu-clock`
    // cannot fire, and all of that time is attributed to the unlock, where nothing waits for a lock.
    (
        Area::Lock,
        &[
            "native_queued_spin_lock_slowpath",
            "pv_queued_spin_lock_slowpath",
            "queued_spin_lock_slowpath",
            "queued_read_lock_slowpath",
            "queued_write_lock_slowpath",
            "resilient_queued_spin_lock_slowpath",
            "raw_spin_lock",
            "raw_spin_trylock",
            "raw_read_lock",
            "raw_write_lock",
            "mutex_lock",
            "ww_mutex_lock",
            "mutex_spin_on_owner",
            "mutex_optimistic_spin",
            "rt_mutex_slowlock",
            "rtlock_slowlock",
            "rwsem_down_",
            "rwsem_spin_on_owner",
            "rwsem_optimistic_spin",
            "down_read",
            "down_write",
            "percpu_down_read",
            "percpu_rwsem_wait",
            "osq_lock",
        ],
    ),
    // The entries, and the code that runs the handlers; the handlers themselves belong to their drivers. arm64 has el*.
    (
        Area::Interrupt,
        &[
            "asm_common_interrupt",
            "common_interrupt",
            "asm_sysvec_",
            "sysvec_",
            "el1_interrupt",
            "el0_interrupt",
            "do_interrupt_handler",
            "gic_handle_irq",
            "handle_irq_event",
            "handle_edge_irq",
            "handle_level_irq",
            "handle_fasteoi_irq",
            "handle_percpu_devid_irq",
            "generic_handle_",
            "handle_softirqs",
            "do_softirq",
            "irq_exit_rcu",
            "irq_enter_rcu",
            "run_ksoftirqd",
            "tasklet_action",
            "flush_smp_call_function_queue",
        ],
    ),
    // Before the block layer, whose prefixes some of them contain. blk_mq_* stays with the block layer.
    (
        Area::Driver,
        &[
            "nvme_",
            "nvmet_",
            "virtblk_",
            "virtio_",
            "virtqueue_",
            "vring_",
            "vp_",
            "vm_notify",
            "scsi_",
            "sd_",
            "sg_",
            "ata_",
            "ahci_",
            "megasas_",
            "mpt3sas_",
            "loop_",
            "lo_",
            "null_",
            "zram_",
            "nbd_",
            "brd_",
            "ublk_",
            "rbd_",
            "pmem_",
            "mmc_",
            "blkif_",
            "blkfront_", // Stacking drivers: device mapper and RAID.
            "dm_",
            "clone_endio",
            "linear_map",
            "crypt_",
            "kcryptd_",
            "multipath_",
            "md_",
            "raid0_",
            "raid1_",
            "raid5_",
            "raid10_",
            "raid_",
        ],
    ),
    // dd_* is mq-deadline, wbt_ and throtl_ throttle I/O, sbitmap_ allocates tags.
    (
        Area::Block,
        &[
            "blk_",
            "blkdev_",
            "blkcg_",
            "blkg_",
            "bio_",
            "submit_bio",
            "bdev_",
            "elv_",
            "dd_",
            "deadline_",
            "bfq_",
            "kyber_",
            "sbitmap_",
            "rq_qos_",
            "wbt_",
            "throtl_",
            "ioc_rqos_",
            "iolat_",
            "update_io_ticks",
            "kblockd",
        ],
    ),
    // The page cache belongs here because reclaim takes its pages: in a storm of buffered reads both are on the same
    // stacks. workingset_ is refaults; lru_ and folio batches are the lists.
    (
        Area::Reclaim,
        &[
            "shrink_",
            "do_shrink_",
            "try_to_free_",
            "kswapd",
            "balance_pgdat",
            "alloc_pages_direct_reclaim",
            "perform_reclaim",
            "do_try_to_free_pages",
            "isolate_lru",
            "evict_folios",
            "scan_folios",
            "lru_",
            "lruvec_",
            "move_folios_to_lru",
            "move_pages_to_lru",
            "folio_lruvec_",
            "folio_add_lru",
            "folio_batch_",
            "folio_mark_accessed",
            "mark_page_accessed",
            "folios_put",
            "pagevec_",
            "release_pages",
            "workingset_",
            "remove_mapping",
            "delete_from_page_cache",
            "filemap_",
            "page_cache_",
            "add_to_page_cache",
            "do_page_cache_ra",
            "force_page_cache_ra",
            "ondemand_readahead",
            "read_pages",
            "generic_file_buffered_read",
            "invalidate_mapping",
            "truncate_inode_pages",
            "balance_dirty_pages",
            "do_writepages",
            "writeback_",
            "wb_",
        ],
    ),
];

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Frame {
    /// The name, not escaped.
    pub name: String,
    pub area: Area,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// Root first; ids of [`Profile::frames`].
    pub frames: Box<[u32]>,
    pub value: u64,
}

/// Unit of the values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    Samples,
    Nanoseconds,
    Ios,
    /// Another count, such as cycles or waits, from a file of another tool. The number of underlying measurements is
    /// unknown.
    Events,
}

/// A weighted set of stacks. Equal stacks are stored once, with their values added up.
#[derive(Debug, Clone)]
pub struct Profile {
    pub unit: Unit,
    frames: Vec<Frame>,
    ids: HashMap<Frame, u32>,
    stacks: Vec<Stack>,
    /// Index of a stack by its hash. Entries are never removed, so that linear probing after a collision still finds
    /// them.
    places: HashMap<u64, u32>,
    total: u64,
}

impl Profile {
    pub fn new(unit: Unit) -> Profile {
        Profile {
            unit,
            frames: Vec::new(),
            ids: HashMap::new(),
            stacks: Vec::new(),
            places: HashMap::new(),
            total: 0,
        }
    }

    /// The id of a frame. Equal frames have the same id.
    pub fn frame(&mut self, name: impl Into<String>, area: Area) -> u32 {
        match self.ids.entry(Frame { name: name.into(), area }) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let id = self.frames.len() as u32;
                self.frames.push(new.key().clone());
                *new.insert(id)
            }
        }
    }

    /// Adds to the value of a stack, root first. Ignores a stack without frames or with value 0.
    ///
    /// # Panics
    ///
    /// If an id is not of this profile.
    pub fn add(&mut self, frames: &[u32], value: u64) {
        if frames.is_empty() || value == 0 {
            return;
        }
        assert!(frames.iter().all(|id| (*id as usize) < self.frames.len()), "a frame of another profile");
        // Saturates, so that the total stays the sum of the stacks; 2^64 ns are 584 years.
        let value = value.min(u64::MAX - self.total);
        self.total += value;
        let mut hasher = DefaultHasher::new();
        frames.hash(&mut hasher);
        let mut key = hasher.finish();
        loop {
            match self.places.entry(key) {
                Entry::Vacant(free) => {
                    free.insert(self.stacks.len() as u32);
                    self.stacks.push(Stack { frames: frames.into(), value });
                    return;
                }
                Entry::Occupied(taken) => {
                    let stack = &mut self.stacks[*taken.get() as usize];
                    if *stack.frames == *frames {
                        stack.value += value;
                        return;
                    }
                    key = key.wrapping_add(1);
                }
            }
        }
    }

    /// Adds the stacks of another profile of the same unit.
    pub fn merge(&mut self, other: &Self) {
        let ids: Vec<u32> = other.frames.iter().map(|frame| self.frame(&*frame.name, frame.area)).collect();
        let mut stack = Vec::new();
        for one in &other.stacks {
            stack.clear();
            stack.extend(one.frames.iter().map(|id| ids[*id as usize]));
            self.add(&stack, one.value);
        }
    }

    /// Sum of all values.
    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }

    /// The frames by id.
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// The stacks in order of first occurrence.
    pub fn stacks(&self) -> &[Stack] {
        &self.stacks
    }

    /// The frames of a stack, root first.
    pub fn named<'a>(&'a self, stack: &'a Stack) -> impl DoubleEndedIterator<Item = &'a Frame> {
        stack.frames.iter().map(|id| &self.frames[*id as usize])
    }

    /// The stacks sorted by names, independent of the order of insertion.
    pub fn sorted(&self) -> Vec<&Stack> {
        self.order().into_iter().map(|place| &self.stacks[place as usize]).collect()
    }

    /// The same order as indices into [`Profile::stacks`].
    pub fn order(&self) -> Vec<u32> {
        let rank = self.ranks();
        let ranks = |place: u32| self.stacks[place as usize].frames.iter().map(|id| rank[*id as usize]);
        let mut order: Vec<u32> = (0..self.stacks.len() as u32).collect();
        order.sort_unstable_by(|a, b| ranks(*a).cmp(ranks(*b)));
        order
    }

    /// Rank of each frame by name.
    fn ranks(&self) -> Vec<u32> {
        let mut order: Vec<u32> = (0..self.frames.len() as u32).collect();
        order.sort_unstable_by_key(|id| &self.frames[*id as usize]);
        let mut rank = vec![0; order.len()];
        order.iter().zip(0..).for_each(|(id, place)| rank[*id as usize] = place);
        rank
    }

    /// The stacks as a tree, without the parts that hold less than `min_share` of the total.
    pub fn tree(&self, min_share: f64) -> Tree {
        let rows = self.sorted();
        Tree::new(
            rows.iter().map(|stack| StackRow { frames: &stack.frames, value: stack.value, before: 0 }),
            min_share,
        )
    }

    /// Replaces each part that holds less than `min_share` of the total by one frame that says so; narrow parts below
    /// the same frame become one. The sum is kept.
    pub fn fold_narrow(&self, min_share: f64) -> FoldedProfile {
        let tree = self.tree(min_share);
        let mut profile = Profile::new(self.unit);
        let ids: Vec<u32> = self.frames.iter().map(|f| profile.frame(f.name.clone(), f.area)).collect();
        let narrow = profile.frame(tree::narrow_name(tree.min_share()), Area::Label);
        tree.each_path(|path, node| {
            let frames: Vec<u32> =
                path.iter().map(|n| n.frame.map_or(narrow, |frame| ids[frame as usize])).collect();
            profile.add(&frames, node.own);
        });
        FoldedProfile { profile, share: tree.narrow_share() }
    }
}

/// The result of [`Profile::fold_narrow`].
#[derive(Debug, Clone)]
pub struct FoldedProfile {
    pub profile: Profile,
    /// Share of the total in folded frames, 0 to 1.
    pub share: f64,
}

/// Profiles are equal if they have the same stacks, however the frames are numbered.
impl PartialEq for Profile {
    fn eq(&self, other: &Profile) -> bool {
        let (ours, theirs) = (self.sorted(), other.sorted());
        self.unit == other.unit
            && ours.len() == theirs.len()
            && ours.iter().zip(&theirs).all(|(a, b)| a.value == b.value && self.named(a).eq(other.named(b)))
    }
}

#[cfg(test)]
#[path = "profile/tests.rs"]
mod tests;
