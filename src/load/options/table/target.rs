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
        "As TARGET; several with : between them are used in turns by the same job (\\: is a colon of a name)",
        |draft, text| {
            draft.filename = Some(values::files(text)?);
            Ok(())
        },
    ),
    Word::new(
        "directory",
        Takes::Text("DIRECTORY"),
        Section::Target,
        "Where file names begin; without any, each thread has a file named NAME.THREAD.0 there",
        |draft, text| {
            if let [one] = values::files(text)?.as_slice() {
                draft.directory = Some(one.clone());
                return Ok(());
            }
            Err("several directories are not taken: write one (\\: is a colon of its name)".to_string())
        },
    ),
    Word::new(
        "name",
        Takes::Text("NAME"),
        Section::Target,
        "Name of the job; given again, it begins a further one, and what stands before the first is for all",
        |draft, text| {
            draft.job.name = text.to_string();
            Ok(())
        },
    ),
    Word::new(
        "nrfiles",
        Takes::Count,
        Section::Target,
        "Files of each thread, used in turns, where no FILE is named [default: 1]",
        |draft, text| {
            draft.nrfiles = values::count(text, 1, MOST_FILES)?;
            Ok(())
        },
    ),
    Word::new(
        "file_service_type",
        Takes::Words(&["roundrobin", "sequential", "random"]),
        Section::Target,
        "roundrobin: several files are used in turns; the others say the same of one file [default: roundrobin]",
        |draft, text| {
            let words = ["roundrobin", "sequential", "random"];
            draft.in_turns =
                values::one_of(text, &words, |word| words.contains(&word).then_some(word == words[0]))?;
            Ok(())
        },
    ),
    Word::new("description", Takes::Text("TEXT"), Section::Target, "For people; without effect", |_, _| {
        Ok(())
    }),
    Word::new(
        "filesize",
        Takes::Size,
        Section::Target,
        "Length of a file that has to be made; of a longer target, only so much is used",
        |draft, text| {
            draft.job.filesize = Some(values::size(text)?);
            Ok(())
        },
    ),
    Word::new(
        "create_serialize",
        Takes::Switch,
        Section::Target,
        "Files are always made one after the other, before the run; without effect",
        |_, text| values::switch(text).map(|_| ()),
    ),
    Word::new(
        "overwrite",
        Takes::Switch,
        Section::Writing,
        "FILE is there, and its content may be lost. 1, as in fio: a file that has to be made is filled before it is \
         written [default: 0]",
        |draft, text| {
            draft.job.overwrite = values::switch(text)?;
            Ok(())
        },
    ),
    Word::new(
        "readonly",
        Takes::Flag,
        Section::Writing,
        "Refuse jobs that write or trim, whatever else is said",
        |draft, text| {
            draft.readonly = values::switch(text)?;
            Ok(())
        },
    ),
];
