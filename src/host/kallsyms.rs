//! The kernel's own table of its symbols.

use std::path::Path;

use super::attribute::file;

/// What `/proc/kallsyms` has: functions, and data where the kernel keeps the names of those (CONFIG_KALLSYMS_ALL).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Kallsyms {
    /// Address, kind as nm prints it, name; by address.
    all: Vec<(u64, char, String)>,
    /// Variables are among them, and not only the borders of sections that the linker script makes.
    has_variables: bool,
}

/// A symbol names what lies behind it for so many bytes at most: the table has no sizes.
const LARGEST: u64 = 64 << 10;

impl Kallsyms {
    /// Empty where nobody may read it: then all addresses are 0.
    pub fn read(root: &Path) -> Self {
        Self::parse(&file(&root.join("proc/kallsyms")).unwrap_or_default())
    }

    /// Lines as `ffffffff81000000 T startup_64 [module]`; what is none is left out.
    pub fn parse(text: &str) -> Self {
        let line = |line: &str| {
            let mut words = line.split_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok().filter(|address| *address != 0)?;
            let kind = words.next()?.chars().next()?;
            Some((address, kind, words.next()?.to_string()))
        };
        let mut all: Vec<_> = text.lines().filter_map(line).collect();
        all.sort_by_key(|(address, ..)| *address);
        // Those of one file only (`static`) have no other way into the table than CONFIG_KALLSYMS_ALL.
        let has_variables = all.iter().any(|(_, kind, _)| matches!(kind, 'b' | 'd'));
        Self { all, has_variables }
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// `[first, end)` of each function whose name is wanted; compilers add `.part.0` and the like to it.
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

    /// Where the function of this name begins. None where there are several: modules may have one each.
    pub fn function(&self, name: &str) -> Option<u64> {
        let mut found = self.all.iter().filter(|(_, kind, other)| matches!(kind, 't' | 'T') && other == name);
        let address = found.next()?.0;
        found.next().is_none().then_some(address)
    }

    /// Whether there is a function of this name.
    pub fn has_function(&self, name: &str) -> bool {
        self.all.iter().any(|(_, kind, other)| matches!(kind, 't' | 'T') && other == name)
    }

    /// The variable that an address lies in, and how far behind its beginning. None where the table has no
    /// variables: what lies before an address there is any border.
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

    /// What kptr_restrict leaves of the table.
    #[test]
    fn hidden_addresses_are_no_symbols() {
        assert!(Kallsyms::parse("0000000000000000 T startup_64\n").is_empty());
    }
}
