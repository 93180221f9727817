//! Documentation pages: lists the Markdown files of the repository and checks that their links lead somewhere.
//!
//! Invariant: `every_link_of_a_page_leads_to_a_file_and_a_heading` in tests/house.rs.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Returns every page: the Markdown files at the root, below `docs`, and in the folders of `xtask` and each crate.
pub fn all_pages(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut pages = markdown_files(root)?;
    pages.extend(markdown_files(&root.join("xtask"))?);
    let mut folders = vec![root.join("docs")];
    while let Some(folder) = folders.pop() {
        pages.extend(markdown_files(&folder)?);
        for entry in fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            }
        }
    }
    for entry in fs::read_dir(root.join("crates"))? {
        let path = entry?.path();
        if path.is_dir() {
            pages.extend(markdown_files(&path)?);
        }
    }
    pages.sort();
    Ok(pages)
}

fn markdown_files(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    Ok(found)
}

/// Returns the targets of the links and images of a page that point into the repository. Code blocks are skipped.
pub fn link_targets(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for line in lines_outside_code(text) {
        for rest in line.split("](").skip(1) {
            let Some((target, _)) = rest.split_once(')') else { continue };
            if !target.contains("://") && !target.starts_with("mailto:") {
                found.push(target);
            }
        }
    }
    found
}

/// Returns one message for each link of `page` whose file or heading does not exist.
pub fn broken_links(page: &Path) -> io::Result<Vec<String>> {
    let text = fs::read_to_string(page)?;
    let folder = page.parent().unwrap_or(Path::new("."));
    let mut broken = Vec::new();
    for link in link_targets(&text) {
        let (path, heading) = link.split_once('#').unwrap_or((link, ""));
        let file = if path.is_empty() { page.to_owned() } else { folder.join(path) };
        if !file.exists() {
            broken.push(format!("{}: the link `{link}` names a missing file", page.display()));
        } else if !heading.is_empty()
            && !heading_anchors(&fs::read_to_string(&file)?).iter().any(|a| a == heading)
        {
            broken.push(format!("{}: the link `{link}` names a missing heading", page.display()));
        }
    }
    Ok(broken)
}

/// Returns one message for each source path (`src/…` or `tests/…`) that the README of a crate names and that is missing.
pub fn missing_sources(page: &Path) -> io::Result<Vec<String>> {
    let text = fs::read_to_string(page)?;
    let folder = page.parent().unwrap_or(Path::new("."));
    let paths = text
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|path| path.starts_with("src/") || path.starts_with("tests/"));
    let missing = paths.filter(|path| !folder.join(path).exists());
    Ok(missing.map(|path| format!("{}: there is no `{path}`", page.display())).collect())
}

fn heading_anchors(text: &str) -> Vec<String> {
    lines_outside_code(text)
        .filter(|line| line.starts_with('#'))
        .map(|line| heading_anchor(line.trim_start_matches('#').trim()))
        .collect()
}

/// Returns the anchor that GitHub gives to a heading: lower case, spaces as hyphens, other punctuation removed.
pub fn heading_anchor(heading: &str) -> String {
    heading
        .chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() })
        .collect()
}

/// The lines of a page that are not inside a fenced code block.
fn lines_outside_code(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let marks = line.trim_start().starts_with("```");
        in_code ^= marks;
        !in_code && !marks
    })
}
