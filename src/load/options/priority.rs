//! I/O priority options of a job: fio's `prio`, `prioclass` and `cmdprio*`.

use super::draft::Conflict;
use super::values::{count, quoted, size};
use crate::load::job::{PriorityShare, io_priority};

pub const MOST_CLASS: u32 = 3;
pub const MOST_LEVEL: u32 = 7;

const REAL_TIME: u16 = 1;
const BEST_EFFORT: u16 = 2;

#[derive(Debug, Clone, Default)]
pub struct Priority {
    /// Class and level of the threads.
    pub class: Option<u16>,
    pub level: Option<u16>,
    /// Class and level of single operations, by direction.
    pub of_commands: [(Option<u16>, u16); 3],
    pub percent: [u8; 3],
    pub split: [Vec<SizedPriority>; 3],
}

/// A percentage of the operations of one size; class and level where they differ from the general ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizedPriority {
    pub bytes: u64,
    pub percent: u8,
    pub priority: Option<(u16, u16)>,
}

impl Priority {
    /// As in fio, a level without a class is best-effort.
    pub fn of_threads(&self) -> Option<u16> {
        (self.class.is_some() || self.level.is_some()).then(|| {
            let class = self.class.filter(|class| *class > 0).unwrap_or(BEST_EFFORT);
            io_priority(class, self.level.unwrap_or(0))
        })
    }

    /// For reads and for writes. As in fio, the default class is real-time.
    pub fn of_commands(&self) -> Result<[Vec<PriorityShare>; 2], Conflict> {
        let mut all = [Vec::new(), Vec::new()];
        for (at, shares) in all.iter_mut().enumerate() {
            let (class, level) = self.of_commands[at];
            let usual = (class.filter(|class| *class > 0).unwrap_or(REAL_TIME), level);
            let percent = self.percent[at];
            if percent > 0 && !self.split[at].is_empty() {
                return conflict("and cmdprio_percentage set the same: leave out one of them".to_string());
            }
            if percent > 0 {
                shares.push(PriorityShare { bytes: None, percent, priority: io_priority(usual.0, usual.1) });
            }
            for one in self.split[at].iter().filter(|one| one.percent > 0) {
                let (class, level) = one.priority.unwrap_or(usual);
                let bytes = Some(one.bytes);
                let others = shares.iter().filter(|other| other.bytes == bytes);
                if others.map(|other| u32::from(other.percent)).sum::<u32>() + u32::from(one.percent) > 100 {
                    return conflict(format!("has more than 100 % of the blocks of {} bytes", one.bytes));
                }
                let priority = io_priority(class, level);
                shares.push(PriorityShare { bytes, percent: one.percent, priority });
            }
        }
        Ok(all)
    }
}

fn conflict<T>(why: String) -> Result<T, Conflict> {
    Err(Conflict { word: "cmdprio_bssplit", why })
}

/// Parses `64k/25/1/1:64k/75` for one direction: percentage of the operations of a size, optionally class and level.
pub fn sized(text: &str) -> Result<Vec<SizedPriority>, String> {
    let one = |part: &str| {
        let wrong = || format!("{} is not a share, as in 64k/25 or 64k/25/CLASS/LEVEL", quoted(part));
        let fields: Vec<&str> = part.split('/').collect();
        let number = |text: &str, most| match text.trim() {
            "" => Ok(0),
            text => count(text, 0, most).map_err(|_| wrong()),
        };
        let (percent, priority) = match fields.as_slice() {
            [_] => ("", None),
            [_, percent] => (*percent, None),
            [_, percent, class, level] => {
                (*percent, Some((number(class, MOST_CLASS)? as u16, number(level, MOST_LEVEL)? as u16)))
            }
            _ => return Err(wrong()),
        };
        let bytes = size(fields[0]).map_err(|_| wrong())?;
        Ok(SizedPriority { bytes, percent: number(percent, 100)? as u8, priority })
    };
    text.split(':').map(one).collect()
}
