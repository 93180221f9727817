//! Finds references in a command line that the user typed.
//!
//! A word is a reference only if its target exists. All other text is unchanged, so that an e-mail address, a decorator
//! or an issue number is never mistaken for a reference.
//! Invariant: the segments, joined in order, are the text (`nothing_of_a_text_is_lost`).

use minke_record::InputSegment;

use crate::is_slug;
use crate::path::parse_path_reference;

/// Punctuation after a word that is not part of its name.
const PUNCTUATION: [char; 11] = ['.', ',', ';', ':', '!', '?', ')', ']', '}', '\'', '"'];
/// The most trailing punctuation characters that are removed.
const MAX_TRAILING: usize = 8;

/// The existing targets of references.
pub trait KnownReferences {
    /// Whether a path exists.
    fn has_file(&self, path: &str) -> bool;
    fn has_knowledge(&self, slug: &str) -> bool;
    fn has_workflow(&self, slug: &str) -> bool;
    fn has_skill(&self, name: &str) -> bool;
}

/// Splits a text into segments.
pub fn split_segments(text: &str, known: &dyn KnownReferences) -> Vec<InputSegment> {
    let mut found = Vec::new();
    let mut rest = text;
    if let Some((segment, behind)) = parse_command(text, known) {
        found.push(segment);
        rest = behind;
    }
    let mut plain = String::new();
    let mut begins = true;
    while let Some(c) = rest.chars().next() {
        let reference = if begins { parse_reference(rest, known) } else { None };
        if let Some((segment, behind)) = reference {
            if !plain.is_empty() {
                found.push(InputSegment::from_text(std::mem::take(&mut plain)));
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
        found.push(InputSegment::from_text(plain));
    }
    found
}

/// Parses `/slug` at the beginning.
fn parse_command<'t>(text: &'t str, known: &dyn KnownReferences) -> Option<(InputSegment, &'t str)> {
    let rest = text.strip_prefix('/')?;
    let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
    let (name, behind) = (rest.get(..end)?, rest.get(end..)?);
    if !is_slug(name) {
        return None;
    }
    let segment = if known.has_workflow(name) {
        InputSegment::WorkflowInvoke { slug: name.to_owned() }
    } else if known.has_skill(name) {
        InputSegment::SkillRef { name: name.to_owned() }
    } else {
        return None;
    };
    Some((segment, behind))
}

/// Parses `@path` or `#slug` at the beginning of a word.
fn parse_reference<'t>(text: &'t str, known: &dyn KnownReferences) -> Option<(InputSegment, &'t str)> {
    if let Some(rest) = text.strip_prefix('#') {
        let slug = |c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
        let end = rest.find(slug).unwrap_or(rest.len());
        let (slug, behind) = (rest.get(..end)?, rest.get(end..)?);
        let whole = behind.chars().next().is_none_or(|c| c.is_whitespace() || PUNCTUATION.contains(&c));
        return (whole && is_slug(slug) && known.has_knowledge(slug))
            .then(|| (InputSegment::KnowledgeRef { slug: slug.to_owned() }, behind));
    }
    let rest = text.strip_prefix('@')?;
    let exists = |path: &str| {
        let meant = parse_path_reference(path).unwrap_or_default();
        meant.iter().any(|meant| known.has_file(&meant.path))
    };
    let mut end = match rest.strip_prefix('"') {
        Some(quoted) => {
            let close = quoted.find('"')? + 2;
            let behind = rest.get(close..)?;
            close + behind.find(char::is_whitespace).unwrap_or(behind.len())
        }
        None => rest.find(char::is_whitespace).unwrap_or(rest.len()),
    };
    for _ in 0..=MAX_TRAILING {
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

    struct FixedReferences;

    impl KnownReferences for FixedReferences {
        fn has_file(&self, path: &str) -> bool {
            ["a.rs", "src", "a b.rs", "x:1"].contains(&path)
        }
        fn has_knowledge(&self, slug: &str) -> bool {
            slug == "api"
        }
        fn has_workflow(&self, slug: &str) -> bool {
            slug == "release"
        }
        fn has_skill(&self, name: &str) -> bool {
            name == "pdf" || name == "release"
        }
    }

    fn segment_kinds(text: &str) -> Vec<String> {
        let written = |segment: &InputSegment| {
            serde_json::to_value(segment).unwrap()["kind"].as_str().unwrap().to_owned()
        };
        split_segments(text, &FixedReferences).iter().map(written).collect()
    }

    #[test]
    fn only_what_is_there_is_a_reference() {
        for text in [
            "mail me@a.rs",
            "@no-such-file",
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
            assert_eq!(segment_kinds(text), ["text"], "{text}");
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
            assert_eq!(segment_kinds(text), expected, "{text}");
        }
    }

    #[test]
    fn nothing_of_a_text_is_lost() {
        for text in ["look at @a.rs, @\"a b.rs\":3. #api!\n@src", "/release @src", "", "plain", "@a.rs @a.rs"]
        {
            let parts = split_segments(text, &FixedReferences);
            let whole: String = parts
                .iter()
                .map(|segment| match segment.to_content() {
                    Content::Text { text: Text::Inline(text) } => text,
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(whole, text);
        }
    }
}
