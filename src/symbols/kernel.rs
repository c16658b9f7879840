//! Symbolizes kernel addresses: functions, modules, BPF programs, trampolines.
//!
//! Uses only the running kernel's own list: a vmlinux file on disk may be of another build, and its line tables would
//! take longer to read than the measurement took.

use std::cmp::Reverse;
use std::fs;

/// `/proc/kallsyms`, by address.
#[derive(Debug, Default)]
pub(super) struct Kernel {
    text: Vec<u8>,
    symbols: Vec<Symbol>,
}

/// A line of the list, which has no sizes.
#[derive(Debug, Clone, Copy)]
struct Symbol {
    address: u64,
    /// Position of its name in the text.
    at: u32,
    length: u16,
    kind: u8,
    /// A module, a BPF program, or anything else that is loaded and unloaded.
    transient: bool,
}

impl Kernel {
    /// Largest distance of an address from its symbol. Addresses further away are in a hole: of a program that was
    /// unloaded, or in a gap of the list. Functions of more than a few pages are rare.
    const LARGEST: u64 = 256 << 10;
    /// The same for transient symbols: nothing bounds the last one of a module or of BPF.
    const LARGEST_TRANSIENT: u64 = 64 << 10;

    pub fn read() -> Self {
        fs::read("/proc/kallsyms").map_or_else(|_| Self::default(), Self::of)
    }

    fn of(text: Vec<u8>) -> Self {
        let mut symbols = Vec::with_capacity(text.len() / 40);
        let mut at = 0;
        for line in text.split(|&b| b == b'\n') {
            symbols.extend(Symbol::of(line, at));
            at += line.len() + 1;
        }
        // Equal addresses keep the kernel's order.
        symbols.sort_by_key(|symbol: &Symbol| symbol.address);
        Self { text, symbols }
    }

    /// The list is unreadable (then all addresses are 0), or does not exist.
    pub fn is_empty(&self) -> bool {
        self.symbols.is_empty()
    }

    pub fn name(&self, address: u64) -> Option<String> {
        let behind = self.symbols.partition_point(|symbol| symbol.address <= address);
        let last = self.symbols[..behind].last()?;
        let first = self.symbols[..behind].partition_point(|symbol| symbol.address < last.address);
        let code = self.symbols[first..behind].iter().filter(|symbol| symbol.is_code());
        // Several names for one address: linker script marks, aliases.
        let best = code.min_by_key(|symbol| symbol.rank(&self.text))?;
        let most = if best.transient { Self::LARGEST_TRANSIENT } else { Self::LARGEST };
        let name = &self.text[best.at as usize..][..usize::from(best.length)];
        (address - best.address < most).then(|| String::from_utf8_lossy(name).into_owned())
    }
}

impl Symbol {
    /// `ffffffffc0201000 t nvme_queue_rq\t[nvme]`
    fn of(line: &[u8], at: usize) -> Option<Self> {
        let mut fields = line.split(|&b| b == b' ' || b == b'\t');
        let (address, kind, name) = (fields.next()?, fields.next()?, fields.next()?);
        let address = u64::from_str_radix(std::str::from_utf8(address).ok()?, 16).ok()?;
        let before = line.len() - line.splitn(3, |&b| b == b' ').nth(2)?.len();
        let symbol = Self {
            address,
            at: u32::try_from(at + before).ok()?,
            length: u16::try_from(name.len()).ok()?,
            kind: *kind.first()?,
            transient: fields.next().is_some(),
        };
        (address != 0 && !name.is_empty()).then_some(symbol)
    }

    fn is_code(self) -> bool {
        matches!(self.kind, b't' | b'T' | b'w' | b'W' | b'i')
    }

    /// Of several names for the same address, the one that perf chooses has the lowest rank: not weak, global, with few
    /// leading underscores, the longest.
    fn rank(self, text: &[u8]) -> (bool, bool, usize, Reverse<u16>) {
        let name = &text[self.at as usize..][..usize::from(self.length)];
        let underscores = name.iter().take_while(|&&b| b == b'_').count();
        let weak = matches!(self.kind, b'w' | b'W');
        (weak, !self.kind.is_ascii_uppercase(), underscores, Reverse(self.length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel(text: &str) -> Kernel {
        Kernel::of(text.as_bytes().to_vec())
    }

    #[test]
    fn functions_modules_and_programs_have_names() {
        let kernel = kernel(
            "ffffffff81000000 T _stext\nffffffff81000000 T do_one\nffffffff81000100 t two.isra.0\n\
             ffffffff82000000 D some_data\nffffffffc0001000 t nvme_queue_rq\t[nvme]\n\
             ffffffffc0009000 t bpf_prog_0123456789abcdef_sample\t[bpf]\nshort\n",
        );
        let name = |address| kernel.name(address);
        assert_eq!(name(0xffff_ffff_8100_0000).as_deref(), Some("do_one"), "not the mark of its section");
        assert_eq!(name(0xffff_ffff_8100_0101).as_deref(), Some("two.isra.0"));
        assert_eq!(name(0xffff_ffff_c000_1fff).as_deref(), Some("nvme_queue_rq"));
        assert_eq!(name(0xffff_ffff_c000_9010).as_deref(), Some("bpf_prog_0123456789abcdef_sample"));
        for nowhere in [0, 0xffff_ffff_8200_0001, 0xffff_ffff_8101_0100 + (4 << 20), 0xffff_ffff_c009_0000] {
            assert_eq!(name(nowhere), None, "{nowhere:#x}");
        }
    }

    #[test]
    fn aliases_are_chosen_as_perf_does() {
        let lines =
            "1000 W weak_long_name\n1000 t local_name\n1000 T __sys_name\n1000 T sys_name\n1000 T _x\n";
        assert_eq!(kernel(lines).name(0x1000).as_deref(), Some("sys_name"));
    }

    /// The list of the running kernel: each function by its first and by its second byte.
    #[test]
    fn the_running_kernel_names_itself() {
        let kernel = Kernel::read();
        if kernel.is_empty() {
            println!("skipped: /proc/kallsyms shows no addresses here");
            return;
        }
        let text = String::from_utf8_lossy(&kernel.text).into_owned();
        let mut at: std::collections::BTreeMap<u64, Vec<&str>> = Default::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            at.entry(u64::from_str_radix(words[0], 16).unwrap()).or_default().push(words[2]);
        }
        let mut checked = 0;
        for symbol in kernel.symbols.iter().filter(|symbol| symbol.is_code()) {
            let names = &at[&symbol.address];
            let first = kernel.name(symbol.address).unwrap();
            assert!(names.contains(&first.as_str()), "{first} is not in {names:?}");
            if !at.contains_key(&(symbol.address + 1)) {
                assert_eq!(kernel.name(symbol.address + 1), Some(first));
            }
            checked += 1;
        }
        assert!(checked > 10_000, "only {checked}");
    }

    /// With kptr_restrict the list exists, and all addresses are 0.
    #[test]
    fn a_hidden_list_names_nothing() {
        let hidden = kernel("0000000000000000 T _stext\n0000000000000000 T do_one\n");
        assert!(hidden.is_empty() && hidden.name(0xffff_ffff_8100_0000).is_none());
    }

    proptest::proptest! {
        #[test]
        fn damage_never_panics(text in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300), at: u64) {
            Kernel::of(text).name(at);
        }
    }
}
