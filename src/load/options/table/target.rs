//! Options of the target, and permissions to write.

use super::super::values;
use super::{Section, Takes, Word};

/// Each file is open while the load runs.
const MOST_FILES: u32 = 1000;

pub(super) const WORDS: &[Word] = &[
    Word::new(
        "filename",
        Takes::Text("FILE[:FILE...]"),
        Section::Target,
        "As TARGET; several, separated by :, are used in turn by the same job (\\: is a colon in a name)",
        |draft, text| {
            draft.filename = Some(values::files(text)?);
            Ok(())
        },
    ),
    Word::new(
        "directory",
        Takes::Text("DIRECTORY"),
        Section::Target,
        "Directory of the file names; without any, each thread has a file NAME.THREAD.0 there",
        |draft, text| {
            if let [one] = values::files(text)?.as_slice() {
                draft.directory = Some(one.clone());
                return Ok(());
            }
            Err("several directories are not supported: write one (\\: is a colon in its name)".to_string())
        },
    ),
    Word::new(
        "name",
        Takes::Text("NAME"),
        Section::Target,
        "Name of the job; each further --name starts another job, and options before the first apply to all",
        |draft, text| {
            draft.job.name = text.to_string();
            Ok(())
        },
    ),
    Word::new(
        "nrfiles",
        Takes::Count,
        Section::Target,
        "Files of each thread, used in turn, if no FILE is named [default: 1]",
        |draft, text| {
            draft.nrfiles = values::count(text, 1, MOST_FILES)?;
            Ok(())
        },
    ),
    Word::new(
        "file_service_type",
        Takes::Words(&["roundrobin", "sequential", "random"]),
        Section::Target,
        "roundrobin: use several files in turn; the others are the same for one file [default: roundrobin]",
        |draft, text| {
            let words = ["roundrobin", "sequential", "random"];
            draft.in_turns =
                values::one_of(text, &words, |word| words.contains(&word).then_some(word == words[0]))?;
            Ok(())
        },
    ),
    Word::new("description", Takes::Text("TEXT"), Section::Target, "Comment; no effect", |_, _| Ok(())),
    Word::new(
        "filesize",
        Takes::Size,
        Section::Target,
        "Length of a file to create; of a longer target, only this much is used",
        |draft, text| {
            draft.job.filesize = Some(values::size(text)?);
            Ok(())
        },
    ),
    Word::new(
        "create_serialize",
        Takes::Switch,
        Section::Target,
        "No effect, as files are always created one after the other, before the run",
        |_, text| values::switch(text).map(|_| ()),
    ),
    Word::new(
        "overwrite",
        Takes::Switch,
        Section::Writing,
        "Allow overwriting the existing FILE, whose content is lost. 1, as in fio: fill a new file before \
         it is written [default: 0]",
        |draft, text| {
            draft.job.overwrite = values::switch(text)?;
            Ok(())
        },
    ),
    Word::new(
        "readonly",
        Takes::Flag,
        Section::Writing,
        "Refuse jobs that write or trim, whatever other options say",
        |draft, text| {
            draft.readonly = values::switch(text)?;
            Ok(())
        },
    ),
];
