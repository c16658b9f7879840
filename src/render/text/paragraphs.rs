//! Wraps and clips text to a given width.

use super::fitted;

/// Text after a prefix, wrapped and indented to the prefix's width.
pub fn paragraph(out: &mut String, prefix: &str, text: &str, width: usize) {
    let indent = prefix.chars().count();
    for (i, line) in wrap(text, width.saturating_sub(indent)).iter().enumerate() {
        let lead = if i == 0 { prefix.to_string() } else { " ".repeat(indent) };
        out.push_str(&format!("{lead}{line}\n"));
    }
}

/// Breaks at spaces, not at no-break spaces, which become spaces; a longer word stays whole.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        let line = &mut lines[last];
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else if !word.is_empty() {
            lines.push(word.to_string());
        }
    }
    lines.into_iter().map(|line| line.replace('\u{a0}', " ")).collect()
}

/// A text and its suffix in at most `most` lines. A text that is too long ends at a clause or, if that would keep too
/// little, after a word with `...`; the suffix is kept.
pub fn clip(text: &str, suffix: &str, width: usize, most: usize) -> Vec<String> {
    let words = text.split(' ').map(|word| fitted(word, width));
    let text = words.collect::<Vec<_>>().join(" ");
    let fit = |text: String| {
        let lines = wrap(&(text + suffix), width);
        (lines.len() <= most && lines.iter().all(|line| line.chars().count() <= width)).then_some(lines)
    };
    let clause = |at: usize| fit(text[..at].to_string());
    let part = |at: usize| fit(format!("{}...", text[..at].trim_end_matches([' ', ',', ';', ':'])));
    // A clause of a few words says too little.
    let least = width * most / 3;
    let long_enough = |at: &usize| text[..*at].chars().count() >= least;
    fit(text.clone())
        .or_else(|| clauses(&text).into_iter().rev().filter(long_enough).find_map(clause))
        .or_else(|| text.match_indices(' ').map(|(at, _)| at).rev().filter(long_enough).find_map(part))
        .or_else(|| text.char_indices().map(|(at, _)| at).rev().find_map(part))
        .unwrap_or_default()
}

/// Whether [`clip`] keeps everything.
pub fn is_whole(text: &str, suffix: &str, width: usize, most: usize) -> bool {
    clip(text, suffix, width, most) == wrap(&format!("{text}{suffix}"), width)
}

/// Ends of a text's clauses as byte offsets: the text before must be complete by itself, which excludes commas. None
/// within brackets.
fn clauses(text: &str) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ => {}
        }
        let is_end = ["; ", ": ", ". "].iter().any(|mark| text[at..].starts_with(mark));
        ends.extend((depth == 0 && is_end).then_some(at));
    }
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_break_at_spaces_and_nowhere_else() {
        assert_eq!(wrap("a bc\u{a0}d efghijk l", 5), ["a", "bc d", "efghijk", "l"]);
        assert_eq!(wrap("", 5), [""]);
        // Spaces at the end of a full line do not make a line.
        assert_eq!(
            (wrap("abcde  f", 5), wrap("abcde ", 5)),
            (vec!["abcde".into(), "f".into()], vec!["abcde".into()])
        );
        let mut out = String::new();
        paragraph(&mut out, "  - ", "one two three", 11);
        assert_eq!(out, "  - one two\n    three\n");
    }

    #[test]
    fn a_text_that_is_too_long_ends_at_a_clause() {
        let text = "the device held 1,204 I/Os (of 2,048, at most), and no more; ask the host";
        assert_eq!(clip(text, ".", 80, 1).concat(), format!("{text}."));
        assert_eq!(
            clip(text, ".", 72, 1).concat(),
            "the device held 1,204 I/Os (of 2,048, at most), and no more."
        );
        // A text before a comma is not a sentence, and a clause that would be too short is not used.
        assert_eq!(clip(text, "", 50, 1).concat(), "the device held 1,204 I/Os (of 2,048, at most)...");
        assert_eq!(clip(text, "", 40, 1).concat(), "the device held 1,204 I/Os (of 2,048...");
        assert_eq!(clip("vda: one two three four five", "!", 20, 1).concat(), "vda: one two...!");
        let lines = clip(text, " (sure)", 36, 2);
        assert_eq!(lines, ["the device held 1,204 I/Os (of", "2,048, at most), and no more (sure)"]);
        // Nor a text within brackets.
        assert_eq!(clip("held: 12 of (64; 32) and more; x", "", 20, 1).concat(), "held: 12 of (64...");
        assert!(is_whole(text, "", 80, 1) && !is_whole(text, "", 72, 1));
    }

    /// A name may have no space at all.
    #[test]
    fn no_word_is_wider_than_the_lines() {
        let long = "x".repeat(300);
        for (text, suffix) in [(long.clone(), " (+1 more)"), (format!("a {long} b"), ""), (String::new(), "")]
        {
            for most in 1..3 {
                let lines = clip(&text, suffix, 40, most);
                assert!(
                    lines.len() <= most && lines.iter().all(|line| line.chars().count() <= 40),
                    "{lines:?}"
                );
                assert!(lines.concat().ends_with(suffix.trim()), "{lines:?}");
            }
        }
    }
}
