//! Which of an object's programs this kernel takes: they are loaded, never attached, and let go.

use libbpf_rs::OpenObject;
use libbpf_rs::skel::OpenSkel;

use super::libbpf;
use crate::refusal::plain;

/// A load that failed, and what is known of the programs that were loaded before the one that was refused.
pub(super) struct Refused<T> {
    pub reason: String,
    pub before: Vec<T>,
}

impl<T, E: Into<anyhow::Error>> From<E> for Refused<T> {
    fn from(error: E) -> Self {
        Self { reason: format!("{:#}", error.into()), before: Vec::new() }
    }
}

/// Loads the named programs, and says something of each.
pub(super) type Load<'a, T> = dyn FnMut(&[String]) -> Result<Vec<T>, Refused<T>> + 'a;

/// Tries the programs, which are in the order of the object, and says of each what `load` says of it, or why the
/// kernel refuses it.
///
/// One load takes longer for the search for the kernel's types than for most programs, so that all are tried at once.
/// libbpf gives up at the first program that is refused: the others are tried again without it. Where libbpf names no
/// program, each half is tried by itself.
pub(super) fn each<T>(names: &[String], load: &mut Load<'_, T>) -> Vec<Result<T, String>> {
    if names.is_empty() {
        return Vec::new();
    }
    libbpf::listen();
    let Refused { reason, before } = match load(names) {
        Ok(loaded) => return loaded.into_iter().map(Ok).collect(),
        Err(refused) => refused,
    };
    if let [_] = names {
        return vec![Err(reason)];
    }
    let named = libbpf::refused_program();
    let Some(at) = names.iter().position(|name| Some(name) == named.as_ref()) else {
        let (first, second) = names.split_at(names.len() / 2);
        let mut all = each(first, load);
        all.extend(each(second, load));
        return all;
    };
    let mut all: Vec<Result<T, String>>;
    if before.len() == at {
        all = before.into_iter().map(Ok).collect();
        all.push(Err(reason));
        all.extend(each(&names[at + 1..], load));
    } else {
        let others: Vec<String> = names.iter().filter(|name| **name != names[at]).cloned().collect();
        all = each(&others, load);
        all.insert(at, Err(reason));
    }
    all
}

/// Only the named programs are to be loaded.
pub(super) fn choose(object: &mut OpenObject, names: &[String]) {
    for mut program in object.progs_mut() {
        let wanted = names.iter().any(|name| program.name() == name.as_str());
        program.set_autoload(wanted);
    }
}

/// Loads the named programs of a skeleton, and lets them go.
pub(super) fn load<'obj>(mut open: impl OpenSkel<'obj>, names: &[String]) -> Result<Vec<()>, Refused<()>> {
    choose(open.open_object_mut(), names);
    match open.load() {
        Ok(_) => Ok(vec![(); names.len()]),
        Err(error) => {
            let reason = libbpf::last_words().unwrap_or_else(|| plain(&error.to_string()));
            Err(Refused { reason, before: Vec::new() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(of: &str) -> Vec<String> {
        of.split(' ').map(str::to_string).collect()
    }

    /// What a kernel does that refuses `b` and `e`, where libbpf names no program.
    #[test]
    fn without_a_name_each_half_is_tried() {
        let mut loads = 0;
        let all = each(&names("a b c d e"), &mut |tried| {
            loads += 1;
            match tried.iter().any(|name| name == "b" || name == "e") {
                true => Err(Refused { reason: "refused".to_string(), before: Vec::new() }),
                false => Ok(tried.to_vec()),
            }
        });
        let taken: Vec<&str> = all.iter().flatten().map(String::as_str).collect();
        assert_eq!(taken, ["a", "c", "d"]);
        assert_eq!(
            (all[1].clone(), all[4].clone()),
            (Err("refused".to_string()), Err("refused".to_string()))
        );
        assert_eq!(loads, 9);
    }
}
