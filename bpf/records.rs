//! Generates the Rust types of the records that the kernel side sends, `struct wire_*`, from the skeletons, which
//! contain the types of the compiled objects. So each record is declared once, in `bpf/wire.h` and `bpf/wire/`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::{Context as _, Result, bail};
use syn::{Expr, Fields, Item, ItemStruct, Lit, Type};

/// Only types with this prefix are generated.
const PREFIX: &str = "wire_";

/// Generates the records of all skeletons, sorted by name. A record in several objects must be the same in each.
///
/// # Errors
/// If a skeleton is not Rust, if two disagree, or if a field has a type without a Rust counterpart of the same layout
/// for any bytes.
pub fn generate(skeletons: &[String]) -> Result<String> {
    let mut records: BTreeMap<String, Vec<(String, String)>> = BTreeMap::new();
    for text in skeletons {
        for item in structs(&syn::parse_file(text)?.items) {
            let name = item.ident.to_string();
            let fields = fields(item).with_context(|| format!("struct {name}"))?;
            if records.get(&name).is_some_and(|known| *known != fields) {
                bail!("struct {name} is not the same in all objects");
            }
            records.insert(name, fields);
        }
    }
    let mut out = String::new();
    for (name, fields) in &records {
        let rust = type_name(name);
        writeln!(out, "/// `struct {name}`.\n#[repr(C)]\n{DERIVES}\npub struct {rust} {{")?;
        for (field, of) in fields {
            writeln!(out, "    pub {field}: {of},")?;
        }
        writeln!(
            out,
            "}}\n\nimpl Default for {rust} {{\n    fn default() -> Self {{ FromZeros::new_zeroed() }}\n}}\n"
        )?;
        writeln!(out, "impl Record for {rust} {{\n    const NAME: &'static str = \"{name}\";\n}}\n")?;
        let each = |method: &str| -> String {
            fields
                .iter()
                .map(|(field, _)| format!("{field}: self.{field}.{method}(&other.{field}), "))
                .collect()
        };
        writeln!(out, "impl Count for {rust} {{")?;
        for method in ["since", "plus"] {
            let each = each(method);
            writeln!(out, "    fn {method}(&self, other: &Self) -> Self {{ Self {{ {each}}} }}")?;
        }
        writeln!(out, "}}\n")?;
    }
    Ok(out)
}

const DERIVES: &str = "#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]";

/// `wire_lock_cpu` becomes `WireLockCpu`.
fn type_name(name: &str) -> String {
    let word = |word: &str| word[..1].to_uppercase() + &word[1..];
    name.split('_').map(word).collect()
}

/// The matching structs in all modules.
fn structs<'a>(items: &'a [Item]) -> Vec<&'a ItemStruct> {
    let of_item = |item: &'a Item| match item {
        Item::Struct(found) if found.ident.to_string().starts_with(PREFIX) => vec![found],
        Item::Mod(module) => module.content.as_ref().map_or(Vec::new(), |(_, items)| structs(items)),
        _ => Vec::new(),
    };
    items.iter().flat_map(of_item).collect()
}

fn fields(item: &ItemStruct) -> Result<Vec<(String, String)>> {
    let Fields::Named(named) = &item.fields else { bail!("its fields have no names") };
    let field = |field: &syn::Field| {
        let name = field.ident.as_ref().map(ToString::to_string).unwrap_or_default();
        // The names of padding and bit fields start with an underscore.
        let name = name.trim_start_matches('_').to_string();
        let of = rust_type(&field.ty).with_context(|| format!("field {name}"))?;
        Ok((name, of))
    };
    named.named.iter().map(field).collect()
}

fn rust_type(of: &Type) -> Result<String> {
    match of {
        Type::Array(array) => {
            let Expr::Lit(length) = &array.len else { bail!("the length of its array is no number") };
            let Lit::Int(length) = &length.lit else { bail!("the length of its array is no number") };
            Ok(format!("[{}; {}]", rust_type(&array.elem)?, length.base10_digits()))
        }
        Type::Path(path) => match path.path.require_ident()?.to_string().as_str() {
            // A task's name, which may contain any bytes.
            "i8" => Ok("u8".to_string()),
            plain @ ("u8" | "u16" | "u32" | "u64") => Ok(plain.to_string()),
            record if record.starts_with(PREFIX) => Ok(type_name(record)),
            other => bail!("{other} is no number and no record"),
        },
        _ => bail!("it is no number, no array and no record"),
    }
}
