//! Numbers that several rules report, each with its key and its label.

use crate::findings::Number;

pub const CARRIED_BYTES_PER_SECOND: Number =
    Number::new("carried_bytes_per_second", "bytes per second over the link, in one direction");
pub const CEILING_SHARE_PERCENT: Number =
    Number::new("ceiling_share_percent", "share of the link's capacity");
pub const COMPLETIONS_PER_INTERRUPT_P50_RATIO: Number =
    Number::new("completions_per_interrupt_p50_ratio", "median completions per interrupt");
pub const DEVICE_IOS: Number = Number::new("device_ios", "I/Os of the device");
pub const DEVICE_P50_TO_MIN_RATIO: Number =
    Number::new("device_p50_to_min_ratio", "device time, median / minimum");
pub const DEVICE_P99_NS: Number = Number::new("device_p99_ns", "99th percentile of the device stage");
pub const DEVICE_SHARE_PERCENT: Number =
    Number::new("device_share_percent", "device stage's share of the I/O");
pub const DEVICES: Number = Number::new("devices", "devices");
pub const IN_DEVICE_IOS: Number = Number::new("in_device_ios", "I/Os in the device");
pub const INTERRUPT_CPU_PERCENT: Number =
    Number::new("interrupt_cpu_percent", "interrupts' share of one CPU");
pub const INTERRUPT_PER_CPU_PERCENT: Number =
    Number::new("interrupt_per_cpu_percent", "interrupts' share of a completing CPU");
pub const IO_MEAN_BYTES: Number = Number::new("io_mean_bytes", "mean size of an I/O");
pub const IOS: Number = Number::new("ios", "I/Os");
pub const IOS_PER_INTERRUPT_RATIO: Number = Number::new("ios_per_interrupt_ratio", "I/Os per interrupt");
pub const IOS_PER_SECOND: Number = Number::new("ios_per_second", "I/Os per second");
pub const LANES: Number = Number::new("lanes", "lanes");
pub const MACHINE_BUSY_PERCENT: Number = Number::new("machine_busy_percent", "busy share of all CPUs");
pub const OPERATIONS: Number = Number::new("operations", "operations");
pub const POLL_QUEUES: Number = Number::new("poll_queues", "poll queues");
pub const QUEUE_MEAN_NS: Number = Number::new("queue_mean_ns", "mean of the queue stage");
pub const QUEUE_SHARE_PERCENT: Number = Number::new("queue_share_percent", "queue stage's share of the I/O");
pub const RATE_VARIATION_PERCENT: Number = Number::new("rate_variation_percent", "variation of the rate");
pub const RAW_BYTES_PER_SECOND: Number =
    Number::new("raw_bytes_per_second", "line rate, in bytes per second");
pub const READ_BYTES_PER_SECOND: Number = Number::new("read_bytes_per_second", "bytes read per second");
pub const SPEED_GTS: Number = Number::new("speed_gts", "speed of the link, in GT/s");
pub const SPIN_HIGH_PERCENT: Number = Number::new("spin_high_percent", "spinning, of all CPUs, at most");
pub const SPIN_LOW_PERCENT: Number = Number::new("spin_low_percent", "spinning, of all CPUs, at least");
pub const SYSTEM_NS_PER_OPERATION: Number =
    Number::new("system_ns_per_operation", "system time per operation");
pub const TAGS: Number = Number::new("tags", "tags");
pub const TIMED_INTERRUPTS: Number = Number::new("timed_interrupts", "timed interrupts");
pub const USER_NS_PER_OPERATION: Number = Number::new("user_ns_per_operation", "user time per operation");
pub const WORKER_CPU_PERCENT: Number = Number::new("worker_cpu_percent", "workers' share of their CPUs");
pub const WORKERS: Number = Number::new("workers", "workers");
