//! Reads the disks of `/sys/block` one by one; `layers` joins them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::attribute::{bracketed, device_number, file, flag, link_name, list, names, number, text};
use super::{BlockDevice, HardwareQueue, Hop, Partition, Vector, layers, pci, vectors};
use crate::refusal::Refusal;

/// sysfs counts sizes and starts in sectors of 512 bytes, whatever the device's block size.
pub const SECTOR: u64 = 512;

/// All disks with their layers, holders, mounts and swap areas, in natural order of the names.
pub fn devices(root: &Path) -> anyhow::Result<Vec<BlockDevice>> {
    let directory = root.join("sys/block");
    // An unreadable directory and an empty one differ: a container may have no disk at all.
    fs::read_dir(&directory).map_err(|error| {
        Refusal::Refused(format!(
            "cannot read {} ({error}): mount it with `mount -t sysfs sysfs /sys`",
            directory.display()
        ))
    })?;
    let numbers = Numbers::read(root);
    // The namespaces of a drive share its PCI function, which may have thousands of vectors: it is read once.
    let mut functions = BTreeMap::new();
    let mut devices: Vec<BlockDevice> = names(&directory)
        .iter()
        .map(|name| device(root, &directory.join(name), name, &numbers, &mut functions))
        .collect();
    layers::join(root, &mut devices);
    Ok(devices)
}

/// Whether the disk or partition of this name exists now. Partitions are listed only in the class.
pub fn is_there(root: &Path, name: &str) -> bool {
    ["sys/block", "sys/class/block"].iter().any(|folder| root.join(folder).join(name).exists())
}

/// Maps the numbers of disks and partitions to their name and the name of the whole disk.
pub fn by_number(root: &Path) -> BTreeMap<(u32, u32), (String, String)> {
    let folder = root.join("sys/class/block");
    let one = |name: String| {
        let place = folder.join(&name);
        let number = device_number(&file(&place.join("dev")).ok()?)?;
        let disk = match place.join("partition").exists() {
            true => fs::canonicalize(&place).ok()?.parent()?.file_name()?.to_string_lossy().into_owned(),
            false => name.clone(),
        };
        Some((number, (name, disk)))
    };
    names(&folder).into_iter().filter_map(one).collect()
}

impl BlockDevice {
    /// Whether this is an unused loop, RAM, zram or network block device that the driver created in advance.
    pub fn is_placeholder(&self) -> bool {
        match self.driver.as_deref() {
            Some("loop" | "zram" | "nbd") => self.size_bytes == 0,
            // A RAM disk has its full size from the start.
            Some("brd") => {
                self.mounted_at.is_empty()
                    && self.swaps.is_empty()
                    && self.holders.is_empty()
                    && self.partitions.is_empty()
            }
            _ => false,
        }
    }
}

/// Files outside the device's own directory that give device numbers.
struct Numbers {
    diskstats: String,
    devices: String,
}

impl Numbers {
    fn read(root: &Path) -> Self {
        let read = |name: &str| file(&root.join(name)).unwrap_or_default();
        Self { diskstats: read("proc/diskstats"), devices: read("proc/devices") }
    }

    /// The number of a disk from `/proc/diskstats`. A hidden disk has no `dev` attribute, but this file has its number,
    /// which trace events carry too.
    fn of(&self, name: &str) -> Option<(u32, u32)> {
        self.diskstats.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            let number = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            (words.next()? == name).then_some(number)
        })
    }

    /// The name under which a driver registered a major number; many drivers share `blkext`.
    fn driver(&self, major: u32) -> Option<&str> {
        let block = self.devices.split_once("Block devices:")?.1;
        block.lines().find_map(|line| {
            let (number, name) = line.trim().split_once(' ')?;
            (number.parse() == Ok(major) && name != "blkext").then_some(name)
        })
    }
}

/// Attributes of a PCI function that all devices below it share.
#[derive(Clone, Default)]
struct PciFunction {
    hops: Vec<Hop>,
    config: pci::Config,
    iommu: Option<String>,
    vectors: Vec<Vector>,
}

impl PciFunction {
    fn read(root: &Path, directory: &Path) -> Self {
        Self {
            hops: pci::hops(directory),
            config: pci::Config::read(directory),
            iommu: text(&directory.join("iommu_group/type")),
            vectors: vectors::vectors(root, directory),
        }
    }
}

fn device(
    root: &Path,
    link: &Path,
    name: &str,
    numbers: &Numbers,
    functions: &mut BTreeMap<PathBuf, PciFunction>,
) -> BlockDevice {
    // The real path shows the bus. If it cannot be resolved, the attributes can still be read.
    let directory = fs::canonicalize(link).unwrap_or_else(|_| link.to_path_buf());
    let queue = directory.join("queue");
    let own = text(&directory.join("dev")).and_then(|value| device_number(&value));
    let (major, minor) = own.or_else(|| numbers.of(name)).unwrap_or_default();
    let place = pci::place(&directory);
    let function = place.as_ref().map(|place| {
        let read = || PciFunction::read(root, &place.directory);
        functions.entry(place.directory.clone()).or_insert_with(read).clone()
    });
    let function = function.unwrap_or_default();
    let kibibytes = |attribute: &str| number::<u64>(&queue.join(attribute)).unwrap_or(0).saturating_mul(1024);
    let mut device = BlockDevice {
        name: name.to_string(),
        alias: text(&directory.join("dm/name")),
        major,
        minor,
        size_bytes: sectors(&directory.join("size")),
        driver: driver(&directory, name, major, numbers),
        numa_node: numa_node(&directory),
        link: function.hops.first().map(|hop| hop.link.clone()),
        hops: function.hops,
        msix_vectors: function.config.msix_vectors,
        config_cut: function.config.cut,
        iommu: function.iommu,
        vectors: function.vectors,
        root_complex: place.as_ref().and_then(|place| place.root_complex.clone()),
        pci_address: place.map(|place| place.address),
        logical_block_bytes: number(&queue.join("logical_block_size")).unwrap_or(0),
        physical_block_bytes: number(&queue.join("physical_block_size")).unwrap_or(0),
        rotational: flag(&queue.join("rotational")),
        read_ahead_bytes: kibibytes("read_ahead_kb"),
        max_request_bytes: kibibytes("max_sectors_kb"),
        max_hw_request_bytes: kibibytes("max_hw_sectors_kb"),
        rq_affinity: number(&queue.join("rq_affinity")),
        nomerges: number(&queue.join("nomerges")),
        iostats: flag(&queue.join("iostats")),
        write_cache: text(&queue.join("write_cache")),
        writeback_throttle_us: number(&queue.join("wbt_lat_usec")),
        request_based: directory.join("mq").is_dir(),
        hidden: flag(&directory.join("hidden")).unwrap_or(false),
        backing_file: backing_file(&directory),
        partitions: partitions(&directory),
        ..BlockDevice::default()
    };
    let is_told = |path: &Path| number::<u64>(path).is_some();
    let zeros = [("size", directory.join("size")), ("read_ahead_kb", queue.join("read_ahead_kb"))];
    device.untold = zeros.iter().filter(|(_, path)| !is_told(path)).map(|(name, _)| (*name).into()).collect();
    identify(&directory, &mut device);
    if device.request_based {
        // Bio-based devices have both files on some kernels, without a meaning.
        device.requests = number(&queue.join("nr_requests"));
        let line = text(&queue.join("scheduler")).unwrap_or_default();
        device.scheduler = bracketed(&line).map(str::to_string);
        device.schedulers =
            line.split_whitespace().map(|word| word.trim_matches(['[', ']']).to_string()).collect();
        device.queues = queues(&directory.join("mq"), device.driver.as_deref() == Some("nvme"));
        device.poll_queues = poll_queues(root, &directory, &device);
        device.read_queues = read_queues(root, &device);
    }
    device
}

fn sectors(path: &Path) -> u64 {
    number::<u64>(path).unwrap_or(0).saturating_mul(SECTOR)
}

/// Reads model, serial number and firmware from the file where each bus keeps them.
fn identify(directory: &Path, device: &mut BlockDevice) {
    let parent = directory.join("device");
    let first = |names: &[&str]| names.iter().find_map(|name| text(&parent.join(name)));
    device.model = first(&["model", "name"]);
    // SCSI has the maker in a separate file; libata puts its own name there.
    let vendor = text(&parent.join("vendor")).filter(|vendor| vendor != "ATA" && !vendor.starts_with("0x"));
    if let (Some(model), Some(vendor)) = (&device.model, vendor) {
        device.model = Some(format!("{vendor} {model}"));
    }
    device.serial =
        text(&directory.join("serial")).or_else(|| first(&["serial"])).or_else(|| scsi_serial(&parent));
    device.firmware = first(&["firmware_rev", "rev", "fwrev"]);
}

/// Reads SCSI's unit serial number page: 4 bytes of header, then text.
fn scsi_serial(parent: &Path) -> Option<String> {
    let page = fs::read(parent.join("vpd_pg80")).ok()?;
    let serial = String::from_utf8_lossy(page.get(4..)?).trim_matches([' ', '\0']).to_string();
    (!serial.is_empty()).then_some(serial)
}

/// The bound driver of the device or of the controller above it. Virtual devices have no parent: their name gives the
/// driver.
fn driver(directory: &Path, name: &str, major: u32, numbers: &Numbers) -> Option<String> {
    let bound = ["device/driver", "device/device/driver"];
    if let Some(driver) = bound.iter().find_map(|link| link_name(&directory.join(link))) {
        return Some(driver);
    }
    let known = match name.trim_end_matches(|c: char| c.is_ascii_digit()) {
        "dm-" => "dm",
        "md" | "md_d" => "md",
        "loop" => "loop",
        "zram" => "zram",
        "ram" => "brd",
        "nullb" => "null_blk",
        "nbd" => "nbd",
        "ublkb" => "ublk_drv",
        _ if layers::nvme_name(name).is_some() => "nvme",
        // An array can have any name (`md_data`), and so can a null_blk device.
        _ if directory.join("md").is_dir() => "md",
        _ => numbers.driver(major)?,
    };
    Some(known.to_string())
}

/// The `numa_node` of the nearest ancestor that has one; -1 is none.
fn numa_node(directory: &Path) -> Option<u32> {
    let value = directory.ancestors().find_map(|path| number::<i64>(&path.join("numa_node")))?;
    u32::try_from(value).ok()
}

fn queues(directory: &Path, nvme: bool) -> Vec<HardwareQueue> {
    let queue = |name: &String| {
        let queue: u32 = name.parse().ok()?;
        let path = directory.join(name);
        Some(HardwareQueue {
            queue,
            qid: if nvme { queue.checked_add(1) } else { None },
            cpus: text(&path.join("cpu_list")).and_then(|value| list(&value)).unwrap_or_default(),
            tags: number(&path.join("nr_tags")).unwrap_or(0),
            reserved_tags: number(&path.join("nr_reserved_tags")).unwrap_or(0),
        })
    };
    names(directory).iter().filter_map(queue).collect()
}

/// The number of hardware contexts that are poll queues.
///
/// `queue/io_poll` 0 means none. For NVMe, a context without a vector of its own is a poll queue, if the vectors could
/// be read. virtio-blk uses its module parameter, up to its number of queues.
fn poll_queues(root: &Path, directory: &Path, device: &BlockDevice) -> Option<u32> {
    if !flag(&directory.join("queue/io_poll"))? {
        return Some(0);
    }
    let queues = device.queues.len() as u32;
    match device.driver.as_deref()? {
        "nvme" => {
            let interrupts = device.vectors.iter().filter(|vector| vector.queue.is_some()).count() as u32;
            if interrupts == 0 { None } else { queues.checked_sub(interrupts) }
        }
        "virtio_blk" => {
            let wanted: u32 = number(&root.join("sys/module/virtio_blk/parameters/poll_queues"))?;
            Some(wanted.min(queues.saturating_sub(1)))
        }
        _ => None,
    }
}

/// The number of hardware contexts that take reads only. The NVMe driver creates them if `write_queues` limits how many
/// of the queues with an interrupt take the other operations.
fn read_queues(root: &Path, device: &BlockDevice) -> Option<u32> {
    if device.driver.as_deref()? != "nvme" {
        return Some(0);
    }
    let wanted: u32 = number(&root.join("sys/module/nvme/parameters/write_queues"))?;
    let interrupts = (device.queues.len() as u32).checked_sub(device.poll_queues?)?;
    Some(match interrupts {
        0 | 1 => 0,
        _ if wanted == 0 => 0,
        _ => interrupts.saturating_sub(wanted).max(1),
    })
}

/// The file of a loop device. Not trimmed as other attributes are: a path may end in a blank.
fn backing_file(directory: &Path) -> Option<String> {
    let path = file(&directory.join("loop/backing_file")).ok()?;
    let path = path.strip_suffix('\n').unwrap_or(&path);
    (!path.is_empty()).then(|| path.to_string())
}

fn partitions(directory: &Path) -> Vec<Partition> {
    let partition = |name: String| {
        let path: PathBuf = directory.join(&name);
        if !path.join("partition").is_file() {
            return None;
        }
        let (major, minor) =
            text(&path.join("dev")).and_then(|value| device_number(&value)).unwrap_or_default();
        Some(Partition {
            name,
            major,
            minor,
            start_bytes: sectors(&path.join("start")),
            size_bytes: sectors(&path.join("size")),
            ..Partition::default()
        })
    };
    names(directory).into_iter().filter_map(partition).collect()
}
