//! Decodes stacks of lock waits, and the threads that waited.

use std::collections::BTreeMap;

use crate::wire::Record;
use crate::wire::blocked::NO_USER;
use crate::wire::stacks::{MAX_FRAMES, Sample};
use crate::wire::{DamagedRecord, task_name};

pub use crate::wire::records::{WireLockStack, WireLockStackKey, WireLockWho, WireLockWhoKey};

/// `LOCK_STACK_FRAMES`.
pub const FRAMES: usize = 64;

/// A stack for a lock.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct StackKey {
    pub lock: u64,
    /// Without a thread id; without a process and flags unless waiting threads were requested.
    pub stack: Sample,
}

impl StackKey {
    /// Whether it has the waiting thread.
    pub fn has_waiter(&self) -> bool {
        self.stack.pid != 0 || self.stack.flags != 0
    }
}

/// Waiting threads, by the key that stacks contain.
pub type Whos = BTreeMap<WireLockWhoKey, WireLockWho>;

impl WireLockWho {
    pub fn decode(key: &[u8], value: &[u8]) -> Result<(WireLockWhoKey, Self), DamagedRecord> {
        let key = <WireLockWhoKey as Record>::decode(key)?;
        let who = <Self as Record>::decode(value)?;
        Ok((key, who))
    }

    /// The name of the thread.
    pub fn comm(&self) -> &[u8] {
        task_name(&self.comm)
    }
}

/// The waits that a stack is scaled up to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StackSample {
    /// In 256ths.
    pub contentions: u64,
    pub wait_ns: u64,
    pub samples: u64,
}

/// Decodes a stack of the table. A thread that had no room in the table of waiters becomes a process without a name and
/// without frames.
pub fn decode_stack(key: &[u8], value: &[u8], whos: &Whos) -> Result<(StackKey, StackSample), DamagedRecord> {
    let key = <WireLockStackKey as Record>::decode(key)?;
    let wire = <WireLockStack as Record>::decode(value)?;
    let kernel = &wire.ips[..(wire.frames as usize).min(FRAMES)];
    let sample = StackSample { contentions: wire.contentions, wait_ns: wire.wait_ns, samples: wire.samples };
    let WireLockWhoKey { pid, flags, .. } = key.who;
    let stack = match whos.get(&key.who) {
        Some(who) => {
            let user = &who.ips[..(who.frames as usize).min(MAX_FRAMES)];
            Sample::new(pid, 0, flags, who.comm(), kernel, user)
        }
        None if pid != 0 || flags != 0 => Sample::new(pid, 0, NO_USER, b"", kernel, &[]),
        None => Sample::new(0, 0, 0, b"", kernel, &[]),
    };
    Ok((StackKey { lock: key.lock, stack }, sample))
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::IntoBytes;

    #[test]
    fn a_stack_has_the_frames_that_were_taken_and_no_more_than_fit() {
        let mut value = vec![0; size_of::<WireLockStack>()];
        value[24..28].copy_from_slice(&2u32.to_ne_bytes());
        value[32..40].copy_from_slice(&7u64.to_ne_bytes());
        value[40..48].copy_from_slice(&8u64.to_ne_bytes());
        let decode = |key: &[u8], value: &[u8]| decode_stack(key, value, &Whos::new());
        let (key, _) = decode(&[0; 32], &value).unwrap();
        assert_eq!((key.stack.kernel(), key.has_waiter()), (&[7, 8][..], false));
        value[24..28].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(decode(&[0; 32], &value).unwrap().0.stack.kernel().len(), FRAMES);
        assert!(decode(&[0; 31], &value).is_err() && decode(&[0; 32], &value[1..]).is_err());
    }

    #[test]
    fn a_stack_says_who_waits_where_that_was_asked_for_and_found_room() {
        let mut value = vec![0; size_of::<WireLockStack>()];
        value[24..28].copy_from_slice(&1u32.to_ne_bytes());
        value[32..40].copy_from_slice(&7u64.to_ne_bytes());
        let who_key = WireLockWhoKey { hash: 1, pid: 5, flags: 0 };
        let mut who = WireLockWho { comm: [0; 16], frames: 2, pad: 0, ips: [9; MAX_FRAMES] };
        who.comm[..3].copy_from_slice(b"fio");
        let whos = Whos::from([WireLockWho::decode(who_key.as_bytes(), who.as_bytes()).unwrap()]);
        let key = WireLockStackKey { lock: 3, hash: 4, who: who_key };
        let (known, _) = decode_stack(key.as_bytes(), &value, &whos).unwrap();
        assert_eq!((known.lock, known.stack), (3, Sample::new(5, 0, 0, b"fio", &[7], &[9, 9])));
        let (without, _) = decode_stack(key.as_bytes(), &value, &Whos::new()).unwrap();
        assert!(without.has_waiter());
        assert_eq!(without.stack, Sample::new(5, 0, NO_USER, b"", &[7], &[]));
        assert!(WireLockWho::decode(&[0; 16], &who.as_bytes()[1..]).is_err());
        who.frames = u32::MAX;
        let whos = Whos::from([(who_key, who)]);
        assert_eq!(decode_stack(key.as_bytes(), &value, &whos).unwrap().0.stack.user().len(), MAX_FRAMES);
    }
}
