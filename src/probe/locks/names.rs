//! Names the lock at an address by the struct around it, which must point back to itself.

use std::collections::BTreeMap;

use super::memory::{Layout, Memory};
use crate::host::kallsyms::Kallsyms;
use crate::host::mounts::Mount;
use crate::wire::locks::{LockName, RecognisedBy, WireLockKind};

/// Data about the machine from other sources.
#[derive(Debug, Default)]
pub struct KernelFacts {
    pub symbols: Kallsyms,
    /// Device name by number, and for a partition the name of its disk.
    pub devices: BTreeMap<(u32, u32), (String, String)>,
    pub mounts: Vec<Mount>,
    /// Paths of the memory cgroups by id.
    pub groups: BTreeMap<u64, String>,
    /// Disks by the address of their request queues.
    pub queues: BTreeMap<u64, String>,
}

/// Examines the memory around a lock.
pub struct Namer<'a> {
    memory: &'a dyn Memory,
    layout: &'a Layout,
    known: &'a KernelFacts,
}

/// Limits that no machine exceeds: a larger value means that the struct was misidentified.
const MOST_NODES: u32 = 1024;
const MOST_ZONES: u64 = 8;
const MOST_CPUS: u32 = 1 << 16;
/// Limit on nested directories, and on files of a process, that are examined.
const DEEPEST: usize = 64;

fn structure(name: String) -> LockName {
    LockName { name, by: RecognisedBy::Structure, device: None, node: None, cgroup: None, pid: None }
}

impl<'a> Namer<'a> {
    pub fn new(memory: &'a dyn Memory, layout: &'a Layout, known: &'a KernelFacts) -> Self {
        Self { memory, layout, known }
    }

    /// Names a lock. None: no struct around it could be verified, and neither a symbol nor a slab cache is known.
    pub fn name(&self, lock: u64, kind: WireLockKind) -> Option<LockName> {
        let found = match kind {
            WireLockKind::Spin | WireLockKind::Rwlock => self.spin(lock),
            WireLockKind::Mutex | WireLockKind::RtMutex => self.mutex(lock),
            WireLockKind::Rwsem | WireLockKind::PercpuRwsem => self.rwsem(lock),
            WireLockKind::Semaphore => None,
        };
        found.or_else(|| self.symbol(lock)).or_else(|| self.slab(lock))
    }

    fn spin(&self, lock: u64) -> Option<LockName> {
        None.or_else(|| self.lru_lock(lock))
            .or_else(|| self.lru_lock_of_node(lock))
            .or_else(|| self.zone_lock(lock))
            .or_else(|| self.run_queue(lock))
            .or_else(|| self.of_mapping(lock, "i_pages.xa_lock", "i_pages"))
            .or_else(|| self.of_mapping(lock, "i_private_lock", "i_private_lock"))
            .or_else(|| self.of_inode(lock, "i_lock"))
            .or_else(|| self.hardware_queue(lock, "lock", "dispatch lock"))
            .or_else(|| self.hardware_queue(lock, "dispatch_wait_lock", "dispatch_wait_lock"))
            .or_else(|| self.software_queue(lock))
            .or_else(|| self.request_queue(lock, "queue_lock"))
            .or_else(|| self.request_queue(lock, "requeue_lock"))
            .or_else(|| self.elevator(lock))
            .or_else(|| self.nvme_queue(lock, "sq_lock"))
            .or_else(|| self.nvme_queue(lock, "cq_poll_lock"))
            .or_else(|| self.virtio_queue(lock))
            .or_else(|| self.writeback(lock, "list_lock"))
            .or_else(|| self.writeback(lock, "work_lock"))
            .or_else(|| self.ring(lock, "completion_lock"))
            .or_else(|| self.event_poll(lock, "lock"))
            .or_else(|| self.file_system(lock))
    }

    fn mutex(&self, lock: u64) -> Option<LockName> {
        None.or_else(|| self.ring(lock, "uring_lock"))
            .or_else(|| self.event_poll(lock, "mtx"))
            .or_else(|| self.pipe(lock))
            .or_else(|| self.request_queue(lock, "sysfs_lock"))
    }

    fn rwsem(&self, lock: u64) -> Option<LockName> {
        None.or_else(|| self.address_space_of_process(lock))
            .or_else(|| self.of_inode(lock, "i_rwsem"))
            .or_else(|| self.of_mapping(lock, "invalidate_lock", "invalidate_lock"))
            .or_else(|| self.of_mapping(lock, "i_mmap_rwsem", "i_mmap_rwsem"))
    }

    fn symbol(&self, lock: u64) -> Option<LockName> {
        let (name, behind) = self.known.symbols.variable(lock)?;
        let name = if behind == 0 { name.to_string() } else { format!("{name}+{behind:#x}") };
        Some(LockName { by: RecognisedBy::Symbol, ..structure(name) })
    }

    /// Names a lock by the slab cache around it, which tells the kind of object, and not which object.
    fn slab(&self, lock: u64) -> Option<LockName> {
        let cache = self.memory.slab(lock)?;
        Some(LockName { by: RecognisedBy::Slab, ..structure(format!("lock in {cache}")) })
    }

    /// The struct that contains a member at this address.
    fn around(&self, address: u64, object: &'static str, member: &'static str) -> Option<u64> {
        address.checked_sub(self.layout.of(object, member)?)
    }

    fn at(&self, base: u64, object: &'static str, member: &'static str) -> Option<u64> {
        base.checked_add(self.layout.of(object, member)?)
    }

    fn pointer(&self, base: u64, object: &'static str, member: &'static str) -> Option<u64> {
        self.memory.pointer(self.at(base, object, member)?)
    }

    fn half(&self, base: u64, object: &'static str, member: &'static str) -> Option<u32> {
        self.memory.half(self.at(base, object, member)?)
    }

    fn text(&self, base: u64, object: &'static str, member: &'static str, most: usize) -> Option<String> {
        self.memory.text(self.at(base, object, member)?, most)
    }

    /// The number of a NUMA node, verified by its first zone, which points back to it.
    fn node(&self, pgdat: u64) -> Option<u32> {
        let zone = self.at(pgdat, "pglist_data", "node_zones")?;
        let node = self.half(pgdat, "pglist_data", "node_id")?;
        (self.pointer(zone, "zone", "zone_pgdat") == Some(pgdat) && node < MOST_NODES).then_some(node)
    }

    fn lru_lock(&self, lock: u64) -> Option<LockName> {
        let lruvec = self.around(lock, "lruvec", "lru_lock")?;
        let pgdat = self.pointer(lruvec, "lruvec", "pgdat")?;
        let node = self.node(pgdat)?;
        let mut name = LockName { node: Some(node), ..structure(format!("lru_lock of node {node}")) };
        if self.at(pgdat, "pglist_data", "__lruvec") == Some(lruvec) {
            return Some(name);
        }
        let group = self.memory_group(lruvec, node)?;
        name.name = format!("lru_lock of node {node}, memory cgroup {group}");
        name.cgroup = Some(group);
        Some(name)
    }

    /// Path of the memory cgroup with these LRU lists, which it points back to.
    fn memory_group(&self, lruvec: u64, node: u32) -> Option<String> {
        let of_node = self.around(lruvec, "mem_cgroup_per_node", "lruvec")?;
        let group = self.pointer(of_node, "mem_cgroup_per_node", "memcg")?;
        let back = self.at(group, "mem_cgroup", "nodeinfo")? + 8 * u64::from(node);
        if self.memory.pointer(back) != Some(of_node) {
            return None;
        }
        let folder = self.pointer(self.pointer(group, "mem_cgroup", "css.cgroup")?, "cgroup", "kn")?;
        let id = self.memory.word(self.at(folder, "kernfs_node", "id")?)?;
        Some(self.known.groups.get(&id).cloned().unwrap_or_else(|| format!("(removed, id {id})")))
    }

    /// Before 15b447361794 (5.11) a node had one lock for all cgroups.
    fn lru_lock_of_node(&self, lock: u64) -> Option<LockName> {
        let node = self.node(self.around(lock, "pglist_data", "lru_lock")?)?;
        Some(LockName { node: Some(node), ..structure(format!("lru_lock of node {node}")) })
    }

    fn zone_lock(&self, lock: u64) -> Option<LockName> {
        let zone = self.around(lock, "zone", "lock")?;
        let pgdat = self.pointer(zone, "zone", "zone_pgdat")?;
        let node = self.node(pgdat)?;
        let behind = zone.checked_sub(self.at(pgdat, "pglist_data", "node_zones")?)?;
        let size = self.layout.size("zone")?;
        if behind % size != 0 || behind / size >= MOST_ZONES {
            return None;
        }
        let name = self.memory.text(self.pointer(zone, "zone", "name")?, 16)?;
        Some(LockName { node: Some(node), ..structure(format!("zone lock of node {node}, zone {name}")) })
    }

    /// Since 5cb9eaa3d274 (5.13) the lock's name has underscores.
    fn run_queue(&self, lock: u64) -> Option<LockName> {
        let queue = self.around(lock, "rq", "__lock").or_else(|| self.around(lock, "rq", "lock"))?;
        if self.layout.of("rq", "cfs.rq").is_some() && self.pointer(queue, "rq", "cfs.rq") != Some(queue) {
            return None;
        }
        let cpu = self.half(queue, "rq", "cpu").filter(|cpu| *cpu < MOST_CPUS)?;
        let idle = self.text(self.pointer(queue, "rq", "idle")?, "task_struct", "comm", 16)?;
        (idle == format!("swapper/{cpu}")).then(|| structure(format!("run queue of CPU {cpu}")))
    }

    fn of_mapping(&self, lock: u64, member: &'static str, word: &str) -> Option<LockName> {
        let mapping = self.around(lock, "address_space", member)?;
        let inode = self.pointer(mapping, "address_space", "host")?;
        // The inode's own mapping, or that of the block device which the inode represents.
        let points_back = self.at(inode, "inode", "i_data") == Some(mapping)
            || self.pointer(inode, "inode", "i_mapping") == Some(mapping);
        points_back.then(|| self.inode_name(inode, word))?
    }

    fn of_inode(&self, lock: u64, member: &'static str) -> Option<LockName> {
        let inode = self.around(lock, "inode", member)?;
        let own = self.at(inode, "inode", "i_data")?;
        (self.pointer(own, "address_space", "host") == Some(inode)).then(|| self.inode_name(inode, member))?
    }

    /// `i_pages of vda1:1234 (/var/tmp/f)`; for an inode of a block device the device's name.
    fn inode_name(&self, inode: u64, word: &str) -> Option<LockName> {
        let sb = self.pointer(inode, "inode", "i_sb")?;
        let kind = self.memory.text(
            self.pointer(self.pointer(sb, "super_block", "s_type")?, "file_system_type", "name")?,
            16,
        )?;
        let number = |device: u32| (device >> 20, device & 0xf_ffff);
        if kind == "bdev" {
            let (name, disk) = self.known.devices.get(&number(self.half(inode, "inode", "i_rdev")?))?;
            return Some(LockName { device: Some(disk.clone()), ..structure(format!("{word} of {name}")) });
        }
        let device = number(self.half(sb, "super_block", "s_dev")?);
        let ino = self.memory.word(self.at(inode, "inode", "i_ino")?)?;
        let disk = self.known.devices.get(&device);
        let place = disk.map_or_else(|| format!("{kind}:{ino}"), |(name, _)| format!("{name}:{ino}"));
        let path = self.path(inode, device).map(|path| format!(" ({path})")).unwrap_or_default();
        Some(LockName {
            device: disk.map(|(_, disk)| disk.clone()),
            ..structure(format!("{word} of {place}{path}"))
        })
    }

    /// A path of an inode: one of its names, below the mount point of its file system.
    fn path(&self, inode: u64, device: (u32, u32)) -> Option<String> {
        let alias = self.pointer(inode, "inode", "i_dentry")?;
        let mut entry = self
            .around(alias, "dentry", "d_u.d_alias")
            .or_else(|| self.around(alias, "dentry", "d_alias"))?;
        if self.pointer(entry, "dentry", "d_inode") != Some(inode) {
            return None;
        }
        let mut names = Vec::new();
        for _ in 0..DEEPEST {
            let above = self.pointer(entry, "dentry", "d_parent")?;
            if above == entry {
                let path = format!("/{}", names.iter().rev().cloned().collect::<Vec<_>>().join("/"));
                return Some(self.below_mount(&path, device));
            }
            names.push(self.memory.text(self.pointer(entry, "dentry", "d_name.name")?, 256)?);
            entry = above;
        }
        None
    }

    fn below_mount(&self, path: &str, device: (u32, u32)) -> String {
        let of_device = |mount: &&Mount| (mount.major, mount.minor) == device;
        let below = |mount: &Mount| {
            let rest = path.strip_prefix(mount.root.trim_end_matches('/'))?;
            let rest = rest.is_empty().then_some("").or(rest.starts_with('/').then_some(rest))?;
            Some(format!("{}{rest}", mount.point.trim_end_matches('/')))
        };
        let found = self.known.mounts.iter().filter(of_device).find_map(below);
        found.unwrap_or_else(|| path.to_string())
    }

    /// The disk of a request queue, which points back to it.
    fn disk(&self, queue: u64) -> Option<String> {
        let disk = self.pointer(queue, "request_queue", "disk")?;
        (self.pointer(disk, "gendisk", "queue") == Some(queue))
            .then(|| self.text(disk, "gendisk", "disk_name", 32))?
    }

    fn on_disk(&self, disk: String, what: &str) -> LockName {
        LockName { name: format!("{what} of {disk}"), device: Some(disk), ..structure(String::new()) }
    }

    fn hardware_queue(&self, lock: u64, member: &'static str, word: &str) -> Option<LockName> {
        let queue = self.around(lock, "blk_mq_hw_ctx", member)?;
        let disk = self.disk(self.pointer(queue, "blk_mq_hw_ctx", "queue")?)?;
        let number = self.half(queue, "blk_mq_hw_ctx", "queue_num").filter(|n| *n < MOST_CPUS)?;
        Some(self.on_disk(disk, &format!("{word} of queue {number}")))
    }

    fn software_queue(&self, lock: u64) -> Option<LockName> {
        let queue = self.around(lock, "blk_mq_ctx", "lock")?;
        let disk = self.disk(self.pointer(queue, "blk_mq_ctx", "queue")?)?;
        let cpu = self.half(queue, "blk_mq_ctx", "cpu").filter(|cpu| *cpu < MOST_CPUS)?;
        Some(self.on_disk(disk, &format!("software queue of CPU {cpu}")))
    }

    fn request_queue(&self, lock: u64, member: &'static str) -> Option<LockName> {
        let disk = self.disk(self.around(lock, "request_queue", member)?)?;
        Some(self.on_disk(disk, member))
    }

    /// Searched from the disks, since an elevator does not point to its disk.
    fn elevator(&self, lock: u64) -> Option<LockName> {
        for (queue, disk) in &self.known.queues {
            let Some(elevator) = self.pointer(*queue, "request_queue", "elevator") else { continue };
            let Some(data) = self.pointer(elevator, "elevator_queue", "elevator_data") else { continue };
            for (object, member, word) in [
                ("deadline_data", "lock", "lock of mq-deadline"),
                ("deadline_data", "zone_lock", "zone_lock of mq-deadline"),
                ("bfq_data", "lock", "lock of bfq"),
            ] {
                if self.at(data, object, member) == Some(lock) {
                    return Some(self.on_disk(disk.clone(), word));
                }
            }
        }
        None
    }

    /// A queue of an NVMe controller, which must be in its device's array.
    fn nvme_queue(&self, lock: u64, member: &'static str) -> Option<LockName> {
        let queue = self.around(lock, "nvme_queue", member)?;
        let device = self.pointer(queue, "nvme_queue", "dev")?;
        let number = self.half(queue, "nvme_queue", "qid")? & 0xffff;
        let behind = u64::from(number) * self.layout.size("nvme_queue")?;
        if self.pointer(device, "nvme_dev", "queues")?.checked_add(behind) != Some(queue) {
            return None;
        }
        let controller = self.half(device, "nvme_dev", "ctrl.instance")?;
        Some(structure(format!("{member} of nvme{controller}q{number}")))
    }

    /// A queue of a virtio disk, which must be in its disk's array.
    fn virtio_queue(&self, lock: u64) -> Option<LockName> {
        let queue = self.around(lock, "virtio_blk_vq", "lock")?;
        let device = self.pointer(self.pointer(queue, "virtio_blk_vq", "vq")?, "virtqueue", "vdev")?;
        let own = self.pointer(device, "virtio_device", "priv")?;
        if self.pointer(own, "virtio_blk", "vdev") != Some(device) {
            return None;
        }
        let behind = queue.checked_sub(self.pointer(own, "virtio_blk", "vqs")?)?;
        let size = self.layout.size("virtio_blk_vq").filter(|size| *size > 0)?;
        if behind % size != 0 || behind / size >= u64::from(MOST_CPUS) {
            return None;
        }
        let disk = self.pointer(own, "virtio_blk", "disk")?;
        let name = self.text(disk, "gendisk", "disk_name", 32)?;
        Some(self.on_disk(name, &format!("lock of virtqueue {}", behind / size)))
    }

    /// Whether the neighbours of a list head point to it.
    fn is_list(&self, list: u64) -> bool {
        let (next, previous) = (self.memory.pointer(list), self.memory.pointer(list + 8));
        next.and_then(|next| self.memory.pointer(next + 8)) == Some(list)
            && previous.and_then(|previous| self.memory.pointer(previous)) == Some(list)
    }

    fn writeback(&self, lock: u64, member: &'static str) -> Option<LockName> {
        let writeback = self.around(lock, "bdi_writeback", member)?;
        let device = self.pointer(writeback, "bdi_writeback", "bdi")?;
        let first = self.at(device, "backing_dev_info", "wb")?;
        // Memory may look like an empty list by chance: a device's own first list points back to the device.
        if self.pointer(first, "bdi_writeback", "bdi") != Some(device) {
            return None;
        }
        let is_first = first == writeback;
        if !is_first && !self.is_list(self.at(writeback, "bdi_writeback", "bdi_node")?) {
            return None;
        }
        let number = self.text(device, "backing_dev_info", "dev_name", 64)?;
        if number.is_empty() || !number.bytes().all(|byte| byte.is_ascii_graphic()) {
            return None;
        }
        let known = number
            .split_once(':')
            .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)))
            .and_then(|number| self.known.devices.get(&number));
        let name = known.map_or(number.as_str(), |(name, _)| name);
        Some(LockName {
            device: known.map(|(_, disk)| disk.clone()),
            ..structure(format!("write-back {member} of {name}"))
        })
    }

    /// Name and number of the process of a task.
    fn process(&self, task: u64) -> Option<(String, u32)> {
        let leader = self.pointer(task, "task_struct", "group_leader")?;
        let pid = self.half(task, "task_struct", "tgid")?;
        Some((self.text(leader, "task_struct", "comm", 16)?, pid))
    }

    /// An io_uring ring, by the first task that has used it, whose node points back to the ring.
    fn ring(&self, lock: u64, member: &'static str) -> Option<LockName> {
        let ring = self.around(lock, "io_ring_ctx", member)?;
        let list = self.at(ring, "io_ring_ctx", "tctx_list")?;
        let note = self.around(self.memory.pointer(list)?, "io_tctx_node", "ctx_node")?;
        if self.pointer(note, "io_tctx_node", "ctx") != Some(ring) {
            return None;
        }
        let task = self.pointer(note, "io_tctx_node", "task")?;
        let (comm, pid) = self.process(task)?;
        let number = self.descriptor(task, ring).map(|fd| format!(" fd {fd}")).unwrap_or_default();
        let name = format!("{member} of io_uring{number} of {comm} ({pid})");
        Some(LockName { pid: Some(pid), ..structure(name) })
    }

    /// The descriptor of a task that refers to an object.
    fn descriptor(&self, task: u64, object: u64) -> Option<u64> {
        let table = self.pointer(self.pointer(task, "task_struct", "files")?, "files_struct", "fdt")?;
        let most = u64::from(self.half(table, "fdtable", "max_fds")?).min(4 * DEEPEST as u64);
        let files = self.pointer(table, "fdtable", "fd")?;
        (0..most).find(|fd| {
            let file = self.memory.pointer(files + 8 * fd);
            file.and_then(|file| self.pointer(file, "file", "private_data")) == Some(object)
        })
    }

    fn event_poll(&self, lock: u64, member: &'static str) -> Option<LockName> {
        let poll = self.around(lock, "eventpoll", member)?;
        let file = self.pointer(poll, "eventpoll", "file")?;
        (self.pointer(file, "file", "private_data") == Some(poll))
            .then(|| structure(format!("{member} of an epoll set")))
    }

    fn pipe(&self, lock: u64) -> Option<LockName> {
        let pipe = self.around(lock, "pipe_inode_info", "mutex")?;
        let slots = self.half(pipe, "pipe_inode_info", "ring_size")?;
        let lists = [("pipe_inode_info", "rd_wait.head"), ("pipe_inode_info", "wr_wait.head")];
        let are_lists = lists
            .iter()
            .all(|(object, list)| self.at(pipe, object, list).is_some_and(|list| self.is_list(list)));
        (slots.is_power_of_two() && are_lists).then(|| structure("mutex of a pipe".to_string()))
    }

    fn address_space_of_process(&self, lock: u64) -> Option<LockName> {
        let space = self.around(lock, "mm_struct", "mmap_lock")?;
        let owner = self.pointer(space, "mm_struct", "owner")?;
        if self.pointer(owner, "task_struct", "mm") != Some(space) {
            return None;
        }
        let (comm, pid) = self.process(owner)?;
        Some(LockName { pid: Some(pid), ..structure(format!("mmap_lock of {comm} ({pid})")) })
    }

    fn file_system(&self, lock: u64) -> Option<LockName> {
        let sb = self.around(lock, "super_block", "s_inode_list_lock")?;
        let root = self.pointer(sb, "super_block", "s_root")?;
        if self.pointer(root, "dentry", "d_sb") != Some(sb) {
            return None;
        }
        let id = self.text(sb, "super_block", "s_id", 32)?;
        Some(structure(format!("inode list of file system {id}")))
    }

    /// The request queue of a disk, found through a descriptor of this process for the disk's directory in sysfs.
    pub fn queue_by_descriptor(&self, task: u64, fd: u64) -> Option<(u64, String)> {
        let table = self.pointer(self.pointer(task, "task_struct", "files")?, "files_struct", "fdt")?;
        let file = self.memory.pointer(self.pointer(table, "fdtable", "fd")? + 8 * fd)?;
        let folder = self.pointer(self.pointer(file, "file", "f_inode")?, "inode", "i_private")?;
        let object = self.pointer(folder, "kernfs_node", "priv")?;
        let device = self.around(object, "block_device", "bd_device.kobj")?;
        let disk = self.pointer(device, "block_device", "bd_disk")?;
        if self.pointer(disk, "gendisk", "part0") != Some(device) {
            return None;
        }
        let queue = self.pointer(disk, "gendisk", "queue")?;
        Some((queue, self.text(disk, "gendisk", "disk_name", 32)?))
    }
}

#[cfg(test)]
#[path = "names_tests.rs"]
mod tests;
