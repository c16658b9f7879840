//! Tests biopsy's probes on the running kernel, as root. The test runner depends on the name of the first module.

mod live;
#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "another test program uses the rest")]
mod support;

/// Tests that count only the I/O of their own device, process or cgroup. They run in parallel.
mod own_scope {
    mod cli;
    mod compare;
    mod errors;
    mod faults;
    mod findings;
    mod generator;
    mod groups;
    mod latency;
    mod layers;
    mod no_operation;
    mod operations;
    mod partition;
    mod parts;
    mod process_events;
    mod record;
    mod refused_calls;
    mod rights;
    mod trace;
}

/// Tests that count the work of every process, or compare a time with a clock. Each runs alone.
mod whole_machine {
    mod blocked;
    mod flame;
    mod flame_who;
    mod interrupts;
    mod keys;
    mod locks;
    mod pagecache;
    mod perf;
    mod recorded_diagnosis;
    mod self_test;
    mod stacks;
    mod threads;
}
