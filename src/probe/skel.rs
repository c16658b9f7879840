//! Includes the generated skeletons, and asserts at compile time that both sides of the wire agree.

#[allow(warnings, clippy::all, reason = "libbpf-cargo writes it")]
mod generated {
    pub mod latency {
        include!(concat!(env!("OUT_DIR"), "/latency.skel.rs"));
    }
    /// For its types only: [`super::object`] returns its object.
    pub mod latency_old {
        include!(concat!(env!("OUT_DIR"), "/latency_old.skel.rs"));
    }
    pub mod blocked {
        include!(concat!(env!("OUT_DIR"), "/blocked.skel.rs"));
    }
    pub mod reclaim {
        include!(concat!(env!("OUT_DIR"), "/reclaim.skel.rs"));
    }
    pub mod errors {
        include!(concat!(env!("OUT_DIR"), "/errors.skel.rs"));
    }
    pub mod interrupts {
        include!(concat!(env!("OUT_DIR"), "/interrupts.skel.rs"));
    }
    pub mod locks {
        include!(concat!(env!("OUT_DIR"), "/locks.skel.rs"));
    }
    pub mod pagecache {
        include!(concat!(env!("OUT_DIR"), "/pagecache.skel.rs"));
    }
    pub mod paths {
        include!(concat!(env!("OUT_DIR"), "/paths.skel.rs"));
    }
    pub mod stacks {
        include!(concat!(env!("OUT_DIR"), "/stacks.skel.rs"));
    }
    pub mod threads {
        include!(concat!(env!("OUT_DIR"), "/threads.skel.rs"));
    }
    pub mod baseline {
        include!(concat!(env!("OUT_DIR"), "/baseline.skel.rs"));
    }
}

pub use generated::{
    baseline, blocked, errors, interrupts, latency, locks, pagecache, paths, reclaim, stacks, threads,
};

use self::generated::latency_old;

use super::libbpf;
use crate::probe::btf_file;

macro_rules! compiled {
    ($name:literal) => {
        ($name, include_bytes!(concat!(env!("OUT_DIR"), "/", $name, ".bpf.o")))
    };
}

/// An object: its source's name without `.bpf.c`, and its bytes.
pub type CompiledObject = (&'static str, &'static [u8]);

pub const LATENCY: CompiledObject = compiled!("latency");
/// The programs of latency.bpf.c without compare-and-swap.
pub const LATENCY_OLD: CompiledObject = compiled!("latency_old");
/// The same without kernel types.
pub const LATENCY_RAW: CompiledObject = compiled!("latency_raw");
pub const INTERRUPTS: CompiledObject = compiled!("interrupts");
pub const LOCKS: CompiledObject = compiled!("locks");
pub const PAGECACHE: CompiledObject = compiled!("pagecache");
pub const PATHS: CompiledObject = compiled!("paths");
pub const BASELINE: CompiledObject = compiled!("baseline");
pub const STACKS: CompiledObject = compiled!("stacks");
pub const THREADS: CompiledObject = compiled!("threads");
pub const BLOCKED: CompiledObject = compiled!("blocked");
pub const ERRORS: CompiledObject = compiled!("errors");
pub const RECLAIM: CompiledObject = compiled!("reclaim");

macro_rules! constants {
    ($($object:ident)+) => {
        $(
            // SAFETY: libbpf-cargo generates it from the object's own types, which are integers.
            unsafe impl libbpf::Constants for $object::types::rodata {}
        )+
    };
}

constants!(latency errors interrupts locks pagecache stacks threads blocked reclaim);

/// The object that the skeleton [`latency`] opens: the variant that this kernel supports.
pub fn object(usual: &'static [u8]) -> &'static [u8] {
    match btf_file::path() {
        Some(_) => LATENCY_RAW.1,
        None if libbpf::has_swap() => usual,
        None => LATENCY_OLD.1,
    }
}

/// The builder of that skeleton, with the file that replaces the kernel's BTF if there is one.
pub fn latency_builder() -> libbpf_rs::Result<latency::LatencySkelBuilder> {
    let mut builder = latency::LatencySkelBuilder::default();
    if let Some(file) = btf_file::path() {
        builder.obj_builder.btf_custom_path(file)?;
    }
    Ok(builder)
}

/// Whether that is the usual object, which follows operations, bios of bio-based devices and submitters.
pub fn is_usual() -> bool {
    btf_file::path().is_none() && libbpf::has_swap()
}

/// The value of a `#define NAME 14` in a header of `bpf/`. Macros are not in the BTF of the objects.
pub const fn header_number(header: &str, name: &str) -> u32 {
    const DEFINE: &[u8] = b"#define ";
    let (header, name) = (header.as_bytes(), name.as_bytes());
    let mut line = 0;
    while line < header.len() {
        let mut at = after(header, line, DEFINE);
        if at > line {
            let rest = after(header, at, name);
            if rest > at && (header[rest] == b' ' || header[rest] == b'\t') {
                at = rest;
                while header[at] == b' ' || header[at] == b'\t' {
                    at += 1;
                }
                let mut number = 0;
                while header[at].is_ascii_digit() {
                    number = number * 10 + (header[at] - b'0') as u32;
                    at += 1;
                }
                assert!(header[at] == b'\n' && header[at - 1].is_ascii_digit(), "not a plain decimal number");
                return number;
            }
        }
        while line < header.len() && header[line] != b'\n' {
            line += 1;
        }
        line += 1;
    }
    panic!("the header does not define it")
}

/// The position after `word` if the text at `at` begins with it; else `at`.
const fn after(text: &[u8], at: usize, word: &[u8]) -> usize {
    let mut n = 0;
    while n < word.len() {
        if at + n >= text.len() || text[at + n] != word[n] {
            return at;
        }
        n += 1;
    }
    at + n
}

const _: () = assert!(
    crate::wire::MAX_DEVICES == header_number(include_str!("../../bpf/owner.h"), "MAX_DEVICES") as usize
);

/// Compares types of two objects: size, and offset of each named field.
macro_rules! same_layout {
    ($rust:ty, $clang:ty: $($field:ident)+) => {
        const _: () = {
            assert!(size_of::<$rust>() == size_of::<$clang>());
            $(assert!(std::mem::offset_of!($rust, $field) == std::mem::offset_of!($clang, $field));)+
        };
    };
}

same_layout!(latency_old::types::rodata, latency::types::rodata: config arguments file_callbacks syscall_kinds);
same_layout!(latency_old::types::bss, latency::types::bss: running over unlearned unfollowed event_floor_ns groups_made);

#[cfg(test)]
mod tests {
    use super::header_number;

    #[test]
    fn numbers_of_a_header() {
        let header =
            "/* #define BITS 1 */\n#define BITS_MORE 2\n#define BITS\t   14\n#define LAST (1 << 3)\n";
        assert_eq!(header_number(header, "BITS"), 14);
        assert_eq!(header_number(header, "BITS_MORE"), 2);
        for name in ["LAST", "NONE", "BIT"] {
            assert!(std::panic::catch_unwind(|| header_number(header, name)).is_err(), "{name}");
        }
    }
}
