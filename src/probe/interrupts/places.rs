//! Assigns vectors to queues, as far as user space can, and the indexes by which the programs know both.

use std::collections::BTreeMap;

use crate::host::{BlockDevice, Vector};
use crate::wire::WireDevice;
use crate::wire::interrupts::{
    InterruptSource, QUEUE_BY_NAME, QUEUE_BY_REAP, QUEUE_POLLED, QUEUE_UNKNOWN, WireQueue,
};

/// The tables for a set of devices.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Places {
    /// In index order: vectors, then poll queues.
    pub all: Vec<InterruptSource>,
    /// In the order of the devices.
    pub devices: Vec<WireDevice>,
    pub queues: Vec<WireQueue>,
}

impl Places {
    /// `sees_reaps`: the NVMe driver's event exists, so that names of vectors are not needed.
    pub fn new(devices: &[&BlockDevice], sees_reaps: bool) -> Self {
        let mut places = Self::default();
        for device in devices {
            for vector in &device.vectors {
                places.add(InterruptSource::Vector(vector.irq));
            }
        }
        // Namespaces of one controller share its poll queues as they share its vectors.
        let mut polls: BTreeMap<(&str, u32), u32> = BTreeMap::new();
        for (number, device) in (0..).zip(devices) {
            let hw_queues = device.queues.iter().map(|queue| queue.queue + 1).max().unwrap_or(1);
            let polled = device.poll_queues.unwrap_or(0).min(hw_queues);
            let function = device.pci_address.as_deref().unwrap_or(&device.name);
            places.devices.push(WireDevice {
                major: device.major,
                first_minor: device.minor,
                // Like slots in struct owner: one per queue.
                slot_base: places.queues.len() as u32,
                slots_per_queue: 1,
                hw_queues,
                ..WireDevice::default()
            });
            for queue in 0..hw_queues {
                let mut row = WireQueue { single: (hw_queues == 1).into(), ..WireQueue::default() };
                let is_polled = queue >= hw_queues - polled;
                let vector = vector_of(device, queue).filter(|_| !is_polled);
                (row.kind, row.place) = if is_polled && device.is_nvme() && sees_reaps {
                    let place = *polls
                        .entry((function, queue))
                        .or_insert_with(|| places.add(InterruptSource::Poll(number, queue)));
                    (QUEUE_POLLED, place)
                } else if device.is_nvme() && sees_reaps {
                    (QUEUE_BY_REAP, 0)
                } else if let Some(vector) = vector {
                    (QUEUE_BY_NAME, places.add(InterruptSource::Vector(vector.irq)))
                } else {
                    (QUEUE_UNKNOWN, 0)
                };
                places.queues.push(row);
            }
        }
        places
    }

    /// The index of an entry + 1; adds the entry if it is new.
    fn add(&mut self, place: InterruptSource) -> u32 {
        let known = self.all.iter().position(|known| *known == place);
        let at = known.unwrap_or_else(|| {
            self.all.push(place);
            self.all.len() - 1
        });
        at as u32 + 1
    }

    /// Interrupt numbers, with index + 1.
    pub fn numbers(&self) -> impl Iterator<Item = (u32, u32)> {
        self.all.iter().zip(1..).filter_map(|(place, at)| match place {
            InterruptSource::Vector(irq) => Some((*irq, at)),
            InterruptSource::Poll(..) => None,
        })
    }
}

/// The vector of a queue, by the name that the driver gave it; the only vector of a function serves all queues.
fn vector_of(device: &BlockDevice, queue: u32) -> Option<&Vector> {
    let named = device.vectors.iter().find(|vector| vector.queue == Some(queue));
    match device.vectors.as_slice() {
        [only] => Some(only),
        _ => named,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HardwareQueue;

    fn device(name: &str, driver: &str, queues: u32, vectors: &[(u32, Option<u32>)]) -> BlockDevice {
        BlockDevice {
            name: name.into(),
            driver: Some(driver.into()),
            pci_address: Some("0000:00:04.0".into()),
            queues: (0..queues).map(|queue| HardwareQueue { queue, ..HardwareQueue::default() }).collect(),
            vectors: vectors
                .iter()
                .map(|(irq, queue)| Vector { irq: *irq, queue: *queue, ..Vector::default() })
                .collect(),
            ..BlockDevice::default()
        }
    }

    #[test]
    fn queues_of_nvme_are_known_by_what_the_driver_reaps() {
        let mut first = device("nvme0n1", "nvme", 3, &[(24, None), (25, Some(0)), (26, Some(1))]);
        first.poll_queues = Some(1);
        let second = BlockDevice { name: "nvme0n2".into(), minor: 7, ..first.clone() };
        let places = Places::new(&[&first, &second], true);
        let kinds: Vec<_> = places.queues.iter().map(|q| (q.kind, q.place)).collect();
        let each = [(QUEUE_BY_REAP, 0), (QUEUE_BY_REAP, 0), (QUEUE_POLLED, 4)];
        assert_eq!(kinds, [each, each].concat(), "namespaces share vectors and poll queues");
        assert_eq!(
            places.all,
            [
                InterruptSource::Vector(24),
                InterruptSource::Vector(25),
                InterruptSource::Vector(26),
                InterruptSource::Poll(0, 2)
            ]
        );
        assert_eq!(places.devices.iter().map(|d| d.slot_base).collect::<Vec<_>>(), [0, 3]);
        assert_eq!(places.numbers().collect::<Vec<_>>(), [(24, 1), (25, 2), (26, 3)]);
    }

    #[test]
    fn other_drivers_are_known_by_the_names_of_their_vectors() {
        let virtio = device("vda", "virtio_blk", 2, &[(30, None), (31, Some(0)), (32, Some(1))]);
        let unnamed = device("sda", "sd", 1, &[(40, None)]);
        let none = device("loop0", "loop", 1, &[]);
        let places = Places::new(&[&virtio, &unnamed, &none], true);
        let kinds: Vec<_> = places.queues.iter().map(|q| (q.kind, q.place, q.single)).collect();
        assert_eq!(
            kinds,
            [(QUEUE_BY_NAME, 2, 0), (QUEUE_BY_NAME, 3, 0), (QUEUE_BY_NAME, 4, 1), (QUEUE_UNKNOWN, 0, 1)]
        );
    }

    #[test]
    fn without_the_drivers_event_names_have_to_do() {
        let drive = device("nvme0n1", "nvme", 2, &[(24, None), (25, Some(0)), (26, Some(1))]);
        let places = Places::new(&[&drive], false);
        let kinds: Vec<_> = places.queues.iter().map(|q| (q.kind, q.place)).collect();
        assert_eq!(kinds, [(QUEUE_BY_NAME, 2), (QUEUE_BY_NAME, 3)]);
    }
}
