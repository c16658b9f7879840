//! Symbolizes with an ELF file's symbol table and line tables (blazesym). Runs in the helper process: see
//! [`super::child`].

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Builder, Input, Symbolized, Symbolizer};

use super::demangle::readable;
use super::table::FunctionTable;

/// The most names per address: a function and the functions inlined into it.
const MOST_NAMES: usize = 100;

/// Limit for functions in assembly, which may have no size; none longer than this is known.
const MOST_WITHOUT_SIZE: u64 = 4096;

/// A reader of one file, with a cache of what it has read.
pub(super) struct ElfReader {
    inner: Symbolizer,
    path: PathBuf,
    /// Whether its DWARF should be tried.
    debug: bool,
    /// Read if blazesym fails.
    table: OnceCell<FunctionTable>,
}

impl ElfReader {
    pub fn new(path: &Path, debug: bool) -> Self {
        // A file that is named by its descriptor cannot be replaced, so it need not be checked again. Other files are
        // looked up by build-id beforehand: a debug link in the file is untrusted.
        let inner = Symbolizer::builder();
        let inner: Builder = inner.enable_auto_reload(false).enable_demangling(false).set_debug_dirs(NONE);
        Self { inner: inner.build(), path: path.to_path_buf(), debug, table: OnceCell::new() }
    }

    /// Names at an address of the file's own tables, outermost first; empty if there is no function.
    pub fn names(&self, address: u64) -> Vec<String> {
        // A function without a name in the DWARF may have one in the symbol table, and a file with damaged DWARF may
        // have an intact one.
        let found = if self.debug { self.look(address, true) } else { Vec::new() };
        if found.is_empty() { self.look(address, false) } else { found }
    }

    fn look(&self, address: u64, debug: bool) -> Vec<String> {
        let mut elf = Elf::new(&self.path);
        elf.debug_syms = debug;
        let found = self.inner.symbolize_single(&Source::Elf(elf), Input::VirtOffset(address));
        let symbol = match found {
            Ok(Symbolized::Sym(symbol)) => symbol,
            Ok(_) => return Vec::new(),
            Err(_) if debug => return Vec::new(),
            Err(_) => {
                let table = self.table.get_or_init(|| FunctionTable::read(&self.path));
                return table.name(address).map(|name| readable(&name)).into_iter().collect();
            }
        };
        // Linkers give discarded functions the address 0 (or 1) in the DWARF, with their full length: they would cover
        // the first real functions.
        let thrown_away = debug && symbol.addr <= 1 && symbol.size.is_some();
        // Linker marks have no size, and would name everything after them; the one at address 0 is not real.
        let stray = symbol.size.is_none()
            && (symbol.addr == 0 || address.saturating_sub(symbol.addr) >= MOST_WITHOUT_SIZE);
        if symbol.name.is_empty() || thrown_away || stray {
            return Vec::new();
        }
        let inlined = symbol.inlined.iter().map(|f| readable(&f.name)).filter(|name| !name.is_empty());
        [readable(&symbol.name)].into_iter().chain(inlined).take(MOST_NAMES).collect()
    }
}

const NONE: Option<[PathBuf; 0]> = Some([]);
