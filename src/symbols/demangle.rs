//! Demangles symbol names.

use std::fmt::{self, Write};

/// The most bytes of a name. Few names come near; a name that refers to itself a hundred times expands to more than any
/// memory holds.
pub(super) const MOST: usize = 4096;

/// The name as in the source: Rust without the hash, C++ without parameters (like perf shows both). Other names are
/// unchanged.
pub(super) fn readable(name: &str) -> String {
    let mut out = BoundedString(String::new());
    // A truncated result is still the beginning of the right name.
    if let Ok(rust) = rustc_demangle::try_demangle(name) {
        let _ = write!(out, "{rust:#}");
    } else if name.starts_with("_Z") || name.starts_with("__Z") {
        cpp(name, &mut out);
    }
    if out.0.is_empty() {
        let _ = out.write_str(name);
    }
    out.0
}

fn cpp(name: &str, out: &mut BoundedString) {
    // gcc gives clones suffixes: `_Zfoo.cold`, `.part.0`.
    let (name, clone) = name.split_at(name.find('.').unwrap_or(name.len()));
    // Longer names are crafted to be slow.
    if name.len() > MOST {
        return;
    }
    let Ok(symbol) = cpp_demangle::Symbol::new(name) else { return };
    let options = cpp_demangle::DemangleOptions::new().no_params().no_return_type();
    if symbol.structured_demangle(out, &options).is_ok() {
        let _ = out.write_str(clone);
    }
}

/// A string with a maximum length: exceeding it is an error, which stops the writer.
struct BoundedString(String);

impl Write for BoundedString {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MOST - self.0.len();
        if text.len() <= room {
            self.0.push_str(text);
            return Ok(());
        }
        let end = (0..=room).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        self.0.push_str(&text[..end]);
        Err(fmt::Error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_in_the_source() {
        for (linker, source) in [
            ("_ZN3foo3bar17h05af221e174051e9E", "foo::bar"),
            ("_RNvC6_123foo3bar", "123foo::bar"),
            ("_ZN3foo3barEiPKc", "foo::bar"),
            ("_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector<int, std::allocator<int> >::push_back"),
            ("_ZN3foo3barEi.cold", "foo::bar.cold"),
            ("main", "main"),
            ("_Znonsense", "_Znonsense"),
            ("", ""),
        ] {
            assert_eq!(readable(linker), source);
        }
        assert_eq!(readable(&"x".repeat(9000)).len(), MOST);
        assert_eq!(readable(&"ä".repeat(4000)).len(), MOST);
    }

    /// Each level refers to the previous one twice.
    #[test]
    fn a_name_that_unfolds_without_end_is_cut() {
        // Template instances: the third of S_, S0_, S1_, ... is the one that the previous level made.
        let mut name = "_Z1fI1AIiiE".to_string();
        let digit = |n: u32| char::from_digit(n, 36).unwrap().to_ascii_uppercase();
        for level in 0..34 {
            let back = format!("S{}_", digit(level));
            name += &format!("S_I{back}{back}E");
        }
        name += "Evv";
        let start = std::time::Instant::now();
        let out = readable(&name);
        println!("{} bytes in {:?}", out.len(), start.elapsed());
        assert!(out.len() == MOST && start.elapsed().as_secs() < 5, "{} bytes: {out:.200}", out.len());
    }

    proptest::proptest! {
        #[test]
        fn any_name_is_bounded(name in "(_Z|_R|_ZN)?[0-9A-Za-z_.$]{0,200}") {
            proptest::prop_assert!(readable(&name).len() <= MOST);
        }
    }
}
