//! Reads the memory maps of processes that appear in a probe's table, while they run, in a separate thread.

use std::collections::HashSet;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use libbpf_rs::{MapCore, MapHandle};

use super::process_events::ProcessEvents;
use crate::host::mapped::MappedFiles;
use crate::wire::process_events;

/// Search for new processes after every 5th drain of the kernel's records (100 ms). A process that exits earlier is
/// known only from these records.
const LOOK_EVERY: u32 = 5;

/// Follows the memory maps of processes. Dropping it ends its thread.
#[derive(Debug)]
pub struct ProcessMaps {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<MappedFiles>>,
}

/// Maps the key of a table element to its process and thread name.
pub type Whose = fn(&MapHandle, &[u8]) -> Option<(u32, [u8; 16])>;

impl ProcessMaps {
    /// Follows the processes that appear in this table, from now on.
    pub fn follow(processes: MapHandle, whose: Whose) -> Result<Self> {
        let (stop, stopped) = mpsc::channel::<()>();
        let mut known =
            ProcessMappings { process_events: ProcessEvents::open(), ..ProcessMappings::default() };
        let run = move || {
            let mut drains = 0;
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(ProcessEvents::DRAIN_EVERY) {
                drains += 1;
                if drains % LOOK_EVERY == 0 {
                    known.look(&processes, whose);
                } else {
                    known.process_events.drain();
                }
            }
            known.look(&processes, whose);
            // Catches an exec between the last wait and that lookup.
            known.process_events.look(&mut known.mapped, []);
            known.mapped
        };
        let thread = thread::Builder::new()
            .name("biopsy-maps".to_string())
            .spawn(run)
            .context("the thread that reads memory maps cannot be started")?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }

    /// The memory maps, by process.
    pub fn finish(mut self) -> MappedFiles {
        self.end()
    }

    fn end(&mut self) -> MappedFiles {
        drop(self.stop.take());
        self.thread.take().and_then(|thread| thread.join().ok()).unwrap_or_default()
    }
}

impl Drop for ProcessMaps {
    fn drop(&mut self) {
        let _unwanted = self.end();
    }
}

#[derive(Debug, Default)]
struct ProcessMappings {
    mapped: MappedFiles,
    process_events: ProcessEvents,
    keys: HashSet<Vec<u8>>,
    /// Under each of their names: a new name means that the process has called exec.
    seen: HashSet<(u32, [u8; 16])>,
}

impl ProcessMappings {
    fn look(&mut self, processes: &MapHandle, whose: Whose) {
        let mut new = Vec::new();
        for key in processes.keys() {
            if !self.keys.insert(key.clone()) {
                continue;
            }
            let Some((pid, comm)) = whose(processes, &key) else { continue };
            if self.seen.insert((pid, comm)) {
                new.push((pid, process_events::comm(&comm)));
            }
        }
        self.process_events.look(&mut self.mapped, new);
    }
}
