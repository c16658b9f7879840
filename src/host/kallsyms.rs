//! Reads the kernel's own symbol table.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The symbols of `/proc/kallsyms`: functions, and variables if the kernel keeps their names (CONFIG_KALLSYMS_ALL).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kallsyms {
    /// Sorted by address; symbols with the same address are in the kernel's order.
    symbols: Vec<Symbol>,
    /// All names, one after another.
    names: Vec<u8>,
    /// The table has variables, and not only the section borders that the linker script defines.
    has_variables: bool,
}

/// A line of the table, in 16 bytes: a kernel has 100,000 to 300,000 symbols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Symbol {
    address: u64,
    /// Position of its name in all names.
    at: u32,
    length: u16,
    /// As nm prints it.
    kind: u8,
    /// Of a module, a BPF program, or anything else that is loaded and unloaded.
    transient: bool,
}

/// The table has no sizes: a variable, and a transient function, is assumed to cover at most this many bytes. Nothing
/// bounds the last function of a module or of BPF.
const LARGEST: u64 = 64 << 10;

/// The same for functions of the kernel image. Addresses further away are in a hole: of a program that was unloaded, or in
/// a gap of the table. Functions of more than a few pages are rare.
const LARGEST_FUNCTION: u64 = 256 << 10;

/// A bound for a file that never ends: 6 MB are usual.
const LONGEST: u64 = 64 << 20;

impl Kallsyms {
    /// Empty if this process may not read the addresses: then all addresses are 0.
    pub fn read(root: &Path) -> Self {
        let mut text = Vec::with_capacity(8 << 20);
        let read =
            File::open(root.join("proc/kallsyms")).and_then(|file| file.take(LONGEST).read_to_end(&mut text));
        if read.is_ok() { Self::parse(&text) } else { Self::default() }
    }

    /// Parses lines as `ffffffff81000000 T startup_64\t[module]`; other lines are left out.
    pub fn parse(text: impl AsRef<[u8]>) -> Self {
        let text = text.as_ref();
        let mut all = Self::default();
        for line in text.split(|&byte| byte == b'\n') {
            all.add(line);
        }
        all.symbols.sort_by_key(|symbol| symbol.address);
        // Only with CONFIG_KALLSYMS_ALL does the table have variables of a single file (`static`).
        all.has_variables = all.symbols.iter().any(|symbol| matches!(symbol.kind, b'b' | b'd'));
        all.symbols.shrink_to_fit();
        all.names.shrink_to_fit();
        all
    }

    fn add(&mut self, line: &[u8]) {
        let mut fields = line.split(|&byte| byte == b' ' || byte == b'\t');
        let (Some(address), Some([kind]), Some(name)) = (fields.next(), fields.next(), fields.next()) else {
            return;
        };
        let address = str::from_utf8(address).ok().and_then(|hex| u64::from_str_radix(hex, 16).ok());
        let Some(address) = address.filter(|address| *address != 0 && !name.is_empty()) else { return };
        let (Ok(at), Ok(length)) = (u32::try_from(self.names.len()), u16::try_from(name.len())) else {
            return;
        };
        self.names.extend_from_slice(name);
        self.symbols.push(Symbol { address, at, length, kind: *kind, transient: fields.next().is_some() });
    }

    pub fn is_empty(&self) -> bool {
        self.symbols.is_empty()
    }

    fn bytes(&self, symbol: &Symbol) -> &[u8] {
        &self.names[symbol.at as usize..][..usize::from(symbol.length)]
    }

    /// A smaller table with the same variables: of what lies between them, only the begin is kept.
    pub fn variables(&self) -> Self {
        let mut kept = Self { has_variables: self.has_variables, ..Self::default() };
        for symbol in &self.symbols {
            let is_end = kept.symbols.last().is_some_and(Symbol::is_data);
            if symbol.is_data() {
                let at = kept.names.len() as u32;
                kept.names.extend_from_slice(self.bytes(symbol));
                kept.symbols.push(Symbol { at, ..*symbol });
            } else if is_end {
                kept.symbols.push(Symbol { at: 0, length: 0, ..*symbol });
            }
        }
        kept.symbols.shrink_to_fit();
        kept.names.shrink_to_fit();
        kept
    }

    /// `[first, end)` of each function whose name is selected, without the suffixes that compilers add (`.part.0`).
    pub fn functions(&self, selected: impl Fn(&[u8]) -> bool) -> Vec<(u64, u64)> {
        let end = |at: usize, begin: u64| {
            let next = self.symbols[at..].iter().map(|symbol| symbol.address).find(|next| *next > begin);
            next.map_or(begin.saturating_add(LARGEST), |next| next.min(begin.saturating_add(LARGEST)))
        };
        let is_selected = |symbol: &Symbol| {
            let name = self.bytes(symbol);
            selected(name.split(|&byte| byte == b'.').next().unwrap_or(name))
        };
        let found = self.symbols.iter().enumerate();
        let found = found.filter(|(_, symbol)| symbol.is_function() && is_selected(symbol));
        found.map(|(at, symbol)| (symbol.address, end(at, symbol.address))).collect()
    }

    /// The symbols of this name: of functions, unless they are weak.
    fn strong<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Symbol> + 'a {
        let is_strong = |symbol: &&Symbol| matches!(symbol.kind, b't' | b'T');
        self.symbols.iter().filter(is_strong).filter(|symbol| self.bytes(symbol) == name.as_bytes())
    }

    /// The start of the function of this name. None if there are several: each module may have its own.
    pub fn function(&self, name: &str) -> Option<u64> {
        let mut found = self.strong(name);
        let address = found.next()?.address;
        found.next().is_none().then_some(address)
    }

    /// Whether there is a function of this name.
    pub fn has_function(&self, name: &str) -> bool {
        self.strong(name).next().is_some()
    }

    /// The name of the function at an address, as perf chooses it among aliases; None in a hole between functions.
    pub fn function_at(&self, address: u64) -> Option<String> {
        let behind = self.symbols.partition_point(|symbol| symbol.address <= address);
        let last = self.symbols[..behind].last()?;
        let first = self.symbols[..behind].partition_point(|symbol| symbol.address < last.address);
        let code = self.symbols[first..behind].iter().filter(|symbol| symbol.is_code());
        // Several names for one address: linker script marks, aliases.
        let best = code.min_by_key(|symbol| self.rank(symbol))?;
        let most = if best.transient { LARGEST } else { LARGEST_FUNCTION };
        (address - best.address < most).then(|| String::from_utf8_lossy(self.bytes(best)).into_owned())
    }

    /// Of several names for the same address, the one that perf chooses has the lowest rank: not weak, global, with few
    /// leading underscores, the longest.
    fn rank(&self, symbol: &Symbol) -> (bool, bool, usize, Reverse<u16>) {
        let underscores = self.bytes(symbol).iter().take_while(|&&byte| byte == b'_').count();
        let weak = matches!(symbol.kind, b'w' | b'W');
        (weak, !symbol.kind.is_ascii_uppercase(), underscores, Reverse(symbol.length))
    }

    /// The variable that contains an address, and the offset from its start. None if the table has no variables: the
    /// symbol before an address would be an arbitrary border.
    pub fn variable(&self, address: u64) -> Option<(Cow<'_, str>, u64)> {
        let at = self.symbols.partition_point(|symbol| symbol.address <= address).checked_sub(1)?;
        let symbol = &self.symbols[at];
        let name = self.bytes(symbol);
        let is_border =
            ["__start_", "__stop_", "__end_"].iter().any(|mark| name.starts_with(mark.as_bytes()));
        let offset = address - symbol.address;
        (self.has_variables && symbol.is_data() && !is_border && offset < LARGEST)
            .then(|| (String::from_utf8_lossy(name), offset))
    }
}

impl Symbol {
    fn is_function(&self) -> bool {
        matches!(self.kind, b't' | b'T' | b'w' | b'W')
    }

    /// Functions, and those that are resolved at run time.
    fn is_code(&self) -> bool {
        self.is_function() || self.kind == b'i'
    }

    fn is_data(&self) -> bool {
        matches!(self.kind, b'b' | b'B' | b'd' | b'D')
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "0000000000000000 A fixed_percpu_data\n\
        ffffffff82203df0 T __pv_queued_spin_lock_slowpath\n\
        ffffffff82203af0 t native_queued_spin_lock_slowpath\n\
        ffffffff82204000 t next.part.0\n\
        ffffffff83000000 d tasklist_lock\nffffffff83000040 B jiffies\nffffffffc0000000 t f\t[module]\nnonsense\n";

    #[test]
    fn a_function_ends_where_the_next_symbol_begins() {
        let symbols = Kallsyms::parse(TABLE);
        let slow = symbols.functions(|name| name.ends_with(b"queued_spin_lock_slowpath"));
        assert_eq!(
            slow,
            [(0xffff_ffff_8220_3af0, 0xffff_ffff_8220_3df0), (0xffff_ffff_8220_3df0, 0xffff_ffff_8220_4000)]
        );
        assert_eq!(symbols.functions(|name| name == b"next").len(), 1);
        assert!(symbols.has_function("native_queued_spin_lock_slowpath"));
        assert!(!symbols.has_function("jiffies") && !symbols.is_empty());
    }

    #[test]
    fn a_variable_is_named_by_what_lies_before_the_address() {
        let symbols = Kallsyms::parse(TABLE);
        assert_eq!(symbols.variable(0xffff_ffff_8300_0008), Some(("tasklist_lock".into(), 8)));
        assert_eq!(symbols.variable(0xffff_ffff_8300_0040), Some(("jiffies".into(), 0)));
        assert_eq!(symbols.variable(0xffff_ffff_8220_3af4), None, "a function is no lock");
        assert_eq!(symbols.variable(0xffff_8880_0000_0000), None);
        assert_eq!(symbols.variable(0xffff_ffff_9300_0000), None, "too far behind the last one");
    }

    #[test]
    fn a_border_is_no_variable() {
        let symbols =
            Kallsyms::parse("ffffffff83000000 D __start_init_stack\nffffffff83229a48 D __start_once\n");
        assert_eq!(symbols.variable(0xffff_ffff_8300_9a40), None, "no variables at all");
        let symbols = Kallsyms::parse("ffffffff83000000 D __start_once\nffffffff83000040 d jiffies_lock\n");
        assert_eq!(symbols.variable(0xffff_ffff_8300_0008), None);
        assert_eq!(symbols.variable(0xffff_ffff_8300_0040), Some(("jiffies_lock".into(), 0)));
    }

    /// With kptr_restrict, the table has only zero addresses.
    #[test]
    fn hidden_addresses_are_no_symbols() {
        assert!(Kallsyms::parse("0000000000000000 T startup_64\n").is_empty());
    }

    #[test]
    fn functions_modules_and_programs_have_names() {
        let symbols = Kallsyms::parse(
            "ffffffff81000000 T _stext\nffffffff81000000 T do_one\nffffffff81000100 t two.isra.0\n\
             ffffffff82000000 D some_data\nffffffffc0001000 t nvme_queue_rq\t[nvme]\n\
             ffffffffc0009000 t bpf_prog_0123456789abcdef_sample\t[bpf]\nshort\n",
        );
        let name = |address| symbols.function_at(address);
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
        assert_eq!(Kallsyms::parse(lines).function_at(0x1000).as_deref(), Some("sys_name"));
    }

    #[test]
    fn a_table_of_variables_has_the_same_ones() {
        let text =
            "1000 T code\n2000 d first\n2100 T code\n2180 t more\n2200 D second\n2200 T alias\n2300 b last\n";
        let whole = Kallsyms::parse(text);
        let kept = whole.variables();
        assert_eq!(kept.symbols.len(), 5, "all but the first function and the second between two variables");
        for address in (0..0x3000).step_by(0x40).map(|offset| 0x1000 + offset) {
            assert_eq!(kept.variable(address), whole.variable(address), "{address:#x}");
        }
    }

    /// Each function of the running kernel by its first and by its second byte.
    #[test]
    fn the_running_kernel_names_itself() {
        let text = std::fs::read("/proc/kallsyms").unwrap_or_default();
        let symbols = Kallsyms::parse(&text);
        if symbols.is_empty() {
            println!("skipped: /proc/kallsyms shows no addresses here");
            return;
        }
        let text = String::from_utf8_lossy(&text);
        let mut at: std::collections::BTreeMap<u64, Vec<&str>> = Default::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            at.entry(u64::from_str_radix(words[0], 16).unwrap()).or_default().push(words[2]);
        }
        let mut checked = 0;
        for symbol in symbols.symbols.iter().filter(|symbol| symbol.is_code()) {
            let names = &at[&symbol.address];
            let first = symbols.function_at(symbol.address).unwrap();
            assert!(names.contains(&first.as_str()), "{first} is not in {names:?}");
            if !at.contains_key(&(symbol.address + 1)) {
                assert_eq!(symbols.function_at(symbol.address + 1), Some(first));
            }
            checked += 1;
        }
        assert!(checked > 10_000, "only {checked}");
    }

    proptest::proptest! {
        #[test]
        fn damage_never_panics(
            text in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300),
            address: u64,
        ) {
            let symbols = Kallsyms::parse(&text);
            symbols.function_at(address);
            symbols.functions(|_| true);
            assert_eq!(symbols.variables().variable(address), symbols.variable(address));
        }
    }
}
