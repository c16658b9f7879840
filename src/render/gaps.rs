//! Names the gaps of a result in words; JSON has their keys.

use crate::envelope::Missing;

/// Words for each [`Missing::part`]. A key that is not listed is shown as it is.
const WORDS: &[(&str, &str)] = &[
    ("budget", "within the CPU budget"),
    ("cgroup", "cgroups of other controllers"),
    ("check", "check against /proc/interrupts"),
    ("command", "I/O of the command alone"),
    ("completions per interrupt", "completions per interrupt"),
    ("context_switches", "context switches"),
    ("cost", "cost"),
    ("cost.pagecache", "cost of the page cache probes"),
    ("cost.paths", "cost of sampling the LRU functions"),
    ("cost.spin", "cost of sampling the CPUs"),
    ("cpu", "CPU time"),
    ("cpu-clock", "CPU time of the counters"),
    ("cpu_time", "CPU time"),
    ("cycles", "cycles"),
    ("detail", "breakdown into parts"),
    ("device", "device that a thread waits for"),
    ("endio", "end of the callbacks"),
    ("errors", "errors"),
    ("experiment", "experiment"),
    ("file", "file names of direct I/O"),
    ("flush", "wait for a flush"),
    ("flush, passthrough", "flushes and passthrough commands"),
    ("functions", "system calls by their functions"),
    ("generator-stamps", "time stamps of the load generator"),
    ("holder", "lock holders"),
    ("in_iowait", "I/O waits"),
    ("instructions", "instructions"),
    ("interrupts", "interrupts"),
    ("kernel-symbols", "names of kernel functions"),
    ("kernel_ios", "check against the kernel's I/O counts"),
    ("kstack", "kernel stacks"),
    ("kswapd", "time of kswapd's runs"),
    ("latency", "latency"),
    ("layer", "time in the layer"),
    ("load", "load"),
    ("locks", "locks"),
    ("mutex, rwsem, rwlock and others", "mutex, rwsem, rwlock and others"),
    ("names", "names of locks and functions"),
    ("notification", "time outside the interrupt handlers"),
    ("on_cpu", "threads on a CPU"),
    ("open", "waits in progress at the start or end"),
    ("operations", "operations"),
    ("pagecache", "page cache"),
    (PATHS, "shares of LRU functions"),
    ("passthrough", "passthrough commands"),
    ("pending-bit waiters", "pending-bit waiters"),
    ("profile", "CPU profile"),
    ("queue", "run queue waits"),
    ("readahead", "read-ahead"),
    ("readahead.unused_pages", "unused read-ahead"),
    ("reclaims.kswapd.time", "time of kswapd's runs"),
    ("spin", "CPU time spent spinning"),
    ("spinlocks by test-and-set", "spinlocks by test-and-set"),
    ("stacks", "CPU stacks"),
    ("stalled-cycles-backend", "stalled cycles (back end)"),
    ("stalled-cycles-frontend", "stalled cycles (front end)"),
    ("started_before", "I/Os started before the run"),
    ("syscall", "system calls of other users"),
    ("system", "CPU time and rates of devices"),
    ("tags, queues, interrupts, locks", "tags, queues, interrupts and locks"),
    ("threads", "threads"),
    ("throttle", "throttling"),
    ("throttled", "sleeps in reclaim"),
    ("top", "activity of the machine"),
    ("trace", "trace of each I/O"),
    ("user", "user frames of stacks"),
    ("user-symbols", "names of user functions"),
    ("wakeups", "wake-ups"),
];

/// Followed by `: FUNCTION` if only some of them are missing.
const PATHS: &str = "paths";

/// The words for a part. None: it has none, as in a recording of a later version.
pub fn words(part: &str) -> Option<String> {
    let of = |key: &str| WORDS.iter().find(|(known, _)| *known == key).map(|(_, words)| *words);
    if let Some(words) = of(part) {
        return Some(words.to_string());
    }
    let (head, function) = part.split_once(": ").filter(|(head, _)| *head == PATHS)?;
    Some(format!("{} ({function})", of(head)?))
}

/// What a gap is about: `queue (throttling)`. None: it names no stage and no part. Not escaped.
pub fn name(missing: &Missing) -> Option<String> {
    let part = missing.part.as_deref().map(|part| words(part).unwrap_or_else(|| part.to_string()));
    match (missing.stage.as_deref(), part) {
        (Some(stage), Some(part)) => Some(format!("{stage} ({part})")),
        (Some(stage), None) => Some(stage.to_string()),
        (None, part) => part,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_has_words() {
        let of = |stage: Option<&str>, part: Option<&str>| {
            let text = |text: &str| text.to_string();
            name(&Missing { stage: stage.map(text), part: part.map(text), ..Missing::default() })
        };
        assert_eq!(of(None, None), None);
        assert_eq!(of(Some("reap"), None).as_deref(), Some("reap"));
        assert_eq!(of(Some("queue"), Some("throttle")).as_deref(), Some("queue (throttling)"));
        assert_eq!(of(None, Some("reclaims.kswapd.time")).as_deref(), Some("time of kswapd's runs"));
        let one = of(None, Some("paths: folio_add_lru"));
        assert_eq!(one.as_deref(), Some("shares of LRU functions (folio_add_lru)"));
        assert_eq!(of(None, Some("of_tomorrow")).as_deref(), Some("of_tomorrow"));
    }
}
