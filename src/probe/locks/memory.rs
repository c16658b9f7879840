//! Reads kernel memory, and knows the member offsets of kernel structs.

use std::collections::BTreeMap;

use libbpf_rs::ProgramInput;

use crate::probe::btf::KernelBtf;
use crate::probe::skel::locks::LocksSkel;
use crate::wire::locks::{PEEK_BYTES, WireNvmePlaces};

/// Reads kernel memory at an address. The object there may have changed or been freed, so readers verify what they
/// find.
pub trait Memory {
    /// False if nothing is mapped there.
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool;
    /// The address of the current task.
    fn current(&self) -> Option<u64>;
    /// The name of the slab cache that an address lies in.
    fn slab(&self, address: u64) -> Option<String>;

    fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.read(address, &mut bytes).then(|| u64::from_ne_bytes(bytes))
    }

    fn half(&self, address: u64) -> Option<u32> {
        let mut bytes = [0; 4];
        self.read(address, &mut bytes).then(|| u32::from_ne_bytes(bytes))
    }

    /// A pointer into the kernel's half of the address space.
    fn pointer(&self, address: u64) -> Option<u64> {
        self.word(address).filter(|pointer| *pointer >= KERNEL_HALF)
    }

    /// Reads text up to a NUL byte or the end of the field. It may contain any bytes: much of it is untrusted.
    fn text(&self, address: u64, most: usize) -> Option<String> {
        let mut bytes = vec![0; most];
        // A short text may lie at the end of mapped memory.
        if !self.read(address, &mut bytes) {
            bytes = (0..most as u64)
                .map_while(|at| {
                    let mut byte = [0];
                    self.read(address + at, &mut byte).then_some(byte[0]).filter(|byte| *byte != 0)
                })
                .collect();
        }
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        (end > 0).then(|| String::from_utf8_lossy(&bytes[..end]).into_owned())
    }
}

/// Begin of the kernel's addresses: x86-64, including five-level page tables.
pub const KERNEL_HALF: u64 = 0xff00_0000_0000_0000;

/// Memory of the running kernel, read by a BPF program that only this process runs.
pub struct KernelMemory<'a, 'b> {
    skel: &'a LocksSkel<'b>,
    /// The program that looks up slab caches is loaded.
    has_slab: bool,
}

impl<'a, 'b> KernelMemory<'a, 'b> {
    pub fn new(skel: &'a LocksSkel<'b>, has_slab: bool) -> Self {
        Self { skel, has_slab }
    }

    fn call(&self, address: u64, into: &mut [u8]) -> bool {
        let skel = self.skel;
        let mut arguments = [address.to_ne_bytes(), (into.len() as u64).to_ne_bytes()].concat();
        let input = ProgramInput { context_in: Some(&mut arguments), ..ProgramInput::default() };
        if !skel.progs.peek.test_run(input).is_ok_and(|output| output.return_value == 0) {
            return false;
        }
        let Some(data) = skel.maps.bss_data.as_ref() else { return false };
        into.copy_from_slice(&data.peeked[..into.len()]);
        true
    }
}

impl Memory for KernelMemory<'_, '_> {
    fn read(&self, address: u64, bytes: &mut [u8]) -> bool {
        address >= KERNEL_HALF && !bytes.is_empty() && bytes.len() <= PEEK_BYTES && self.call(address, bytes)
    }

    fn current(&self) -> Option<u64> {
        let mut bytes = [0; 8];
        self.call(0, &mut bytes).then(|| u64::from_ne_bytes(bytes))
    }

    fn slab(&self, address: u64) -> Option<String> {
        let program = &self.skel.progs.slab;
        if !self.has_slab {
            return None;
        }
        let mut arguments = address.to_ne_bytes();
        let input = ProgramInput { context_in: Some(&mut arguments), ..ProgramInput::default() };
        if program.test_run(input).ok()?.return_value != 0 {
            return None;
        }
        let peeked = &self.skel.maps.bss_data.as_ref()?.peeked[..SLAB_NAME];
        let end = peeked.iter().position(|byte| *byte == 0).unwrap_or(peeked.len());
        (end > 0).then(|| String::from_utf8_lossy(&peeked[..end]).into_owned())
    }
}

/// Bytes of a cache's name that the program reads.
const SLAB_NAME: usize = 64;

/// Member offsets in this kernel; missing members are absent.
#[derive(Debug, Clone, Default)]
pub struct Layout {
    offsets: BTreeMap<(&'static str, &'static str), u64>,
    sizes: BTreeMap<&'static str, u64>,
}

/// All members that are used.
const MEMBERS: &[(&str, &str)] = &[
    ("lruvec", "lru_lock"),
    ("lruvec", "pgdat"),
    ("pglist_data", "lru_lock"),
    ("pglist_data", "node_zones"),
    ("pglist_data", "node_id"),
    ("pglist_data", "__lruvec"),
    ("zone", "lock"),
    ("zone", "zone_pgdat"),
    ("zone", "name"),
    ("mem_cgroup_per_node", "lruvec"),
    ("mem_cgroup_per_node", "memcg"),
    ("mem_cgroup", "nodeinfo"),
    ("mem_cgroup", "css.cgroup"),
    ("cgroup", "kn"),
    ("kernfs_node", "id"),
    ("kernfs_node", "priv"),
    ("address_space", "i_pages.xa_lock"),
    ("address_space", "host"),
    ("address_space", "i_mmap_rwsem"),
    ("address_space", "invalidate_lock"),
    ("address_space", "i_private_lock"),
    ("inode", "i_data"),
    ("inode", "i_mapping"),
    ("inode", "i_sb"),
    ("inode", "i_ino"),
    ("inode", "i_rdev"),
    ("inode", "i_lock"),
    ("inode", "i_rwsem"),
    ("inode", "i_dentry"),
    ("inode", "i_private"),
    ("super_block", "s_dev"),
    ("super_block", "s_id"),
    ("super_block", "s_root"),
    ("super_block", "s_inode_list_lock"),
    ("super_block", "s_type"),
    ("file_system_type", "name"),
    ("dentry", "d_u.d_alias"),
    ("dentry", "d_alias"),
    ("dentry", "d_inode"),
    ("dentry", "d_parent"),
    ("dentry", "d_name.name"),
    ("dentry", "d_sb"),
    ("rq", "__lock"),
    ("rq", "lock"),
    ("rq", "idle"),
    ("rq", "cpu"),
    ("rq", "cfs.rq"),
    ("task_struct", "comm"),
    ("task_struct", "tgid"),
    ("task_struct", "mm"),
    ("task_struct", "files"),
    ("task_struct", "group_leader"),
    ("files_struct", "fdt"),
    ("fdtable", "fd"),
    ("fdtable", "max_fds"),
    ("file", "f_inode"),
    ("file", "private_data"),
    ("blk_mq_hw_ctx", "lock"),
    ("blk_mq_hw_ctx", "dispatch_wait_lock"),
    ("blk_mq_hw_ctx", "queue"),
    ("blk_mq_hw_ctx", "queue_num"),
    ("blk_mq_ctx", "lock"),
    ("blk_mq_ctx", "queue"),
    ("blk_mq_ctx", "cpu"),
    ("request_queue", "disk"),
    ("request_queue", "queue_lock"),
    ("request_queue", "requeue_lock"),
    ("request_queue", "sysfs_lock"),
    ("request_queue", "elevator"),
    ("elevator_queue", "elevator_data"),
    ("gendisk", "queue"),
    ("gendisk", "disk_name"),
    ("gendisk", "part0"),
    ("block_device", "bd_disk"),
    ("block_device", "bd_device.kobj"),
    ("deadline_data", "lock"),
    ("deadline_data", "zone_lock"),
    ("bfq_data", "lock"),
    ("bdi_writeback", "list_lock"),
    ("bdi_writeback", "work_lock"),
    ("bdi_writeback", "bdi"),
    ("bdi_writeback", "bdi_node"),
    ("backing_dev_info", "wb"),
    ("backing_dev_info", "dev_name"),
    ("io_ring_ctx", "uring_lock"),
    ("io_ring_ctx", "completion_lock"),
    ("io_ring_ctx", "tctx_list"),
    ("io_tctx_node", "ctx_node"),
    ("io_tctx_node", "ctx"),
    ("io_tctx_node", "task"),
    ("mm_struct", "mmap_lock"),
    ("mm_struct", "owner"),
    ("eventpoll", "mtx"),
    ("eventpoll", "lock"),
    ("eventpoll", "file"),
    ("pipe_inode_info", "mutex"),
    ("pipe_inode_info", "rd_wait.head"),
    ("pipe_inode_info", "wr_wait.head"),
    ("pipe_inode_info", "ring_size"),
    ("virtio_blk_vq", "vq"),
    ("virtio_blk_vq", "lock"),
    ("virtqueue", "vdev"),
    ("virtio_device", "priv"),
    ("virtio_blk", "vdev"),
    ("virtio_blk", "disk"),
    ("virtio_blk", "vqs"),
    ("nvme_queue", "sq_lock"),
    ("nvme_queue", "cq_poll_lock"),
    ("nvme_queue", "dev"),
    ("nvme_queue", "qid"),
    ("nvme_dev", "queues"),
    ("nvme_dev", "ctrl.instance"),
];

const OBJECTS: &[&str] = &["zone", "pglist_data", "virtio_blk_vq", "nvme_queue"];

impl Layout {
    pub fn read(btf: &KernelBtf) -> Self {
        Self { offsets: btf.offsets(MEMBERS), sizes: btf.sizes(OBJECTS) }
    }

    /// Adds offsets from the BTF of the NVMe driver, which is mostly a module.
    pub fn add_nvme(&mut self, places: WireNvmePlaces) {
        if places.known == 0 {
            return;
        }
        let members = [
            ("nvme_queue", "sq_lock", places.sq_lock),
            ("nvme_queue", "cq_poll_lock", places.cq_poll_lock),
            ("nvme_queue", "dev", places.dev),
            ("nvme_queue", "qid", places.qid),
            ("nvme_dev", "queues", places.queues),
            ("nvme_dev", "ctrl.instance", places.instance),
        ];
        self.offsets.extend(members.map(|(object, member, at)| ((object, member), u64::from(at))));
        self.sizes.insert("nvme_queue", places.size.into());
    }

    /// None if this kernel has no such member.
    pub fn of(&self, object: &'static str, member: &'static str) -> Option<u64> {
        debug_assert!(MEMBERS.contains(&(object, member)), "{object}.{member} is not asked for");
        self.offsets.get(&(object, member)).copied()
    }

    pub fn size(&self, object: &'static str) -> Option<u64> {
        self.sizes.get(object).copied()
    }

    #[cfg(test)]
    pub fn literal(offsets: &[(&'static str, &'static str, u64)], sizes: &[(&'static str, u64)]) -> Self {
        Self {
            offsets: offsets.iter().map(|(object, member, at)| ((*object, *member), *at)).collect(),
            sizes: sizes.iter().copied().collect(),
        }
    }
}
