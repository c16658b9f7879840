//! Reads the kernel's own symbol table.

use std::path::Path;

use super::attribute::file;

/// The symbols of `/proc/kallsyms`: functions, and variables if the kernel keeps their names (CONFIG_KALLSYMS_ALL).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kallsyms {
    /// Address, kind as nm prints it, name; sorted by address.
    all: Vec<(u64, char, String)>,
    /// The table has variables, and not only the section borders that the linker script defines.
    has_variables: bool,
}

/// The table has no sizes: a symbol is assumed to cover at most this many bytes.
const LARGEST: u64 = 64 << 10;

impl Kallsyms {
    /// Empty if this process may not read the addresses: then all addresses are 0.
    pub fn read(root: &Path) -> Self {
        Self::parse(&file(&root.join("proc/kallsyms")).unwrap_or_default())
    }

    /// Parses lines as `ffffffff81000000 T startup_64 [module]`; other lines are left out.
    pub fn parse(text: &str) -> Self {
        let line = |line: &str| {
            let mut words = line.split_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok().filter(|address| *address != 0)?;
            let kind = words.next()?.chars().next()?;
            Some((address, kind, words.next()?.to_string()))
        };
        let mut all: Vec<_> = text.lines().filter_map(line).collect();
        all.sort_by_key(|(address, ..)| *address);
        // Only with CONFIG_KALLSYMS_ALL does the table have variables of a single file (`static`).
        let has_variables = all.iter().any(|(_, kind, _)| matches!(kind, 'b' | 'd'));
        Self { all, has_variables }
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// `[first, end)` of each function whose name is selected, without the suffixes that compilers add (`.part.0`).
    pub fn functions(&self, wanted: impl Fn(&str) -> bool) -> Vec<(u64, u64)> {
        let is_code = |kind: char| matches!(kind, 't' | 'T' | 'w' | 'W');
        let end = |at: usize, begin: u64| {
            let next = self.all[at..].iter().map(|(address, ..)| *address).find(|next| *next > begin);
            next.map_or(begin + LARGEST, |next| next.min(begin + LARGEST))
        };
        let found =
            self.all.iter().enumerate().filter(|(_, (_, kind, name))| {
                is_code(*kind) && wanted(name.split('.').next().unwrap_or(name))
            });
        found.map(|(at, (begin, ..))| (*begin, end(at, *begin))).collect()
    }

    /// The start of the function of this name. None if there are several: each module may have its own.
    pub fn function(&self, name: &str) -> Option<u64> {
        let mut found = self.all.iter().filter(|(_, kind, other)| matches!(kind, 't' | 'T') && other == name);
        let address = found.next()?.0;
        found.next().is_none().then_some(address)
    }

    /// Whether there is a function of this name.
    pub fn has_function(&self, name: &str) -> bool {
        self.all.iter().any(|(_, kind, other)| matches!(kind, 't' | 'T') && other == name)
    }

    /// The variable that contains an address, and the offset from its start. None if the table has no variables: the
    /// symbol before an address would be an arbitrary border.
    pub fn variable(&self, address: u64) -> Option<(&str, u64)> {
        let at = self.all.partition_point(|(begin, ..)| *begin <= address).checked_sub(1)?;
        let (begin, kind, name) = &self.all[at];
        let is_data = matches!(kind, 'b' | 'B' | 'd' | 'D');
        let is_border = ["__start_", "__stop_", "__end_"].iter().any(|border| name.starts_with(border));
        (self.has_variables && is_data && !is_border && address - begin < LARGEST)
            .then_some((name.as_str(), address - begin))
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
        let slow = symbols.functions(|name| name.ends_with("queued_spin_lock_slowpath"));
        assert_eq!(
            slow,
            [(0xffff_ffff_8220_3af0, 0xffff_ffff_8220_3df0), (0xffff_ffff_8220_3df0, 0xffff_ffff_8220_4000)]
        );
        assert_eq!(symbols.functions(|name| name == "next").len(), 1);
        assert!(symbols.has_function("native_queued_spin_lock_slowpath"));
        assert!(!symbols.has_function("jiffies") && !symbols.is_empty());
    }

    #[test]
    fn a_variable_is_named_by_what_lies_before_the_address() {
        let symbols = Kallsyms::parse(TABLE);
        assert_eq!(symbols.variable(0xffff_ffff_8300_0008), Some(("tasklist_lock", 8)));
        assert_eq!(symbols.variable(0xffff_ffff_8300_0040), Some(("jiffies", 0)));
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
        assert_eq!(symbols.variable(0xffff_ffff_8300_0040), Some(("jiffies_lock", 0)));
    }

    /// With kptr_restrict, the table has only zero addresses.
    #[test]
    fn hidden_addresses_are_no_symbols() {
        assert!(Kallsyms::parse("0000000000000000 T startup_64\n").is_empty());
    }
}
