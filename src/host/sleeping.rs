//! Unwinds the user stack of a sleeping thread from outside.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A thread, and its registers when it entered the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SleepingThread {
    pub pid: u32,
    pub tid: u32,
    pub ip: u64,
    pub sp: u64,
    pub bp: u64,
    /// Number of its context switches, voluntary or not.
    pub switches: u64,
}

impl SleepingThread {
    /// The user-mode return addresses, with the address where the thread entered the kernel first; at most `most`.
    /// Follows frame pointers as the kernel does. None if this process may not read the thread's memory, or if the
    /// thread has run since.
    ///
    /// `root`: the directory that contains `proc`.
    pub fn frames(&self, root: &Path, most: usize) -> Option<Vec<u64>> {
        let folder = root.join(format!("proc/{}/task/{}", self.pid, self.tid));
        // Only the stack's own memory is read: other addresses may belong to a file or a device, which a read would
        // disturb.
        let stack = self.sp..self.sp.saturating_add(STACK);
        let memory = File::open(folder.join("mem")).ok()?;
        let word = |bytes: &[u8]| bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        let mut frames = vec![self.ip];
        let mut bp = self.bp;
        while frames.len() < most {
            let mut frame = [0; 16];
            // Code without frame pointers uses the register for other data.
            if !stack.contains(&bp) || memory.read_exact_at(&mut frame, bp).is_err() {
                break;
            }
            let (next, back) = (word(&frame), word(&frame[8..]));
            frames.push(back);
            // The frame of a caller lies at a higher address.
            if next <= bp {
                break;
            }
            bp = next;
        }
        // The stack is valid only if the thread did not run during the reads.
        (self.is_there(folder) == Some(true)).then_some(frames)
    }

    fn is_there(&self, folder: PathBuf) -> Option<bool> {
        let text = |name: &str| fs::read_to_string(folder.join(name)).ok();
        let (sp, ip) = place(&text("syscall")?)?;
        Some((sp, ip) == (self.sp, self.ip) && switches(&text("status")?)? == self.switches)
    }
}

/// How far above the stack pointer frames are searched: the default limit of a thread's stack.
const STACK: u64 = 8 << 20;

/// The number of context switches in `/proc/PID/task/TID/status`.
fn switches(text: &str) -> Option<u64> {
    let number =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse::<u64>().ok();
    number("voluntary_ctxt_switches:")?.checked_add(number("nonvoluntary_ctxt_switches:")?)
}

/// Stack pointer and return address of a line of `/proc/PID/task/TID/syscall`: its last two words.
fn place(text: &str) -> Option<(u64, u64)> {
    let mut words = text.split_ascii_whitespace().rev();
    let mut word = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let ip = word()?;
    Some((word()?, ip))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_thread_is_the_end_of_its_line() {
        let text = "230 0x0 0x0 0x7ffc0 0x0 0x0 0x0 0x7ffc1e58 0x7f3a01\n";
        assert_eq!(place(text), Some((0x7ffc_1e58, 0x7f3a01)));
        assert_eq!(place("-1 0x7ffc1e58 0x7f3a01\n"), Some((0x7ffc_1e58, 0x7f3a01)));
        for bad in ["", "running\n", "-1 0x1", "5 12 13"] {
            assert_eq!(place(bad), None, "{bad}");
        }
    }

    /// Files stand in for `/proc`: two frames, of which the second is the last.
    #[test]
    fn frames_are_followed_until_they_end() {
        let root = std::env::temp_dir().join(format!("biopsy-sleeping-{}", std::process::id()));
        let folder = root.join("proc/7/task/8");
        fs::create_dir_all(&folder).unwrap();
        let words = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        fs::write(folder.join("mem"), words(&[0, 0, 32, 0xa1, 0, 0xa2])).unwrap();
        let status = |voluntary| {
            let text =
                format!("Name:\tx\nvoluntary_ctxt_switches:\t{voluntary}\nnonvoluntary_ctxt_switches:\t2\n");
            fs::write(folder.join("status"), text).unwrap();
        };
        status(5);
        let at = SleepingThread { pid: 7, tid: 8, ip: 0xa0, sp: 0x10, bp: 16, switches: 7 };
        let frames = |at: SleepingThread, line: &str, most| {
            fs::write(folder.join("syscall"), line).unwrap();
            at.frames(&root, most)
        };
        assert_eq!(frames(at, "1 0x0 0x10 0xa0", 127), Some(vec![0xa0, 0xa1, 0xa2]));
        assert_eq!(frames(at, "1 0x0 0x10 0xa0", 2), Some(vec![0xa0, 0xa1]));
        assert_eq!(frames(SleepingThread { bp: 1 << 40, ..at }, "1 0x0 0x10 0xa0", 127), Some(vec![0xa0]));
        assert_eq!(frames(at, "1 0x0 0x18 0xa0", 127), None, "another place of its stack");
        assert_eq!(frames(at, "running", 127), None);
        assert_eq!(frames(SleepingThread { tid: 9, ..at }, "1 0x0 0x10 0xa0", 127), None, "no such thread");
        // The address is outside the stack.
        assert_eq!(frames(SleepingThread { bp: 8, ..at }, "1 0x0 0x10 0xa0", 127), Some(vec![0xa0]));
        status(6);
        assert_eq!(frames(at, "1 0x0 0x10 0xa0", 127), None, "it has been elsewhere meanwhile");
        fs::remove_dir_all(&root).unwrap();
    }
}
