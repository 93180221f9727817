//! Project instructions: what people wrote for every agent that works in their project.
//!
//! Here: how many of them fit, and how they are shown to a model. Elsewhere: finding and reading them (`sources`).
//! Invariant: together they are at most `PROJECT_BYTES`, the nearest are kept whole the longest, and what is cut says so
//! (`the_nearest_are_kept_and_a_cut_is_seen`).

use crate::catalog::{Catalog, Snippet};

/// How long project instructions are together.
pub const PROJECT_BYTES: usize = 64 << 10;

/// One file of instructions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectFile {
    /// Where it lies.
    pub path: String,
    pub text: String,
    /// How many bytes there are in all; more than the text has if only its beginning was read.
    pub bytes: u64,
}

/// What is left when instructions must be short.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Fitted {
    /// Outermost first.
    pub files: Vec<ProjectFile>,
    /// Paths of which only the beginning is there.
    pub cut: Vec<String>,
    /// Paths of which nothing is there.
    pub dropped: Vec<String>,
}

/// Takes whole files from the nearest outwards until `room` is full; the one that no longer fits is cut, those beyond it
/// are left out. Given and returned outermost first.
pub fn fit(files: Vec<ProjectFile>, room: usize) -> Fitted {
    let (mut fitted, mut left) = (Fitted::default(), room);
    for mut file in files.into_iter().rev() {
        if file.text.trim().is_empty() {
            continue;
        }
        if left == 0 {
            fitted.dropped.push(file.path);
            continue;
        }
        let whole = file.text.len() <= left && file.bytes <= file.text.len() as u64;
        if !whole {
            let kept = file.text.floor_char_boundary(left);
            file.text.truncate(kept);
            fitted.cut.push(file.path.clone());
            left = 0;
        } else {
            left -= file.text.len();
        }
        fitted.files.push(file);
    }
    fitted.files.reverse();
    fitted
}

/// The part of a system prompt that shows them; empty if there are none.
pub fn project_part(fitted: &Fitted, catalog: &Catalog) -> String {
    if fitted.files.is_empty() {
        return String::new();
    }
    let mut part = catalog.say(Snippet::Project, &[]);
    for file in &fitted.files {
        part.push_str(&format!("\n\n## {}\n{}", file.path, file.text.trim_end()));
        if fitted.cut.contains(&file.path) {
            let shown = file.text.len();
            part.push_str(&format!(
                "\n[cut here: {shown} of {} bytes are shown; read the file for the rest]",
                file.bytes
            ));
        }
    }
    part
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, text: &str) -> ProjectFile {
        ProjectFile { path: path.to_owned(), text: text.to_owned(), bytes: text.len() as u64 }
    }

    #[test]
    fn the_nearest_are_kept_and_a_cut_is_seen() {
        let files = || vec![file("/a", "aaaa"), file("/a/b", "ääää"), file("/a/b/c", "cc")];
        let all = fit(files(), 64);
        assert_eq!((all.files.len(), all.cut.len(), all.dropped.len()), (3, 0, 0));
        assert!(
            project_part(&all, &Catalog::default())
                .ends_with("## /a\naaaa\n\n## /a/b\nääää\n\n## /a/b/c\ncc")
        );
        let some = fit(files(), 7);
        assert_eq!(some.files.iter().map(|file| file.text.as_str()).collect::<Vec<_>>(), ["ää", "cc"]);
        assert_eq!((some.cut, some.dropped), (vec!["/a/b".to_owned()], vec!["/a".to_owned()]));
        let part = project_part(&fit(files(), 7), &Catalog::default());
        assert!(part.contains("ää\n[cut here: 4 of 8 bytes are shown"), "{part}");
        assert_eq!(project_part(&fit(vec![file("/a", " \n")], 7), &Catalog::default()), "");
    }

    #[test]
    fn what_was_only_read_in_part_counts_as_cut() {
        let long = ProjectFile { bytes: 100, ..file("/a", "aaaa") };
        let fitted = fit(vec![file("/", "x"), long], 64);
        assert_eq!((fitted.cut, fitted.dropped), (vec!["/a".to_owned()], vec!["/".to_owned()]));
    }
}
