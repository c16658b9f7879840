//! A finding's numbers as people read them: the unit comes from the key.

use crate::findings::{Finding, Worth};
use crate::units::{bytes, count, short, significant, time};

/// How each number of the rules is called.
pub const LABELS: [(&str, &str); 154] = [
    ("after_celsius", "temperature after the load, in °C"),
    ("alone_bytes_per_second", "bytes per second of the drives alone"),
    ("asked_pages", "pages that read-ahead asked for"),
    ("before_celsius", "temperature before the load, in °C"),
    ("block_bytes", "block size"),
    ("busiest_cpu", "the CPU with the most interrupts"),
    ("busiest_share_percent", "that CPU's share of the device's interrupts"),
    ("busy_percent", "at most busy"),
    ("carried_bytes_per_second", "bytes per second over the link, in one direction"),
    ("ceiling_high_bytes_per_second", "bytes per second that the link can carry, at most"),
    ("ceiling_low_bytes_per_second", "bytes per second that the link can carry, at least"),
    ("ceiling_share_percent", "share of what the link can carry"),
    ("complete_mean_ns", "mean of the complete stage"),
    ("complete_share_percent", "complete stage's share of the operation"),
    ("completions_per_interrupt_p50_ratio", "completions per interrupt, in the middle"),
    ("contentions", "waits for the lock, at least"),
    ("critical_minutes", "minutes above the critical temperature"),
    ("depth_operations", "queue depth"),
    ("device_interrupts_per_second", "interrupts per second of the device"),
    ("device_ios", "I/Os of the device"),
    ("device_ios_per_operation_ratio", "I/Os of the device per operation"),
    ("device_mean_ns", "mean of the device stage"),
    ("device_node", "NUMA node of the device"),
    ("device_of_operation_percent", "device stage's share of the operation"),
    ("device_p50_ns", "median of the device stage"),
    ("device_p50_to_min_ratio", "median to minimum of the device stage"),
    ("device_p99_ns", "99th percentile of the device stage"),
    ("device_read_bytes", "bytes read from the device"),
    ("device_read_percent", "share of the returned bytes that the device read"),
    ("device_share_percent", "device stage's share of the I/O"),
    ("devices", "devices"),
    ("direct_reclaims", "reclaims by tasks that found no free memory"),
    ("drives", "drives"),
    ("even_share_percent", "even share of the device's interrupts"),
    ("flush_busy_percent", "time in which a flush is out"),
    ("flush_mean_ns", "mean of a flush or forced write"),
    ("flush_share_percent", "flushes' share of the time of all I/Os that write"),
    ("flushes", "flush commands"),
    ("forced_writes", "forced writes (FUA)"),
    ("foreign_bytes", "bytes that are not the load's"),
    ("foreign_ios", "I/Os that are not the load's"),
    ("foreign_percent", "share that is not the load's"),
    ("handler_mean_ns", "mean time in the interrupt handler"),
    ("handler_ns_per_io", "interrupt handler per I/O"),
    ("held_percent", "share of the operation outside the device"),
    ("host_percent", "share of completing in the latency"),
    ("in_block_layer_ios", "I/Os in the block layer"),
    ("in_device_ios", "I/Os in the device"),
    ("in_flight_operations", "operations in flight"),
    ("interrupt_cpu_percent", "interrupts' share of one CPU"),
    ("interrupt_hard_percent", "hard interrupts' share of that CPU"),
    ("interrupt_io_percent", "block I/O's share of the interrupts"),
    ("interrupt_ns_per_io", "interrupt time per I/O"),
    ("interrupt_ns_per_operation", "interrupt time per operation"),
    ("interrupt_per_cpu_percent", "interrupts' share of a completing CPU"),
    ("interrupt_soft_percent", "soft interrupts' share of that CPU"),
    ("interrupts_per_second", "the device's interrupts per second on that CPU"),
    ("io_mean_bytes", "mean size of an I/O"),
    ("io_mean_ns", "mean time of an I/O"),
    ("ios", "I/Os"),
    ("ios_per_interrupt_ratio", "I/Os per interrupt"),
    ("ios_per_operation_ratio", "I/Os per operation"),
    ("ios_per_second", "I/Os per second"),
    ("kthread_ns_per_operation", "kernel thread time per operation"),
    ("lanes", "lanes"),
    ("latency_mean_ns", "mean latency"),
    ("layer_mean_ns", "mean time in the layer"),
    ("layer_percent", "layer's share of the I/O"),
    ("layers", "devices below"),
    ("limit_bytes_per_second", "limit of bytes per second"),
    ("limit_ios_per_second", "limit of I/Os per second"),
    ("lower_mean_ns", "mean time below the layer"),
    ("machine_busy_percent", "busy share of all CPUs"),
    ("max_hw_request_bytes", "largest request that the hardware takes"),
    ("max_request_bytes", "largest request"),
    ("max_wait_ns", "longest wait for the lock"),
    ("measured_bytes_per_second", "bytes per second"),
    ("memcg_reclaims", "reclaims by tasks whose memory cgroup was at its limit"),
    ("namespace_capacity_bytes", "capacity of the namespace"),
    ("namespace_used_bytes", "in use of the namespace"),
    ("nearest_link_percent", "share of its ceiling of the fullest link"),
    ("nodes", "NUMA nodes"),
    ("nr_requests", "nr_requests"),
    ("onset_after_ns", "began after, from the start of the window"),
    ("onset_ns", "began before, from the start of the window"),
    ("operation_bytes", "bytes that the operations returned"),
    ("operations", "operations"),
    ("others_ios", "I/Os of the others, in the middle"),
    ("others_p50_ns", "median of the device stage of the others"),
    ("others_p99_ns", "99th percentile of the device stage of the others"),
    ("p50_ratio", "median to that of the others"),
    ("p99_ratio", "99th percentile to that of the others"),
    ("payload_bytes", "payload of a packet"),
    ("poll_queues", "poll queues"),
    ("possible_lanes", "lanes that both ends have"),
    ("possible_speed_gts", "speed that both ends can do, in GT/s"),
    ("present_ios", "I/Os that want a request"),
    ("queue_mean_ns", "mean of the queue stage"),
    ("queue_share_percent", "queue stage's share of the I/O"),
    ("rate_to_limit_ratio", "rate to limit"),
    ("raw_bytes_per_second", "line rate, in bytes per second"),
    ("read_bytes_per_second", "bytes read per second"),
    ("reap_mean_ns", "mean of the reap stage"),
    ("reclaim_share_percent", "share of the threads at work that reclaim"),
    ("reclaimed_pages_per_second", "pages per second that reclaim looks at, or takes"),
    ("remote_ios", "I/Os from other NUMA nodes"),
    ("remote_percent", "share from other NUMA nodes"),
    ("requests", "requests"),
    ("sampled_blocks", "sampled blocks"),
    ("scheduler_cpu_percent", "scheduler's share of the busy CPU time"),
    ("slowed_percent", "share of the time in a thermal level"),
    ("speed_gts", "speed of the link, in GT/s"),
    ("spin_high_percent", "spinning, of all CPUs, at most"),
    ("spin_low_percent", "spinning, of all CPUs, at least"),
    ("spin_percent", "spinning for the lock, of all CPUs, at least"),
    ("splits", "splits"),
    ("system_ns_per_operation", "system time per operation"),
    ("t1_entries", "entries into the thermal level T1"),
    ("t1_seconds", "seconds in the thermal level T1"),
    ("t2_entries", "entries into the thermal level T2"),
    ("t2_seconds", "seconds in the thermal level T2"),
    ("tags", "tags"),
    ("threads_in_reclaim", "threads in reclaim at a time"),
    ("threads_waiting", "threads that wait for the lock at a time"),
    ("timed_interrupts", "interrupts that were timed"),
    ("together_bytes_per_second", "bytes per second of the drives together"),
    ("together_percent", "share of the sum of the drives alone"),
    ("twice_the_depth_percent", "IOPS gained by twice the depth"),
    ("under_way_percent", "operations at most under way"),
    ("unpolled_ios", "I/Os that were not polled"),
    ("unpolled_percent", "share of the I/Os that were not polled"),
    ("unused_pages", "pages that were read ahead for nobody, about"),
    ("unused_percent", "share of read-ahead that was for nobody, about"),
    ("upper_mean_ns", "mean time of an I/O above the layer"),
    ("user_ns_per_operation", "user time per operation"),
    ("wait_ns", "time of all waits for the lock, at least"),
    ("waiting_ios", "I/Os that wait for a request"),
    ("wake_mean_ns", "mean of the wake-up"),
    ("warning_minutes", "minutes above the warning temperature"),
    ("worker_cpu_percent", "workers' share of their CPUs"),
    ("worker_cpus", "CPUs that io_uring's workers use"),
    ("worker_share_percent", "workers' share of the threads at work"),
    ("worker_threads", "io_uring's worker threads"),
    ("worker_user_percent", "user time's share of the workers' CPU time"),
    ("workers", "workers"),
    ("workers_running", "workers that run at a time"),
    ("workers_saturated", "saturated workers"),
    ("workers_waiting", "workers that wait at a time"),
    ("write_queue_mean_ns", "mean of the queue stage of writes"),
    ("write_queue_share_percent", "queue stage's share of writes"),
    ("writeback_throttle_ns", "target of write-back throttling"),
    ("written_bytes_per_second", "bytes written per second"),
    ("zero_blocks", "blocks of nothing but zeros"),
    ("zero_percent", "share of blocks of nothing but zeros"),
];

/// Label and text of one number: `("device stage's share of the I/O", "94.8 %")`.
pub fn labelled(key: &str, value: f64) -> (String, String) {
    let label =
        LABELS.iter().find(|(known, _)| *known == key).map_or_else(|| words(key), |l| l.1.to_string());
    // A unit may stand inside a key: `user_ns_per_operation`.
    type Show = fn(f64) -> String;
    let units: [(&str, Show); 5] = [
        ("_ns", |v| time(v.max(0.0) as u64)),
        ("_bytes", bytes),
        ("_percent", |v| format!("{} %", significant(v, 3))),
        ("_per_second", short),
        ("_ratio", |v| significant(v, 3)),
    ];
    let show = units.iter().find(|(unit, _)| key.ends_with(unit) || key.contains(&format!("{unit}_per_")));
    (label, show.map_or_else(|| amount(value), |(_, show)| show(value)))
}

/// All of a finding's numbers, in the order of their keys.
pub fn all(finding: &Finding) -> Vec<(String, String)> {
    finding.numbers.iter().map(|(key, value)| labelled(key, *value)).collect()
}

/// What a fix could be worth, as a range.
pub fn worth(worth: &Worth) -> String {
    let (low, high) = (significant(worth.low, 2), significant(worth.high, 2));
    let range = if low == high { low } else { format!("{low} to {high}") };
    match worth.metric.as_str() {
        "iops_ratio" => format!("operations per second × {range}"),
        other => format!("{} {range}", words(other.trim_end_matches("_ratio"))),
    }
}

fn amount(value: f64) -> String {
    if value.fract() == 0.0 && value >= 0.0 { count(value as u64) } else { significant(value, 3) }
}

fn words(key: &str) -> String {
    let spell = |word| match word {
        "ios" => "I/Os",
        "io" => "I/O",
        "cpu" => "CPU",
        word => word,
    };
    key.split('_').map(spell).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_carry_their_units() {
        let show = |key, value| {
            let (label, text) = labelled(key, value);
            format!("{label}: {text}")
        };
        assert_eq!(show("device_share_percent", 94.83), "device stage's share of the I/O: 94.8 %");
        assert_eq!(show("user_ns_per_operation", 750.0), "user time per operation: 750 ns");
        assert_eq!(show("ios_per_second", 15_000.0), "I/Os per second: 15.0k");
        assert_eq!(show("io_mean_bytes", 131_072.0), "mean size of an I/O: 128 KiB");
        assert_eq!(show("in_device_ios", 30.4), "I/Os in the device: 30.4");
        assert_eq!(show("device_p50_to_min_ratio", 5.0), "median to minimum of the device stage: 5.00");
        assert_eq!(show("tags", 256.0), "tags: 256");
        assert_eq!(show("new_cpu_ios_ratio", 2.0), "new CPU I/Os ratio: 2.00");
    }

    #[test]
    fn a_worth_is_a_range() {
        let text = |metric: &str, low, high| worth(&Worth { metric: metric.to_string(), low, high });
        assert_eq!(text("iops_ratio", 1.0, 2.2), "operations per second × 1.0 to 2.2");
        assert_eq!(text("ios_per_operation_ratio", 1.0, 8.0), "I/Os per operation 1.0 to 8.0");
    }
}
