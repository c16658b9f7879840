//! Assigns slots and rows to the traced devices.

use std::path::Path;

use anyhow::Result;

use crate::envelope::{Missing, Reason};
use crate::host::block::SECTOR;
use crate::host::counters::Counters;
use crate::host::{BlockDevice, Partition};
use crate::refusal::Refusal;
use crate::wire::parts::PART_UNITS;
use crate::wire::rows::{WireOperationRow, WireRow};
use crate::wire::{
    BIO_BASED, COVERS, FLUSHES_APART, MAX_DEVICES, OPS, OPS_SHARDED, PARTITION, SHARED_OPERATION_ROWS,
    SHARED_ROWS, SHARED_UNOWNED_ROWS, WireDevice,
};

/// The limit on the memory of all maps. Maps of variable size take what the others leave.
pub const MOST_BYTES: u64 = 64 << 20;

/// With a scheduler the kernel gives a queue 2 × min(tags, 128) requests when it is switched, so 256 slots suffice for
/// every switch during a trace.
const LEAST_SLOTS: u32 = 256;
/// A row is about 14 KiB; more shards per device than this gain nothing.
const MOST_SHARDS: u32 = 64;

/// CPUs with their own rows of operations; a row is about 31 KiB.
const MOST_OPERATION_SHARDS: u32 = 8;

/// CPUs with their own rows for I/Os of no operation, if the limit leaves no room for all.
const LEAST_UNOWNED_SHARDS: u32 = 4;

/// The layout of all maps for a set of devices.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    pub devices: Vec<PlannedDevice>,
    /// NVMe multipath heads above the devices, where their bios enter the block layer. They come after the devices, and
    /// have no rows.
    pub heads: Vec<PlannedDevice>,
    pub slots: u32,
    /// Rows of all I/Os; those of I/Os of no operation follow them.
    pub rows: u32,
    pub unowned_rows: u32,
    pub operation_rows: u32,
    /// This kernel runs a program recursively.
    pub nested_runs: bool,
    /// This kernel's counters include passthrough commands, and no sysfs file says so.
    pub counts_passthrough: bool,
}

/// The layout of one device.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedDevice {
    /// For a partition its own name.
    pub name: String,
    /// The disk of a partition; for a disk its own name.
    pub disk: String,
    pub wire: WireDevice,
    /// Not named by the user: it is traced as a lower device of these.
    pub added_for: Vec<String>,
}

impl PlannedDevice {
    fn new(disk: &BlockDevice, wire: WireDevice) -> Self {
        Self { name: disk.name.clone(), disk: disk.name.clone(), wire, added_for: Vec::new() }
    }

    pub fn is_bio_based(&self) -> bool {
        self.wire.flags & BIO_BASED != 0
    }

    pub fn is_partition(&self) -> bool {
        self.wire.flags & PARTITION != 0
    }

    /// Restricts tracing of the disk to this partition.
    pub fn narrow(&mut self, partition: &Partition) {
        self.name = partition.name.clone();
        self.wire.flags |= PARTITION;
        self.wire.partition = partition.major << 20 | partition.minor;
        self.wire.first_sector = partition.start_bytes / SECTOR;
        self.wire.sectors = partition.size_bytes / SECTOR;
    }
}

/// All devices with requests. If they do not all fit into the tables, unused placeholder devices are left out. Also
/// returns how many were left out.
pub fn in_use(devices: &[BlockDevice]) -> (Vec<&BlockDevice>, usize) {
    let mut all: Vec<&BlockDevice> = devices.iter().filter(|d| d.request_based).collect();
    let many = all.len();
    if many > MAX_DEVICES {
        all.retain(|d| !d.is_placeholder());
    }
    let left_out = many - all.len();
    (all, left_out)
}

/// The gap for unused devices that were left out to make room for others.
pub fn left_out(devices: usize) -> Vec<Missing> {
    let why = format!(
        "{devices} unused loop, RAM or network block devices are not traced, to leave room for the others"
    );
    let missing = Missing {
        reason: Reason::NotTraced,
        why,
        remedy: Some("name one with -d".to_string()),
        ..Missing::default()
    };
    (devices > 0).then_some(missing).into_iter().collect()
}

/// The gaps for figures that only a whole disk has.
pub fn missing_of_partitions(plan: &Plan) -> Vec<Missing> {
    let partitions = plan.devices.iter().filter(|device| device.is_partition());
    let gap = |device: &PlannedDevice| Missing {
        device: Some(device.name.clone()),
        part: Some("flush, passthrough".to_string()),
        reason: Reason::Partition,
        why: format!(
            "flushes of the drive and the driver's own commands belong to the whole disk {}: name it to \
             count them",
            device.disk
        ),
        ..Missing::default()
    };
    partitions.map(gap).collect()
}

/// Refuses more devices than there is room for.
pub fn few_enough(devices: usize) -> Result<()> {
    if devices <= MAX_DEVICES {
        return Ok(());
    }
    Err(Refusal::Refused(format!(
        "{devices} block devices are too many to trace at once: name at most {MAX_DEVICES} of them with -d"
    ))
    .into())
}

/// The kernel's counters of a disk; None if they cannot be read. `passthrough`: this kernel's counters include
/// passthrough commands, and no sysfs file says so.
pub fn counters(root: &Path, name: &str, passthrough: bool) -> Option<Counters> {
    let counters = Counters::read(root, name).ok()?;
    let passthrough = counters.passthrough.or(passthrough.then_some(true));
    Some(Counters { passthrough, ..counters })
}

impl Plan {
    /// Lays out exclusive ranges: queue `q`, tag `t` of a device has slot
    /// `slot_base + q × slots_per_queue + t`, and the last slot of each queue is the flush request's.
    /// Bio-based devices have no slots.
    pub fn new<'a>(devices: impl Iterator<Item = &'a BlockDevice>, cpus: u32) -> Result<Self> {
        let mut plan = Self::default();
        let devices: Vec<&BlockDevice> = devices.collect();
        few_enough(devices.len())?;
        for device in devices {
            let hw_queues = device.queues.iter().map(|q| q.queue + 1).max().unwrap_or(1);
            let tags =
                device.queues.iter().map(|q| q.tags.saturating_add(q.reserved_tags)).max().unwrap_or(0);
            let mut slots_per_queue = tags.max(device.requests.unwrap_or(0)).clamp(LEAST_SLOTS, 1 << 16) + 1;
            // One shard per CPU on a single queue; fewer with more queues, never CPU × queue.
            let shards = (cpus.clamp(1, MOST_SHARDS) / hw_queues).max(1);
            let exclusive = hw_queues == 1 && shards >= cpus;
            let operation_shards = cpus.clamp(1, MOST_OPERATION_SHARDS);
            let mut flags = if exclusive { 0 } else { SHARED_ROWS };
            if operation_shards < cpus {
                flags |= SHARED_OPERATION_ROWS;
            }
            if !device.request_based {
                slots_per_queue = 0;
                flags |= BIO_BASED;
                if device.driver.as_deref() == Some("dm") {
                    flags |= FLUSHES_APART;
                }
            }
            let wire = WireDevice {
                major: device.major,
                first_minor: device.minor,
                slot_base: plan.slots,
                slots_per_queue,
                hw_queues,
                row_base: plan.rows,
                shards,
                rare_row_base: plan.rows + hw_queues * shards * OPS_SHARDED as u32,
                flags,
                operation_row_base: plan.operation_rows,
                operation_shards,
                ..WireDevice::default()
            };
            plan.operation_rows +=
                (COVERS * (operation_shards as usize * OPS_SHARDED + OPS - OPS_SHARDED)) as u32;
            plan.slots += slots_per_queue * hw_queues;
            plan.rows = wire.rare_row_base + (OPS - OPS_SHARDED) as u32;
            plan.devices.push(PlannedDevice::new(device, wire));
        }
        Ok(plan)
    }

    /// Adds a head; if there is no room, its paths have no queue stage.
    pub fn add_head(&mut self, head: &BlockDevice) {
        if self.devices.len() + self.heads.len() < MAX_DEVICES {
            let wire = WireDevice {
                major: head.major,
                first_minor: head.minor,
                hw_queues: 1,
                ..WireDevice::default()
            };
            self.heads.push(PlannedDevice::new(head, wire));
        }
    }

    /// Whether one of the devices has no requests.
    pub fn has_bios(&self) -> bool {
        self.devices.iter().any(PlannedDevice::is_bio_based)
    }

    /// For kernels that run a program recursively: plain additions to a per-CPU row could then be lost as well.
    pub fn share_rows(&mut self) {
        self.nested_runs = true;
        self.devices.iter_mut().for_each(|device| device.wire.flags |= SHARED_ROWS);
    }

    /// Lays out the rows of I/Os of no operation, given the bytes of all other maps. These rows are per CPU and not per
    /// queue: as many CPUs have their own rows as fit.
    pub fn fit_unowned(&mut self, others: u64, cpus: u32) {
        let rare = (OPS - OPS_SHARDED) as u32;
        let bytes = |rows: u64| rows * self.devices.len().max(1) as u64 * size_of::<WireRow>() as u64;
        let room = MOST_BYTES.saturating_sub(others + bytes(rare.into())) / bytes(OPS_SHARDED as u64);
        let most = cpus.clamp(1, MOST_SHARDS);
        let shards = room.clamp(LEAST_UNOWNED_SHARDS.min(most).into(), most.into()) as u32;
        let each = shards * OPS_SHARDED as u32 + rare;
        self.unowned_rows = each * self.devices.len() as u32;
        for (device, number) in self.devices.iter_mut().zip(0..) {
            device.wire.unowned_row_base = self.rows + number * each;
            device.wire.unowned_shards = shards;
            device.wire.flags &= !SHARED_UNOWNED_ROWS;
            if self.nested_runs || shards < cpus {
                device.wire.flags |= SHARED_UNOWNED_ROWS;
            }
        }
    }

    /// The kernel's counters of all devices; None if they cannot be read.
    pub fn counters(&self, root: &Path) -> Vec<Option<Counters>> {
        self.devices.iter().map(|device| counters(root, &device.name, self.counts_passthrough)).collect()
    }

    /// Sets of four in the table of bios: four entries per request that can be in flight, since bios that wait for a
    /// request need one too and addresses do not hash evenly. A power of two.
    pub fn bio_sets(&self) -> u32 {
        self.slots.next_power_of_two().clamp(1024, 1 << 16)
    }

    /// Rows of parts: one per device, unit and class of I/O.
    pub fn part_rows(&self) -> u32 {
        (self.devices.len() * PART_UNITS * OPS) as u32
    }

    /// Bytes of the maps that this plan sizes.
    pub fn map_bytes(&self) -> u64 {
        u64::from(self.slots) * 64
            + u64::from(self.bio_sets()) * 128
            + u64::from(self.rows + self.unowned_rows) * size_of::<WireRow>() as u64
            + u64::from(self.operation_rows) * size_of::<WireOperationRow>() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HardwareQueue;

    fn device(name: &str, queues: u32, tags: u32) -> BlockDevice {
        BlockDevice {
            name: name.to_string(),
            request_based: true,
            requests: Some(tags),
            queues: (0..queues)
                .map(|queue| HardwareQueue { queue, tags, ..HardwareQueue::default() })
                .collect(),
            ..BlockDevice::default()
        }
    }

    /// Every combination of device, queue and tag has its own slot.
    #[test]
    fn equal_tags_of_eighty_queues_never_meet() {
        let devices = [device("a", 80, 1023), device("b", 80, 1023), device("c", 1, 64)];
        let plan = Plan::new(devices.iter(), 4).unwrap();
        let mut seen = vec![false; plan.slots as usize];
        for d in &plan.devices {
            for queue in 0..d.wire.hw_queues {
                for tag in 0..d.wire.slots_per_queue {
                    let slot = (d.wire.slot_base + queue * d.wire.slots_per_queue + tag) as usize;
                    assert!(!std::mem::replace(&mut seen[slot], true), "{} {queue} {tag}", d.name);
                }
            }
            assert!(d.wire.slots_per_queue > 1023 || d.name == "c");
        }
        assert!(seen.iter().all(|s| *s));
    }

    #[test]
    fn too_many_devices_are_refused_with_their_number() {
        let many: Vec<_> = (0..MAX_DEVICES + 1).map(|i| device(&format!("sd{i}"), 1, 32)).collect();
        assert_eq!(Plan::new(many[1..].iter(), 4).unwrap().devices.len(), MAX_DEVICES);
        let error = Plan::new(many.iter(), 4).unwrap_err();
        let why = "257 block devices are too many to trace at once: name at most 256 of them";
        assert!(error.to_string().starts_with(why), "{error}");
        assert_eq!(error.downcast_ref::<Refusal>().map(Refusal::exit_code), Some(3));
    }

    #[test]
    fn empty_loop_devices_give_way_where_not_all_fit() {
        let mut all: Vec<_> = (0..300).map(|i| device(&format!("loop{i}"), 1, 32)).collect();
        for empty in &mut all {
            empty.driver = Some("loop".into());
        }
        all.push(BlockDevice { size_bytes: 1 << 40, ..device("sda", 1, 32) });
        all[7].size_bytes = 1 << 20;
        let names = |(devices, left): (Vec<&BlockDevice>, usize)| {
            (devices.iter().map(|d| d.name.clone()).collect::<Vec<_>>(), left)
        };
        assert_eq!(names(in_use(&all)), (vec!["loop7".to_string(), "sda".to_string()], 299));
        let (few, left) = in_use(&all[..200]);
        assert_eq!((few.len(), left), (200, 0), "they fit, and may get a file while they are traced");
    }

    #[test]
    fn rows_do_not_grow_with_cpus_times_queues() {
        let ten: Vec<_> = (0..10).map(|i| device(&format!("nvme{i}n1"), 33, 1023)).collect();
        let plan = Plan::new(ten.iter(), 32).unwrap();
        assert!(plan.map_bytes() < 64 << 20, "{}", plan.map_bytes());
        let many: Vec<_> = (0..21).map(|i| device(&format!("nvme{i}n1"), 385, 1023)).collect();
        let plan = Plan::new(many.iter(), 384).unwrap();
        // The kernel refuses array maps above 4 GiB; each of the two is far below.
        assert!(u64::from(plan.rows) * (size_of::<WireRow>() as u64) < 512 << 20);
        assert!(u64::from(plan.slots) * 64 < 1 << 30);
    }

    /// Size of the maps that the plan does not size: owners, callers and operations 1 MiB each, and small ones.
    const TABLES: u64 = 3_302_000;

    /// I/Os of no operation have a per-CPU row if there is room, and never overlap other rows.
    #[test]
    fn rows_of_no_operation_take_what_the_bound_leaves() {
        let drives = |n| (0..n).map(|i| device(&format!("nvme{i}n1"), 33, 1023)).collect::<Vec<_>>();
        for (n, cpus, shards, flags) in [
            (1, 32, 32, SHARED_ROWS | SHARED_OPERATION_ROWS),
            (10, 32, 6, SHARED_ROWS | SHARED_OPERATION_ROWS | SHARED_UNOWNED_ROWS),
            (1, 2, 2, SHARED_ROWS),
            (21, 384, 4, SHARED_ROWS | SHARED_OPERATION_ROWS | SHARED_UNOWNED_ROWS),
        ] {
            let mut plan = Plan::new(drives(n).iter(), cpus).unwrap();
            plan.fit_unowned(plan.map_bytes() + TABLES, cpus);
            assert!(n > 10 || plan.map_bytes() + TABLES <= MOST_BYTES, "{n}: {}", plan.map_bytes());
            let mut next = plan.rows;
            for wire in plan.devices.iter().map(|d| d.wire) {
                assert_eq!((wire.unowned_shards, wire.flags), (shards, flags), "{n} of {cpus}");
                assert_eq!(wire.unowned_row_base, next);
                next += wire.unowned_shards * OPS_SHARDED as u32 + (OPS - OPS_SHARDED) as u32;
            }
            assert_eq!(plan.rows + plan.unowned_rows, next);
        }
        let mut nested = Plan::new(drives(1).iter(), 2).unwrap();
        nested.share_rows();
        nested.fit_unowned(0, 2);
        assert_ne!(nested.devices[0].wire.flags & SHARED_UNOWNED_ROWS, 0);
    }

    #[test]
    fn one_queue_has_a_row_per_cpu_and_needs_no_atomics() {
        let plan = Plan::new([device("sda", 1, 32)].iter(), 8).unwrap();
        assert_eq!((plan.devices[0].wire.shards, plan.devices[0].wire.flags), (8, 0));
        let plan = Plan::new([device("sda", 1, 32)].iter(), 128).unwrap();
        assert_eq!(
            (plan.devices[0].wire.shards, plan.devices[0].wire.flags),
            (64, SHARED_ROWS | SHARED_OPERATION_ROWS)
        );
        let plan = Plan::new([device("sda", 4, 32)].iter(), 4).unwrap();
        assert_eq!((plan.devices[0].wire.shards, plan.devices[0].wire.flags), (1, SHARED_ROWS));
    }

    /// The slot of a request must lead to its device, whatever the next device in the plan is.
    #[test]
    fn bio_based_devices_have_rows_and_no_slots() {
        let zram =
            BlockDevice { name: "zram0".into(), driver: Some("zram".into()), ..BlockDevice::default() };
        let dm = BlockDevice { name: "dm-0".into(), driver: Some("dm".into()), ..BlockDevice::default() };
        let plan = Plan::new([device("sda", 1, 32), zram, dm].iter(), 2).unwrap();
        let wires: Vec<WireDevice> = plan.devices.iter().map(|d| d.wire).collect();
        assert_eq!(wires.iter().map(|w| w.slots_per_queue).collect::<Vec<_>>(), [257, 0, 0]);
        assert_eq!((wires[1].slot_base, wires[2].slot_base, plan.slots), (257, 257, 257));
        assert!(wires[2].row_base > wires[1].rare_row_base && plan.rows > wires[2].rare_row_base);
        assert_eq!(
            (wires[0].flags, wires[1].flags, wires[2].flags),
            (0, BIO_BASED, BIO_BASED | FLUSHES_APART)
        );
        assert!(plan.has_bios());
    }
}
