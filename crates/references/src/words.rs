//! Words: what a person types on a command line, with the references in it.
//!
//! A word counts only if it names something that is there; everything else stays the text that it was, so that an address,
//! a decorator or the number of an issue is never taken for anything.
//! Invariant: the segments, read in order, are the text (`nothing_of_a_text_is_lost`).

use minke_record::InputSegment;

use crate::is_slug;
use crate::path::readings;

/// What stands at the end of a word and is not of its name.
const PUNCTUATION: [char; 11] = ['.', ',', ';', ':', '!', '?', ')', ']', '}', '\'', '"'];
/// How many of these are taken away.
const TRAILING: usize = 8;

/// What there is to refer to.
pub trait Known {
    /// Whether something lies at a path.
    fn file(&self, path: &str) -> bool;
    fn knowledge(&self, slug: &str) -> bool;
    fn workflow(&self, slug: &str) -> bool;
    fn skill(&self, name: &str) -> bool;
}

/// A text with its references.
pub fn segments(text: &str, known: &dyn Known) -> Vec<InputSegment> {
    let mut found = Vec::new();
    let mut rest = text;
    if let Some((segment, behind)) = command(text, known) {
        found.push(segment);
        rest = behind;
    }
    let mut plain = String::new();
    let mut begins = true;
    while let Some(c) = rest.chars().next() {
        let reference = if begins { reference(rest, known) } else { None };
        if let Some((segment, behind)) = reference {
            if !plain.is_empty() {
                found.push(InputSegment::text(std::mem::take(&mut plain)));
            }
            found.push(segment);
            (rest, begins) = (behind, false);
            continue;
        }
        plain.push(c);
        begins = c.is_whitespace() || c == '(';
        rest = rest.get(c.len_utf8()..).unwrap_or_default();
    }
    if !plain.is_empty() || found.is_empty() {
        found.push(InputSegment::text(plain));
    }
    found
}

/// `/slug` at the beginning.
fn command<'t>(text: &'t str, known: &dyn Known) -> Option<(InputSegment, &'t str)> {
    let rest = text.strip_prefix('/')?;
    let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
    let (name, behind) = (rest.get(..end)?, rest.get(end..)?);
    if !is_slug(name) {
        return None;
    }
    let segment = if known.workflow(name) {
        InputSegment::WorkflowInvoke { slug: name.to_owned() }
    } else if known.skill(name) {
        InputSegment::SkillRef { name: name.to_owned() }
    } else {
        return None;
    };
    Some((segment, behind))
}

/// `@path` or `#slug` at the beginning of a word.
fn reference<'t>(text: &'t str, known: &dyn Known) -> Option<(InputSegment, &'t str)> {
    if let Some(rest) = text.strip_prefix('#') {
        let slug = |c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        let end = rest.find(slug).unwrap_or(rest.len());
        let (slug, behind) = (rest.get(..end)?, rest.get(end..)?);
        let whole = behind.chars().next().is_none_or(|c| c.is_whitespace() || PUNCTUATION.contains(&c));
        return (whole && is_slug(slug) && known.knowledge(slug))
            .then(|| (InputSegment::KnowledgeRef { slug: slug.to_owned() }, behind));
    }
    let rest = text.strip_prefix('@')?;
    let exists = |path: &str| {
        let meant = readings(path).unwrap_or_default();
        meant.iter().any(|meant| known.file(&meant.path))
    };
    let mut end = match rest.strip_prefix('"') {
        Some(quoted) => {
            let close = quoted.find('"')? + 2;
            let behind = rest.get(close..)?;
            close + behind.find(char::is_whitespace).unwrap_or(behind.len())
        }
        None => rest.find(char::is_whitespace).unwrap_or(rest.len()),
    };
    for _ in 0..=TRAILING {
        let path = rest.get(..end)?;
        if path.is_empty() {
            return None;
        }
        if exists(path) {
            return Some((InputSegment::FileRef { path: path.to_owned() }, rest.get(end..)?));
        }
        let last = path.chars().next_back().filter(|c| PUNCTUATION.contains(c))?;
        end -= last.len_utf8();
    }
    None
}

#[cfg(test)]
mod tests {
    use minke_record::{Content, Text};

    use super::*;

    struct Here;

    impl Known for Here {
        fn file(&self, path: &str) -> bool {
            ["a.rs", "src", "a b.rs", "x:1"].contains(&path)
        }
        fn knowledge(&self, slug: &str) -> bool {
            slug == "api"
        }
        fn workflow(&self, slug: &str) -> bool {
            slug == "release"
        }
        fn skill(&self, name: &str) -> bool {
            name == "pdf" || name == "release"
        }
    }

    fn kinds(text: &str) -> Vec<String> {
        let written = |segment: &InputSegment| {
            serde_json::to_value(segment).unwrap()["kind"].as_str().unwrap().to_owned()
        };
        segments(text, &Here).iter().map(written).collect()
    }

    #[test]
    fn only_what_is_there_is_a_reference() {
        for text in [
            "mail me@a.rs",
            "@nobody",
            "@",
            "@@a.rs",
            "#12",
            "#",
            "# api",
            "/etc/passwd is a file",
            "/unknown x",
            "x /release",
            "see #api-2 and #API",
            "@property def x",
            "a@src",
            "@\"a b",
            "@\"\"",
            "/",
            "//release",
            "",
            "@a.rs:x",
            "#apis",
            "@\u{0}",
            "(#",
            "🐋@a.rs",
        ] {
            assert_eq!(kinds(text), ["text"], "{text}");
        }
        for (text, expected) in [
            ("@a.rs", &["file_ref"][..]),
            ("look at @a.rs, please", &["text", "file_ref", "text"]),
            ("(@src)", &["text", "file_ref", "text"]),
            ("@a.rs:10-20 and @x:1", &["file_ref", "text", "file_ref"]),
            ("@\"a b.rs\":3.", &["file_ref", "text"]),
            ("is #api? yes", &["text", "knowledge_ref", "text"]),
            ("/release now", &["workflow_invoke", "text"]),
            ("/pdf @a.rs", &["skill_ref", "text", "file_ref"]),
        ] {
            assert_eq!(kinds(text), expected, "{text}");
        }
    }

    #[test]
    fn nothing_of_a_text_is_lost() {
        for text in ["look at @a.rs, @\"a b.rs\":3. #api!\n@src", "/release @src", "", "plain", "@a.rs @a.rs"]
        {
            let parts = segments(text, &Here);
            let whole: String = parts
                .iter()
                .map(|segment| match segment.flatten() {
                    Content::Text { text: Text::Here(text) } => text,
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(whole, text);
        }
    }
}
