//! Project instructions: files that users wrote for every agent in their project.
//!
//! Elsewhere: finding and reading them (`sources`).
//! Invariant: together they have at most `MAX_PROJECT_BYTES`, the nearest are truncated last, and truncation
//! is marked (`the_nearest_are_kept_and_a_cut_is_seen`).

use crate::catalog::{Snippet, SnippetCatalog};

/// Maximum total size of project instructions.
pub const MAX_PROJECT_BYTES: usize = 64 << 10;

/// An instruction file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectFile {
    /// The path of the file.
    pub path: String,
    pub text: String,
    /// The full size; larger than `text` if only a prefix was read.
    pub bytes: u64,
}

/// The instruction files within the size limit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FittedInstructions {
    /// Outermost first.
    pub files: Vec<ProjectFile>,
    /// Paths of truncated files.
    pub cut: Vec<String>,
    /// Paths of omitted files.
    pub dropped: Vec<String>,
}

/// Keeps whole files from the nearest outwards until `room` is used; truncates the next one and omits the
/// others. Input and output are outermost first.
pub fn fit_project_files(files: Vec<ProjectFile>, room: usize) -> FittedInstructions {
    let (mut fitted, mut left) = (FittedInstructions::default(), room);
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

/// Returns the section of the system prompt with the files; empty if there are none.
pub fn project_section(fitted: &FittedInstructions, catalog: &SnippetCatalog) -> String {
    if fitted.files.is_empty() {
        return String::new();
    }
    let mut part = catalog.render(Snippet::Project, &[]);
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

    fn project_file(path: &str, text: &str) -> ProjectFile {
        ProjectFile { path: path.to_owned(), text: text.to_owned(), bytes: text.len() as u64 }
    }

    #[test]
    fn the_nearest_are_kept_and_a_cut_is_seen() {
        let files =
            || vec![project_file("/a", "aaaa"), project_file("/a/b", "ääää"), project_file("/a/b/c", "cc")];
        let all = fit_project_files(files(), 64);
        assert_eq!((all.files.len(), all.cut.len(), all.dropped.len()), (3, 0, 0));
        assert!(
            project_section(&all, &SnippetCatalog::default())
                .ends_with("## /a\naaaa\n\n## /a/b\nääää\n\n## /a/b/c\ncc")
        );
        let some = fit_project_files(files(), 7);
        assert_eq!(some.files.iter().map(|file| file.text.as_str()).collect::<Vec<_>>(), ["ää", "cc"]);
        assert_eq!((some.cut, some.dropped), (vec!["/a/b".to_owned()], vec!["/a".to_owned()]));
        let part = project_section(&fit_project_files(files(), 7), &SnippetCatalog::default());
        assert!(part.contains("ää\n[cut here: 4 of 8 bytes are shown"), "{part}");
        assert_eq!(
            project_section(
                &fit_project_files(vec![project_file("/a", " \n")], 7),
                &SnippetCatalog::default()
            ),
            ""
        );
    }

    #[test]
    fn what_was_only_read_in_part_counts_as_cut() {
        let long = ProjectFile { bytes: 100, ..project_file("/a", "aaaa") };
        let fitted = fit_project_files(vec![project_file("/", "x"), long], 64);
        assert_eq!((fitted.cut, fitted.dropped), (vec!["/a".to_owned()], vec!["/".to_owned()]));
    }
}
