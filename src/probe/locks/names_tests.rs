use std::collections::BTreeMap;

use super::*;

/// Memory with given contents: bytes by address.
#[derive(Default)]
struct Literal(BTreeMap<u64, Vec<u8>>);

impl Literal {
    fn put(&mut self, address: u64, bytes: &[u8]) {
        for (at, byte) in (address..).zip(bytes) {
            self.0.insert(at, vec![*byte]);
        }
    }

    fn set(&mut self, address: u64, value: u64) {
        self.put(address, &value.to_ne_bytes());
    }
}

impl Memory for Literal {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        (address..).zip(bytes).all(|(at, byte)| {
            let found = self.0.get(&at);
            *byte = found.map_or(0, |found| found[0]);
            found.is_some()
        })
    }

    fn current(&self) -> Option<u64> {
        None
    }

    fn slab(&self, address: u64) -> Option<String> {
        (address == IN_A_SLAB).then(|| "dentry".to_string())
    }
}

const IN_A_SLAB: u64 = 0xffff_8880_00aa_0058;
const QUEUES: u64 = 0xffff_8880_000b_0000;
const DEVICE: u64 = 0xffff_8880_000c_0000;
const VIRTIO: u64 = 0xffff_8880_000d_0000;
const THE_VQ: u64 = 0xffff_8880_000f_0000;
const DISK: u64 = 0xffff_8880_000e_0000;

const LISTS: u64 = 0xffff_8880_0000_1000;
const NODE: u64 = 0xffff_8880_0001_0000;
const GROUP: u64 = 0xffff_8880_0002_0000;
const CGROUP: u64 = 0xffff_8880_0003_0000;
const FOLDER: u64 = 0xffff_8880_0004_0000;
const INODE: u64 = 0xffff_8880_0005_0000;
const SB: u64 = 0xffff_8880_0006_0000;
const TYPE: u64 = 0xffff_8880_0007_0000;
const ENTRY: u64 = 0xffff_8880_0008_0000;
const ROOT: u64 = 0xffff_8880_0009_0000;
const TEXT: u64 = 0xffff_8880_000a_0000;
const ZONE: u64 = 256;

/// Some members, at offsets of no real kernel.
fn layout() -> Layout {
    Layout::literal(
        &[
            ("lruvec", "lru_lock", 80),
            ("lruvec", "pgdat", 120),
            ("pglist_data", "node_zones", 0),
            ("pglist_data", "node_id", 1024),
            ("pglist_data", "__lruvec", 2048),
            ("zone", "lock", 64),
            ("zone", "zone_pgdat", 24),
            ("zone", "name", 32),
            ("mem_cgroup_per_node", "lruvec", 8),
            ("mem_cgroup_per_node", "memcg", 0),
            ("mem_cgroup", "nodeinfo", 512),
            ("mem_cgroup", "css.cgroup", 0),
            ("cgroup", "kn", 8),
            ("kernfs_node", "id", 96),
            ("address_space", "i_pages.xa_lock", 8),
            ("address_space", "host", 0),
            ("inode", "i_data", 128),
            ("inode", "i_mapping", 48),
            ("inode", "i_sb", 40),
            ("inode", "i_ino", 64),
            ("inode", "i_rdev", 76),
            ("inode", "i_dentry", 104),
            ("super_block", "s_dev", 16),
            ("super_block", "s_type", 40),
            ("file_system_type", "name", 0),
            ("dentry", "d_u.d_alias", 176),
            ("bdi_writeback", "work_lock", 200),
            ("bdi_writeback", "bdi", 0),
            ("bdi_writeback", "bdi_node", 300),
            ("backing_dev_info", "wb", 64),
            ("backing_dev_info", "dev_name", 1024),
            ("dentry", "d_inode", 48),
            ("dentry", "d_parent", 24),
            ("dentry", "d_name.name", 40),
            ("gendisk", "disk_name", 12),
            ("virtio_blk_vq", "vq", 0),
            ("virtio_blk_vq", "lock", 8),
            ("virtqueue", "vdev", 32),
            ("virtio_device", "priv", 64),
            ("virtio_blk", "vdev", 32),
            ("virtio_blk", "disk", 40),
            ("virtio_blk", "vqs", 336),
            ("nvme_queue", "sq_lock", 16),
            ("nvme_queue", "dev", 0),
            ("nvme_queue", "qid", 40),
            ("nvme_dev", "queues", 0),
            ("nvme_dev", "ctrl.instance", 700),
        ],
        &[("zone", ZONE), ("virtio_blk_vq", 64), ("nvme_queue", 128)],
    )
}

fn name(memory: &Literal, known: &KernelFacts, lock: u64, kind: WireLockKind) -> Option<LockName> {
    Namer::new(memory, &layout(), known).name(lock, kind)
}

fn node(memory: &mut Literal, number: u32) {
    memory.set(NODE + 24, NODE);
    memory.put(NODE + 1024, &number.to_ne_bytes());
}

fn known() -> KernelFacts {
    KernelFacts {
        symbols: Kallsyms::parse("ffffffff83000000 D tasklist_lock\nffffffff83100000 d other\n"),
        devices: BTreeMap::from([((8, 1), ("sda1".to_string(), "sda".to_string()))]),
        mounts: crate::host::mounts::parse("36 35 8:1 / /data rw - ext4 /dev/sda1 rw\n"),
        groups: BTreeMap::from([(77, "/small".to_string())]),
        ..KernelFacts::default()
    }
}

#[test]
fn an_lru_lock_is_that_of_the_group_which_points_back() {
    let mut memory = Literal::default();
    node(&mut memory, 1);
    let lists = LISTS + 8;
    memory.set(lists + 120, NODE);
    memory.set(LISTS, GROUP);
    memory.set(GROUP + 512 + 8, LISTS);
    memory.set(GROUP, CGROUP);
    memory.set(CGROUP + 8, FOLDER);
    memory.set(FOLDER + 96, 77);
    let found = name(&memory, &known(), lists + 80, WireLockKind::Spin).unwrap();
    assert_eq!(found.name, "lru_lock of node 1, memory cgroup /small");
    assert_eq!(
        (found.node, found.cgroup.as_deref(), found.by),
        (Some(1), Some("/small"), RecognisedBy::Structure)
    );
    assert_eq!(name(&memory, &known(), lists + 80, WireLockKind::Mutex), None, "it is no mutex");
    memory.set(FOLDER + 96, 78);
    assert!(
        name(&memory, &known(), lists + 80, WireLockKind::Spin).unwrap().name.ends_with("(removed, id 78)")
    );
    // Another cgroup has the lists of this node.
    memory.set(GROUP + 512 + 8, LISTS + 4096);
    assert_eq!(name(&memory, &known(), lists + 80, WireLockKind::Spin), None);
}

#[test]
fn the_lists_of_a_node_itself_are_of_no_group() {
    let mut memory = Literal::default();
    node(&mut memory, 0);
    memory.set(NODE + 2048 + 120, NODE);
    assert_eq!(
        name(&memory, &known(), NODE + 2048 + 80, WireLockKind::Spin).unwrap().name,
        "lru_lock of node 0"
    );
    // A node whose first zone belongs to another node is invalid.
    memory.set(NODE + 24, LISTS);
    assert_eq!(name(&memory, &known(), NODE + 2048 + 80, WireLockKind::Spin), None);
}

#[test]
fn a_zone_is_one_of_its_node() {
    let mut memory = Literal::default();
    node(&mut memory, 0);
    let zone = NODE + 2 * ZONE;
    memory.set(zone + 24, NODE);
    memory.set(zone + 32, TEXT);
    memory.put(TEXT, b"Normal\0");
    assert_eq!(
        name(&memory, &known(), zone + 64, WireLockKind::Spin).unwrap().name,
        "zone lock of node 0, zone Normal"
    );
    // Memory that points to the node but lies between two zones.
    memory.set(zone + 8 + 24, NODE);
    memory.set(zone + 8 + 32, TEXT);
    assert_eq!(name(&memory, &known(), zone + 8 + 64, WireLockKind::Spin), None);
}

/// An inode of sda1 whose name is two directories deep.
fn inode(memory: &mut Literal) {
    memory.set(INODE + 128, INODE);
    memory.set(INODE + 48, INODE + 128);
    memory.set(INODE + 40, SB);
    memory.set(INODE + 64, 1234);
    memory.put(SB + 16, &(8u32 << 20 | 1).to_ne_bytes());
    memory.set(SB + 40, TYPE);
    memory.set(TYPE, TEXT);
    memory.put(TEXT, b"ext4\0");
    memory.set(INODE + 104, ENTRY + 176);
    memory.set(ENTRY + 48, INODE);
    memory.set(ENTRY + 24, ROOT);
    memory.set(ENTRY + 40, TEXT + 64);
    memory.put(TEXT + 64, b"f\x1b[2J\0");
    memory.set(ROOT + 24, ROOT);
}

#[test]
fn the_pages_of_a_file_have_its_device_number_and_path() {
    let mut memory = Literal::default();
    inode(&mut memory);
    let found = name(&memory, &known(), INODE + 128 + 8, WireLockKind::Spin).unwrap();
    // Untrusted text is escaped when it is printed, and is kept unchanged here.
    assert_eq!(found.name, "i_pages of sda1:1234 (/data/f\u{1b}[2J)");
    assert_eq!(found.device.as_deref(), Some("sda"));
    // Without a name there is only the inode number; on a file system without a disk, the file system's type.
    memory.set(ENTRY + 48, INODE + 8);
    memory.put(SB + 16, &0u32.to_ne_bytes());
    assert_eq!(
        name(&memory, &known(), INODE + 128 + 8, WireLockKind::Spin).unwrap().name,
        "i_pages of ext4:1234"
    );
    // A mapping whose inode does not point back is no page cache.
    memory.set(INODE + 48, INODE);
    memory.set(INODE + 4096 + 128, INODE);
    assert_eq!(name(&memory, &known(), INODE + 4096 + 128 + 8, WireLockKind::Spin), None);
}

#[test]
fn the_pages_of_a_block_device_have_its_name() {
    let mut memory = Literal::default();
    inode(&mut memory);
    memory.put(TEXT, b"bdev\0");
    memory.put(INODE + 76, &(8u32 << 20 | 1).to_ne_bytes());
    assert_eq!(name(&memory, &known(), INODE + 128 + 8, WireLockKind::Spin).unwrap().name, "i_pages of sda1");
}

/// A loop of directories, which memory that changes while it is read may show.
#[test]
fn folders_without_an_end_have_no_path() {
    let mut memory = Literal::default();
    inode(&mut memory);
    memory.set(ROOT + 24, ENTRY);
    memory.set(ROOT + 40, TEXT);
    assert_eq!(
        name(&memory, &known(), INODE + 128 + 8, WireLockKind::Spin).unwrap().name,
        "i_pages of sda1:1234"
    );
}

/// A cgroup's write-back is in a list of its device, whose own list points back to the device. Memory that merely looks
/// like an empty list is not named.
#[test]
fn write_back_is_of_the_device_that_points_back() {
    const DEVICE: u64 = NODE;
    const GROUPS: u64 = GROUP;
    let mut memory = Literal::default();
    memory.set(GROUPS, DEVICE);
    for offset in [300, 308] {
        memory.set(GROUPS + offset, GROUPS + 300);
    }
    memory.put(DEVICE + 1024, b"8:1\0");
    let look =
        |memory: &Literal| name(memory, &known(), GROUPS + 200, WireLockKind::Spin).map(|found| found.name);
    assert_eq!(look(&memory), None);
    memory.set(DEVICE + 64, DEVICE);
    assert_eq!(look(&memory).as_deref(), Some("write-back work_lock of sda1"));
    memory.put(DEVICE + 1024, b"\xc8\xa6\0");
    assert_eq!(look(&memory), None, "no device is called so");
}

#[test]
fn what_nothing_points_back_to_is_a_symbol_or_nothing() {
    let nothing = Literal::default();
    let found = name(&nothing, &known(), 0xffff_ffff_8300_0000, WireLockKind::Rwlock).unwrap();
    assert_eq!((found.name.as_str(), found.by), ("tasklist_lock", RecognisedBy::Symbol));
    assert_eq!(
        name(&nothing, &known(), 0xffff_ffff_8300_0004, WireLockKind::Rwlock).unwrap().name,
        "tasklist_lock+0x4"
    );
    for kind in WireLockKind::ALL {
        assert_eq!(name(&nothing, &known(), 0xffff_8880_0000_0000, kind), None);
        assert_eq!(name(&nothing, &known(), 16, kind), None, "no address at all");
    }
}

#[test]
fn a_queue_of_a_drive_is_one_of_those_that_its_device_has() {
    let mut memory = Literal::default();
    let third = QUEUES + 3 * 128;
    memory.set(third, DEVICE);
    memory.put(third + 40, &3u32.to_ne_bytes());
    memory.set(DEVICE, QUEUES);
    memory.put(DEVICE + 700, &1u32.to_ne_bytes());
    let found =
        |memory: &Literal| name(memory, &known(), third + 16, WireLockKind::Spin).map(|found| found.name);
    assert_eq!(found(&memory).as_deref(), Some("sq_lock of nvme1q3"));
    memory.set(DEVICE, QUEUES + 64);
    assert_eq!(found(&memory), None, "another's queues");

    let mut memory = Literal::default();
    let second = QUEUES + 64;
    memory.set(second, THE_VQ);
    memory.set(THE_VQ + 32, DEVICE);
    memory.set(DEVICE + 64, VIRTIO);
    memory.set(VIRTIO + 32, DEVICE);
    memory.set(VIRTIO + 336, QUEUES);
    memory.set(VIRTIO + 40, DISK);
    memory.put(DISK + 12, b"vdb\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    let lock = name(&memory, &known(), second + 8, WireLockKind::Spin).unwrap();
    assert_eq!((lock.name.as_str(), lock.device.as_deref()), ("lock of virtqueue 1 of vdb", Some("vdb")));
    memory.set(VIRTIO + 32, DEVICE + 8);
    assert_eq!(name(&memory, &known(), second + 8, WireLockKind::Spin), None);
}

/// The name if nothing else is known.
#[test]
fn a_lock_is_of_the_kind_of_object_that_it_lies_in() {
    let found = name(&Literal::default(), &known(), IN_A_SLAB, WireLockKind::Spin).unwrap();
    assert_eq!((found.name.as_str(), found.by), ("lock in dentry", RecognisedBy::Slab));
    assert_eq!(name(&Literal::default(), &known(), IN_A_SLAB + 8, WireLockKind::Spin), None);
}
