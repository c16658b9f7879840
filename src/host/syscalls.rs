//! Maps system call numbers to names.

use std::sync::OnceLock;

/// Numbers and names from x86-64's `asm/unistd_64.h`, completed from the system call table of Linux 6.18.
const TABLE: &str = include_str!("syscalls.txt");

/// The name of a system call of 64-bit programs; None for a number that is not in the table.
pub fn name(number: u32) -> Option<&'static str> {
    static NAMES: OnceLock<Vec<Option<&'static str>>> = OnceLock::new();
    let names = NAMES.get_or_init(|| {
        let mut names = Vec::new();
        for (number, name) in TABLE.lines().filter_map(|line| line.split_once(' ')) {
            let Ok(number) = number.parse::<usize>() else { continue };
            names.resize(names.len().max(number + 1), None);
            names[number] = Some(name);
        }
        names
    });
    names.get(number as usize).copied().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_names_of_the_libc_crate() {
        let known = [
            (libc::SYS_read, "read"),
            (libc::SYS_pread64, "pread64"),
            (libc::SYS_io_getevents, "io_getevents"),
            (libc::SYS_clock_nanosleep, "clock_nanosleep"),
            (libc::SYS_io_uring_enter, "io_uring_enter"),
            (libc::SYS_futex_waitv, "futex_waitv"),
            (libc::SYS_mseal, "mseal"),
        ];
        for (number, expected) in known {
            assert_eq!(name(number as u32), Some(expected));
        }
        assert_eq!([name(340), name(100_000), name(u32::MAX)], [None; 3]);
    }

    #[test]
    fn each_line_of_the_table_is_a_number_and_a_name() {
        let mut last = None;
        for line in TABLE.lines() {
            let (number, name) = line.split_once(' ').unwrap();
            let number = Some(number.parse::<u32>().unwrap());
            assert!(
                number > last
                    && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
            );
            last = number;
        }
    }
}
