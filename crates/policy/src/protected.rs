//! Names that no agent writes, because somebody's program runs what it finds there; and secrets that none reads.
//!
//! Here: the lists and the comparison. Elsewhere: who holds them, the file tools by the real path (`files`), commands by
//! mounts (`exec`).
//! Names count anywhere in a path, so nested repositories are held too, and they are compared as a file system that folds
//! names would see them (`no_spelling_slips_past`).
//!
//! What a repository runs only when somebody builds or tests it (scripts, Makefiles, editor tasks) is its content and is
//! not protected: the fence holds what it does.

use crate::scope::remainder;

/// Protected names, relative to any directory. `*` stands for any one name or more.
///
/// The agent's own and other agents' configuration, what `git` runs or where it looks for that, and what a shell or a
/// login reads when it starts.
pub const NAMES: [&str; 42] = [
    ".minke",
    // Who may log in.
    ".ssh",
    ".mcp.json",
    ".agents",
    ".claude",
    ".git/hooks",
    ".git/config",
    // Read beside `config`, where `extensions.worktreeConfig` is on.
    ".git/config.worktree",
    // Names the directory that `config` and `hooks` are taken from.
    ".git/commondir",
    // Submodules and worktrees keep theirs here.
    ".git/modules/*/hooks",
    ".git/modules/*/config",
    ".git/modules/*/config.worktree",
    ".git/modules/*/commondir",
    ".git/worktrees/*/config.worktree",
    ".git/worktrees/*/commondir",
    ".git/worktrees/*/gitdir",
    ".gitconfig",
    ".config/git",
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".kshrc",
    ".mkshrc",
    ".cshrc",
    ".tcshrc",
    ".login",
    ".logout",
    ".inputrc",
    ".pam_environment",
    ".xprofile",
    ".xsessionrc",
    ".config/fish",
    ".config/environment.d",
    ".config/autostart",
];

/// A file `.git` sends `git` to another directory, with that directory's `config` and `hooks`. Only the name itself:
/// what is in a `.git` is protected by the names above.
const GIT: &str = ".git";

/// The protected name that a path is or lies below, if any. Only names count; `path` may be relative.
pub fn protected(path: &str) -> Option<&'static str> {
    let parts = || path.split('/').filter(|part| !part.is_empty());
    for (place, part) in parts().enumerate() {
        // Every name begins with a dot, so most parts of most paths need no second look.
        let may_begin = part.starts_with('.') || part.contains('~') || !part.is_ascii();
        if may_begin && let Some(name) = protected_from(&fold(part), || parts().skip(place + 1)) {
            return Some(name);
        }
    }
    None
}

/// The name that begins with this part of a path, if what follows makes it whole.
fn protected_from<'a, I: Iterator<Item = &'a str>>(
    first: &str,
    rest: impl Fn() -> I,
) -> Option<&'static str> {
    if first == GIT && rest().next().is_none() {
        return Some(GIT);
    }
    let mut below: Option<Vec<String>> = None;
    NAMES.into_iter().find(|name| match name.strip_prefix(first) {
        Some("") => true,
        Some(more) => more.strip_prefix('/').is_some_and(|more| {
            let below = below.get_or_insert_with(|| rest().map(fold).collect());
            begins(below, &more.split('/').collect::<Vec<&str>>())
        }),
        None => false,
    })
}

/// The same, where a person has lifted paths: what is spelled up to the end of a lifted path no longer counts, names
/// below it do.
pub fn protected_unless(path: &str, lifted: &[impl AsRef<str>]) -> Option<&'static str> {
    let below = lifted.iter().filter_map(|lifted| remainder(path, lifted.as_ref()));
    protected(below.min_by_key(|rest| rest.len()).unwrap_or(path))
}

/// Whether the parts of a path begin with a name.
fn begins(parts: &[String], name: &[&str]) -> bool {
    match (name, parts) {
        ([], _) => true,
        (["*", rest @ ..], [_, below @ ..]) => (0..=below.len()).any(|skip| {
            let Some(below) = below.get(skip..) else { return false };
            begins(below, rest)
        }),
        ([first, rest @ ..], [part, below @ ..]) => first == part && begins(below, rest),
        (_, []) => false,
    }
}

/// A name as the most forgiving file system sees it: case, characters that are not shown, dots and spaces at the end,
/// and the short name that a FAT volume gives to `.git`.
fn fold(name: &str) -> String {
    let shown = name.chars().filter(|c| !is_ignored(*c));
    // Up, then down: some letters (long s, Kelvin sign) meet their plain form only that way.
    let folded: String = shown.flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect();
    let trimmed = folded.trim_end_matches(['.', ' ']);
    // Alternate streams of a file: `name::$DATA`, `name:stream`.
    let plain = trimmed.split(':').next().unwrap_or(trimmed);
    if plain == "git~1" { GIT.to_owned() } else { plain.to_owned() }
}

/// Characters that HFS+ leaves out when it compares names.
fn is_ignored(c: char) -> bool {
    matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

/// Secrets of a home directory, one a line, relative to it; a line that begins with `#` says why.
const SECRETS: &str = include_str!("../data/secrets.txt");

/// What of a home directory nobody's commands and file tools see, whatever the scope. Our own directories are masked
/// by whoever knows where they are.
pub fn secrets(home: &str) -> Vec<String> {
    let home = home.trim_end_matches('/');
    let names = SECRETS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    names.map(|name| format!("{home}/{name}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_spelling_slips_past() {
        for (path, name) in [
            ("/w/.git/hooks/pre-commit", ".git/hooks"),
            ("/w/.git/hooks", ".git/hooks"),
            ("/w/a/b/.git/config", ".git/config"),
            ("/w/.GIT/Hooks/x", ".git/hooks"),
            ("/w/.g\u{200c}it/hoo\u{212a}s/x", ".git/hooks"),
            ("/w/.agent\u{17f}/x", ".agents"),
            ("/w/.git./config", ".git/config"),
            ("/w/.git /config ", ".git/config"),
            ("/w/GIT~1/config", ".git/config"),
            ("/w/.git::$INDEX_ALLOCATION/config", ".git/config"),
            ("/w//.git/config", ".git/config"),
            ("/w/.git", ".git"),
            ("/w/.git/modules/a/b/hooks/x", ".git/modules/*/hooks"),
            ("/w/.git/modules/a/config", ".git/modules/*/config"),
            ("/w/.git/worktrees/a/commondir", ".git/worktrees/*/commondir"),
            ("/w/.minke", ".minke"),
            ("/w/.Minke/config.toml", ".minke"),
            ("/w/x/.mcp.json", ".mcp.json"),
            ("/w/.claude/settings.json", ".claude"),
            ("/w/.bashrc", ".bashrc"),
            ("/home/u/.config/fish/config.fish", ".config/fish"),
            (".minke/x", ".minke"),
        ] {
            assert_eq!(protected(path), Some(name), "{path}");
        }
    }

    /// What `protected` takes for granted when it looks at a path only briefly.
    #[test]
    fn every_name_begins_with_a_dot() {
        assert!(NAMES.iter().all(|name| name.starts_with('.') && name.to_lowercase() == *name));
    }

    #[test]
    fn what_only_looks_like_a_protected_name_is_free() {
        for path in [
            "/w/git/hooks/x",
            "/w/.git/HEAD",
            "/w/.git/objects/ab/cd",
            "/w/.git/refs/heads/config",
            "/w/.gitignore",
            "/w/.github/hooks/x",
            "/w/hooks/config",
            "/w/minke/x",
            "/w/.mcp.json5",
            "/w/.config/x",
            "/w/bashrc",
            "/",
            "",
        ] {
            assert_eq!(protected(path), None, "{path}");
        }
    }

    #[test]
    fn lifting_a_path_lifts_the_names_up_to_it_and_none_below() {
        let lifted = ["/w/.git/config", "/home/u/.claude/trees/x"];
        assert_eq!(protected_unless("/w/.git/config", &lifted), None);
        assert_eq!(protected_unless("/w/.git/hooks/x", &lifted), Some(".git/hooks"));
        assert_eq!(protected_unless("/v/.git/config", &lifted), Some(".git/config"));
        assert_eq!(protected_unless("/home/u/.claude/trees/x/src/a", &lifted), None);
        assert_eq!(protected_unless("/home/u/.claude/trees/x/.minke/a", &lifted), Some(".minke"));
        assert_eq!(protected_unless("/home/u/.claude/trees/xy/a", &lifted), Some(".claude"));
    }

    #[test]
    fn secrets_lie_in_the_home_that_is_named() {
        let secrets = secrets("/home/u/");
        for name in [".ssh", ".aws", ".gnupg", ".mozilla", ".cargo/credentials.toml", ".netrc"] {
            assert!(secrets.contains(&format!("/home/u/{name}")), "{name}");
        }
        assert!(secrets.iter().all(|path| crate::scope::is_canonical(path) && !path.contains('#')));
        assert!(secrets.iter().all(|path| path.trim() == path));
    }
}
