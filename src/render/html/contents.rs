//! The sections of the page, and the table of contents at its top.

/// A part of the page with a heading.
pub struct Section {
    title: &'static str,
    body: String,
}

impl Section {
    /// None if there is nothing to show.
    pub fn new(title: &'static str, body: String) -> Option<Self> {
        (!body.is_empty()).then_some(Self { title, body })
    }

    /// The section's anchor: `Where the time goes` is `where-the-time-goes`.
    fn anchor(&self) -> String {
        self.title.to_lowercase().replace(' ', "-")
    }

    pub fn render(&self) -> String {
        format!("<section id=\"{}\">\n<h2>{}</h2>\n{}</section>\n", self.anchor(), self.title, self.body)
    }
}

/// Links to the sections, in order.
pub fn list(sections: &[Section]) -> String {
    let links: String = sections
        .iter()
        .map(|section| format!("<li><a href=\"#{}\">{}</a></li>\n", section.anchor(), section.title))
        .collect();
    format!("<nav aria-label=\"Contents\">\n<ol>\n{links}</ol>\n</nav>\n")
}

/// A collapsed block that opens by a click on `summary`; both are markup.
pub fn folded(summary: &str, body: &str) -> String {
    format!("<details>\n<summary>{summary}</summary>\n{body}</details>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_names_the_sections_that_are_there() {
        let sections: Vec<Section> = [("Where the time goes", "<p>x</p>"), ("Locks", "")]
            .into_iter()
            .filter_map(|(title, body)| Section::new(title, body.to_string()))
            .collect();
        let list = list(&sections);
        assert!(list.contains("<a href=\"#where-the-time-goes\">Where the time goes</a>"), "{list}");
        assert!(!list.contains("Locks"), "{list}");
        assert!(sections[0].render().starts_with("<section id=\"where-the-time-goes\">"));
    }
}
