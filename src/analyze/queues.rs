//! The hardware queues of a device.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::stage::Stage;
use crate::hist::Histogram;
use crate::host::BlockDevice;
use crate::merge::{merge, row};

/// One hardware queue.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct QueueLatency {
    /// Number of the hardware context, as in `/sys/block/D/mq/N`.
    pub queue: u32,
    /// NVMe queue id, `queue` + 1.
    pub qid: Option<u32>,
    /// `default`, `read` or `poll`.
    #[serde(rename = "type")]
    pub kind: String,
    /// CPU list as the kernel prints it.
    pub cpus: String,
    pub ios: u64,
    pub request_stages: BTreeMap<Stage, Histogram>,
}

merge!(QueueLatency { first: queue qid kind cpus; add: ios request_stages; });
row!(QueueLatency, u32, |queue| queue.queue);

/// The facts of a queue in sysfs.
pub(super) fn queue_facts(facts: Option<&BlockDevice>, queue: u32) -> QueueLatency {
    let known = facts.and_then(|d| d.queues.iter().find(|q| q.queue == queue));
    // The NVMe driver maps its poll queues last and its read queues before them; sysfs does not say which they are.
    let kind = facts.map_or("default", |d| {
        let all = d.queues.len() as u32;
        let interrupts = all - d.poll_queues.filter(|n| *n < all).unwrap_or(0);
        match d.read_queues {
            _ if queue >= interrupts => "poll",
            Some(n) if queue >= interrupts.saturating_sub(n) => "read",
            _ => "default",
        }
    });
    QueueLatency {
        queue,
        qid: known.and_then(|q| q.qid),
        kind: kind.to_string(),
        cpus: known.map(|q| cpu_list(&q.cpus)).unwrap_or_default(),
        ..QueueLatency::default()
    }
}

/// `0-3,8`, as the kernel prints lists.
fn cpu_list(cpus: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &cpu in cpus {
        match runs.last_mut() {
            Some((_, end)) if *end + 1 == cpu => *end = cpu,
            _ => runs.push((cpu, cpu)),
        }
    }
    let text: Vec<String> =
        runs.iter().map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") }).collect();
    text.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::HardwareQueue;

    #[test]
    fn queues_lie_by_kind() {
        let mut device = BlockDevice { queues: vec![HardwareQueue::default(); 5], ..BlockDevice::default() };
        let kinds =
            |device: &BlockDevice| (0..5).map(|n| queue_facts(Some(device), n).kind).collect::<Vec<_>>();
        assert_eq!(kinds(&device), ["default"; 5]);
        (device.read_queues, device.poll_queues) = (Some(2), Some(1));
        assert_eq!(kinds(&device), ["default", "default", "read", "read", "poll"]);
        (device.read_queues, device.poll_queues) = (None, Some(5));
        assert_eq!(kinds(&device), ["default"; 5], "they cannot all be polled");
    }

    #[test]
    fn cpu_lists_are_the_kernels() {
        assert_eq!(cpu_list(&[0, 1, 2, 3, 8]), "0-3,8");
        assert_eq!(cpu_list(&[]), "");
    }
}
