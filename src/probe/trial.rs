//! Tries which programs of an object this kernel accepts: loads them, attaches none, and closes them.

use libbpf_rs::OpenObject;
use libbpf_rs::skel::OpenSkel;

use super::libbpf;
use crate::refusal::plain;

/// One value per program in the order of the names, or the result of a failed load.
pub type TrialResult<T> = Result<Vec<T>, TrialFailure<T>>;

/// Loads the named programs of an object.
pub type ProgramLoader<'a, T> = dyn FnMut(&[String]) -> TrialResult<T> + 'a;

/// A load that failed.
pub struct TrialFailure<T> {
    /// The program that libbpf failed to load, if libbpf names one.
    pub program: Option<String>,
    pub reason: String,
    /// The values of the programs that were loaded before it, as far as the loader can return them.
    pub before: Vec<T>,
}

impl<T, E: Into<anyhow::Error>> From<E> for TrialFailure<T> {
    fn from(error: E) -> Self {
        Self { program: None, reason: format!("{:#}", error.into()), before: Vec::new() }
    }
}

/// Tries all programs of `names`, which has the order of the object. Returns for each the value that `load` returns, or
/// why it was refused.
///
/// All are loaded at once, because libbpf's search for the kernel's types takes longer than most programs. libbpf stops
/// at the first program that is refused; the others are loaded again without it. If libbpf names no program, each half
/// is tried separately.
pub fn each<T>(names: &[String], load: &mut ProgramLoader<'_, T>) -> Vec<Result<T, String>> {
    if names.is_empty() {
        return Vec::new();
    }
    libbpf::listen();
    let refused = match load(names) {
        Ok(loaded) => return loaded.into_iter().map(Ok).collect(),
        Err(refused) => refused,
    };
    if let [_] = names {
        return vec![Err(refused.reason)];
    }
    let Some(at) = names.iter().position(|name| Some(name) == refused.program.as_ref()) else {
        let (first, second) = names.split_at(names.len() / 2);
        let mut all = each(first, load);
        all.extend(each(second, load));
        return all;
    };
    let mut all: Vec<Result<T, String>>;
    if refused.before.len() == at {
        all = refused.before.into_iter().map(Ok).collect();
        all.push(Err(refused.reason));
        all.extend(each(&names[at + 1..], load));
    } else {
        let mut others = names.to_vec();
        others.remove(at);
        all = each(&others, load);
        all.insert(at, Err(refused.reason));
    }
    all
}

/// Selects the named programs, and only these, for loading.
pub fn select(object: &mut OpenObject, names: &[String]) {
    for mut program in object.progs_mut() {
        let selected = names.iter().any(|name| program.name() == name.as_str());
        program.set_autoload(selected);
    }
}

/// Loads the named programs of a skeleton, and closes it.
pub fn load<'obj>(mut open: impl OpenSkel<'obj>, names: &[String]) -> TrialResult<()> {
    select(open.open_object_mut(), names);
    match open.load() {
        Ok(_) => Ok(vec![(); names.len()]),
        Err(error) => Err(TrialFailure {
            program: libbpf::refused_program(),
            reason: libbpf::last_words().unwrap_or_else(|| plain(&error.to_string())),
            before: Vec::new(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a failed load reports about its programs.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Report {
        Nothing,
        Name,
        NameAndBefore,
    }

    /// Tries `a` to `e` on a kernel that refuses `b` and `e`. Returns the number of loads.
    fn loads(report: Report) -> usize {
        let names: Vec<String> = ["a", "b", "c", "d", "e"].map(str::to_string).to_vec();
        let mut loads = 0;
        let all = each(&names, &mut |tried| {
            loads += 1;
            let Some(at) = tried.iter().position(|name| name == "b" || name == "e") else {
                return Ok(tried.to_vec());
            };
            Err(TrialFailure {
                program: Some(tried[at].clone()).filter(|_| report != Report::Nothing),
                reason: format!("no {}", tried[at]),
                before: if report == Report::NameAndBefore { tried[..at].to_vec() } else { Vec::new() },
            })
        });
        let text = |result: &Result<String, String>| result.clone().unwrap_or_else(|reason| reason);
        assert_eq!(all.iter().map(text).collect::<Vec<_>>(), ["a", "no b", "c", "d", "no e"]);
        loads
    }

    #[test]
    fn each_program_has_its_own_answer() {
        assert_eq!(loads(Report::Nothing), 9);
        assert_eq!(loads(Report::Name), 3);
        assert_eq!(loads(Report::NameAndBefore), 2);
    }
}
