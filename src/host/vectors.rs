//! Reads the interrupt vectors of a PCI function, and the queue that each one serves.

use std::path::Path;

use super::Vector;
use super::attribute::{list, names, text};

/// The MSI and MSI-X vectors in `msi_irqs/` of a function, by number. Empty for a function with a pin interrupt.
pub fn vectors(root: &Path, function: &Path) -> Vec<Vector> {
    let numbers = names(&function.join("msi_irqs"));
    numbers.iter().filter_map(|number| Some(vector(root, number.parse().ok()?))).collect()
}

fn vector(root: &Path, irq: u32) -> Vector {
    let name = text(&root.join(format!("sys/kernel/irq/{irq}/actions")));
    let cpus = |name: &str| {
        let value = text(&root.join(format!("proc/irq/{irq}")).join(name));
        value.and_then(|value| list(&value)).unwrap_or_default()
    };
    // If there is a single vector, the admin queue shares it with the first I/O queue: `nvme0q0,nvme0q1`.
    let qid = name.as_deref().and_then(|names| names.split(',').filter_map(nvme_qid).max());
    let queue = match qid {
        // The admin queue is not a hardware context of a disk.
        Some(qid) => qid.checked_sub(1),
        None => name.as_deref().and_then(virtio_queue),
    };
    Vector {
        irq,
        queue,
        qid,
        cpus: cpus("effective_affinity_list"),
        allowed: cpus("smp_affinity_list"),
        name,
    }
}

/// `nvme0q3` serves queue id 3.
fn nvme_qid(name: &str) -> Option<u32> {
    let (controller, qid) = name.strip_prefix("nvme")?.split_once('q')?;
    controller.parse::<u32>().ok()?;
    qid.parse().ok()
}

/// `virtio1-req.0` serves hardware context 0.
fn virtio_queue(name: &str) -> Option<u32> {
    name.strip_prefix("virtio")?.split_once("-req.")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drivers_name_the_queue_in_the_action() {
        assert_eq!((nvme_qid("nvme0q0"), nvme_qid("nvme12q33")), (Some(0), Some(33)));
        assert_eq!((nvme_qid("nvme0"), nvme_qid("nvmeq1"), nvme_qid("eth0q1")), (None, None, None));
        assert_eq!((virtio_queue("virtio1-req.2"), virtio_queue("virtio1-config")), (Some(2), None));
    }
}
