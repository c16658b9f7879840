//! Assigns numbers to the programs that a process ran one after the other.

use std::collections::HashMap;
use std::sync::Arc;

/// By process: the name of its threads while it ran an earlier program, and the number that represents that program.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Programs {
    earlier: Arc<HashMap<u32, Vec<Earlier>>>,
}

#[derive(Debug, Clone, PartialEq)]
struct Earlier {
    name: Box<[u8]>,
    number: u32,
}

impl Programs {
    /// The maximum number of processes, and of programs per process.
    const MOST: usize = 32_768;
    const MOST_EACH: usize = 64;

    /// Returns the number in use: if the process id was reused, the first number stays.
    pub(super) fn add(&mut self, pid: u32, name: &[u8], number: u32) -> u32 {
        let full = self.earlier.len() >= Self::MOST && !self.earlier.contains_key(&pid);
        let known = self.earlier.get(&pid).map_or(&[][..], |of| of);
        if let Some(earlier) = known.iter().find(|earlier| *earlier.name == *name) {
            return earlier.number;
        }
        if full || known.len() >= Self::MOST_EACH {
            return pid;
        }
        let of = Arc::make_mut(&mut self.earlier).entry(pid).or_default();
        of.push(Earlier { name: name.into(), number });
        number
    }

    /// The number of the program that a process ran while its thread had this name: usually the process id itself.
    pub fn of(&self, pid: u32, name: &[u8]) -> u32 {
        let earlier = self.earlier.get(&pid).and_then(|of| of.iter().find(|earlier| *earlier.name == *name));
        earlier.map_or(pid, |earlier| earlier.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_program_has_a_number_of_its_own() {
        let mut programs = Programs::default();
        let copy = programs.clone();
        assert_eq!(programs.add(7, b"sh", 1 << 31), 1 << 31);
        assert_eq!(programs.add(7, b"sh", 9), 1 << 31, "of two processes one after the other");
        assert_eq!([programs.of(7, b"sh"), programs.of(7, b"cc"), programs.of(8, b"sh")], [1 << 31, 7, 8]);
        assert_eq!(copy.of(7, b"sh"), 7);
        (0..100_000).for_each(|pid| _ = programs.add(pid, b"x", 1));
        (0..100u8).for_each(|name| _ = programs.add(7, &[name], 1));
        assert_eq!(programs.add(7, b"more", 1), 7, "no room");
        assert_eq!(
            (programs.earlier.len(), programs.earlier[&7].len()),
            (Programs::MOST, Programs::MOST_EACH)
        );
    }
}
