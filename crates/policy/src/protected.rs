//! Protected names, which no agent writes because programs run their content, and secret paths, which no
//! agent reads.
//!
//! This module has the lists and the comparison. `files` enforces them for file tools by the real path,
//! `exec` enforces them for commands with mounts. A name is protected at any depth, so nested repositories
//! are protected too. Names are compared as a case-insensitive, normalizing file system would compare them
//! (`no_spelling_slips_past`).
//!
//! Scripts and Makefiles, which run only when the user builds or tests, are content of the repository and not
//! protected: the sandbox restricts their effects.

use crate::scope::path_below;

/// Protected names, relative to any directory. `*` matches one or more path components.
///
/// The list contains files that `git` runs and settings that name such files, the configuration of Minke and
/// of other agents, configuration of editors and tools that can name a program, and startup files of shells,
/// desktops and logins. File tools and commands use this one list.
///
/// It does not contain `.gitmodules`, because `git submodule add` writes it and git runs nothing from it, nor
/// files that a build or package manager reads only together with scripts of the project (`.npmrc`,
/// `.cargo/config.toml`, `Makefile`).
pub const PROTECTED_NAMES: [&str; 85] = [
    ".minke",
    // Login keys.
    ".ssh",
    ".git/hooks",
    ".git/config",
    // Read in addition to `config` if `extensions.worktreeConfig` is set.
    ".git/config.worktree",
    // Names the directory that contains `config` and `hooks`.
    ".git/commondir",
    // Configuration of submodules and worktrees.
    ".git/modules/*/hooks",
    ".git/modules/*/config",
    ".git/modules/*/config.worktree",
    ".git/modules/*/commondir",
    ".git/worktrees/*/config.worktree",
    ".git/worktrees/*/commondir",
    ".git/worktrees/*/gitdir",
    ".gitconfig",
    ".config/git",
    // Other agents: servers and hooks that they start.
    ".mcp.json",
    ".agents",
    ".claude",
    ".codex",
    ".cursor",
    ".gemini",
    ".opencode",
    "opencode.json",
    "opencode.jsonc",
    ".aider.conf.yml",
    // Editors.
    ".vscode/settings.json",
    ".vscode/tasks.json",
    ".vscode/launch.json",
    ".idea",
    ".zed",
    ".vimrc",
    ".gvimrc",
    ".exrc",
    ".nvimrc",
    ".nvim.lua",
    ".vim",
    ".config/nvim",
    ".config/zed",
    ".config/helix",
    ".emacs",
    ".emacs.d",
    ".config/emacs",
    // Tools that read a file from their working directory or one of its parents.
    ".envrc",
    ".config/direnv",
    ".gdbinit",
    ".lldbinit",
    ".pdbrc",
    ".ripgreprc",
    ".tmux.conf",
    ".config/tmux",
    ".screenrc",
    // Shells.
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
    ".config/fish",
    // Logins and desktops.
    ".pam_environment",
    ".xinitrc",
    ".xsession",
    ".xprofile",
    ".xsessionrc",
    ".xresources",
    ".config/environment.d",
    ".config/autostart",
    ".config/systemd",
    ".local/share/systemd",
    ".local/share/applications",
    ".config/sway",
    ".config/i3",
    ".config/hypr",
    ".config/plasma-workspace",
];

/// Returns whether a name has a meaning only in a home directory, so that a project may have its parent
/// directory.
pub fn is_home_name(name: &str) -> bool {
    name.starts_with(".config/") || name.starts_with(".local/")
}

/// Returns whether programs read a name in any project, not only in a home directory. Names of `git` are
/// separate.
pub fn is_project_name(name: &str) -> bool {
    const PROJECT_NAMES: [&str; 26] = [
        ".minke",
        ".mcp.json",
        ".agents",
        ".claude",
        ".codex",
        ".cursor",
        ".gemini",
        ".opencode",
        "opencode.json",
        "opencode.jsonc",
        ".aider.conf.yml",
        ".vscode/settings.json",
        ".vscode/tasks.json",
        ".vscode/launch.json",
        ".idea",
        ".zed",
        ".vimrc",
        ".exrc",
        ".nvimrc",
        ".nvim.lua",
        ".envrc",
        ".gdbinit",
        ".lldbinit",
        ".pdbrc",
        ".ripgreprc",
        ".tmux.conf",
    ];
    PROJECT_NAMES.contains(&name)
}

/// A file `.git` redirects `git` to another directory with its own `config` and `hooks`. Only the name itself
/// is protected here; the content of a `.git` directory is protected by the names above.
const DOT_GIT: &str = ".git";

/// Returns the protected name that a path is or is below. Compares only names; `path` may be relative.
pub fn protected_name(path: &str) -> Option<&'static str> {
    let parts = || path.split('/').filter(|part| !part.is_empty());
    for (place, part) in parts().enumerate() {
        // Nearly every protected name begins with a dot, so most components need no further check.
        let may_begin = part.starts_with(['.', 'o', 'O']) || part.contains('~') || !part.is_ascii();
        if may_begin && let Some(name) = match_protected_name(&fold_name(part), || parts().skip(place + 1)) {
            return Some(name);
        }
    }
    None
}

/// Returns the protected name that begins with this component, if the following components complete it.
fn match_protected_name<'a, I: Iterator<Item = &'a str>>(
    first: &str,
    rest: impl Fn() -> I,
) -> Option<&'static str> {
    if first == DOT_GIT && rest().next().is_none() {
        return Some(DOT_GIT);
    }
    let mut below: Option<Vec<String>> = None;
    PROTECTED_NAMES.into_iter().find(|name| match name.strip_prefix(first) {
        Some("") => true,
        Some(more) => more.strip_prefix('/').is_some_and(|more| {
            let below = below.get_or_insert_with(|| rest().map(fold_name).collect());
            starts_with_name(below, &more.split('/').collect::<Vec<&str>>())
        }),
        None => false,
    })
}

/// Returns the protected name of a path, ignoring the components up to the end of an unprotected path.
/// Protected names below that path still count.
pub fn protected_name_unless(path: &str, unprotected: &[impl AsRef<str>]) -> Option<&'static str> {
    let below = unprotected.iter().filter_map(|lifted| path_below(path, lifted.as_ref()));
    protected_name(below.min_by_key(|rest| rest.len()).unwrap_or(path))
}

/// Returns whether the components of a path begin with those of a name.
fn starts_with_name(parts: &[String], name: &[&str]) -> bool {
    match (name, parts) {
        ([], _) => true,
        (["*", rest @ ..], [_, below @ ..]) => (0..=below.len()).any(|skip| {
            let Some(below) = below.get(skip..) else { return false };
            starts_with_name(below, rest)
        }),
        ([first, rest @ ..], [part, below @ ..]) => first == part && starts_with_name(below, rest),
        (_, []) => false,
    }
}

/// Normalizes a name like the most permissive file system: ignores case, invisible characters and trailing
/// dots and spaces, and maps the short name that a FAT volume gives to `.git`.
fn fold_name(name: &str) -> String {
    let shown = name.chars().filter(|c| !is_ignored_char(*c));
    // Upper case first: some letters (long s, Kelvin sign) map to their plain form only that way.
    let folded: String = shown.flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect();
    let trimmed = folded.trim_end_matches(['.', ' ']);
    // Alternate data streams: `name::$DATA`, `name:stream`.
    let plain = trimmed.split(':').next().unwrap_or(trimmed);
    if plain == "git~1" { DOT_GIT.to_owned() } else { plain.to_owned() }
}

/// Returns whether HFS+ ignores this character when it compares names.
fn is_ignored_char(c: char) -> bool {
    matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

/// Secret paths relative to a home directory, one per line; lines that begin with `#` are comments.
const SECRET_PATHS: &str = include_str!("../data/secrets.txt");

/// Returns the paths of a home directory that no command or file tool may see, whatever the scope. Callers
/// that know Minke's own directories mask them too.
pub fn secret_paths(home: &str) -> Vec<String> {
    let home = home.trim_end_matches('/');
    let names = SECRET_PATHS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
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
            assert_eq!(protected_name(path), Some(name), "{path}");
        }
    }

    /// `protected` relies on this when it skips components quickly.
    #[test]
    fn every_name_begins_with_a_dot_or_a_letter_that_is_looked_for() {
        assert!(
            PROTECTED_NAMES.iter().all(|name| name.starts_with(['.', 'o']) && name.to_lowercase() == *name)
        );
        let mut names = PROTECTED_NAMES.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), PROTECTED_NAMES.len(), "a name is listed twice");
        assert!(PROTECTED_NAMES.iter().all(|name| !(is_home_name(name) && is_project_name(name))));
    }

    #[test]
    fn configuration_that_can_run_code_is_protected_at_any_depth() {
        for path in [
            ".vscode/settings.json",
            ".vscode/tasks.json",
            ".idea/runConfigurations/x.xml",
            ".vimrc",
            ".Vim/autoload/x.vim",
            ".config/nvim/init.lua",
            ".emacs.d/init.el",
            ".envrc",
            ".config/direnv/direnvrc",
            ".codex/config.toml",
            ".cursor/mcp.json",
            ".gemini/settings.json",
            "opencode.json",
            "OpenCode.JSONC",
            ".opencode/plugin/x.js",
            ".aider.conf.yml",
            ".tmux.conf",
            ".Xresources",
            ".xinitrc",
            ".xsession",
            ".config/systemd/user/x.service",
            ".local/share/applications/x.desktop",
            ".gdbinit",
        ] {
            for root in ["/home/u", "/w", "/w/a/b/nested"] {
                assert!(protected_name(&format!("{root}/{path}")).is_some(), "{root}/{path}");
            }
        }
        // Files that ordinary work writes.
        for path in [
            ".vscode/extensions.json",
            ".gitmodules",
            ".gitignore",
            ".gitattributes",
            ".npmrc",
            ".cargo/config.toml",
            ".config/nextest.toml",
            ".config/dotnet-tools.json",
            ".venv/bin/activate",
            ".github/workflows/ci.yml",
            ".editorconfig",
            ".prettierrc",
            ".eslintrc.json",
            ".env",
            ".python-version",
            ".tool-versions",
            ".local/bin/x",
            ".cache/x",
            "open/x",
            "opencode/x",
        ] {
            assert_eq!(protected_name(&format!("/w/{path}")), None, "{path}");
        }
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
            assert_eq!(protected_name(path), None, "{path}");
        }
    }

    #[test]
    fn lifting_a_path_lifts_the_names_up_to_it_and_none_below() {
        let unprotected = ["/w/.git/config", "/home/u/.claude/trees/x"];
        assert_eq!(protected_name_unless("/w/.git/config", &unprotected), None);
        assert_eq!(protected_name_unless("/w/.git/hooks/x", &unprotected), Some(".git/hooks"));
        assert_eq!(protected_name_unless("/v/.git/config", &unprotected), Some(".git/config"));
        assert_eq!(protected_name_unless("/home/u/.claude/trees/x/src/a", &unprotected), None);
        assert_eq!(protected_name_unless("/home/u/.claude/trees/x/.minke/a", &unprotected), Some(".minke"));
        assert_eq!(protected_name_unless("/home/u/.claude/trees/xy/a", &unprotected), Some(".claude"));
    }

    #[test]
    fn secrets_lie_in_the_home_that_is_named() {
        let secrets = secret_paths("/home/u/");
        for name in [
            ".ssh",
            ".aws",
            ".gnupg",
            ".mozilla",
            ".cargo/credentials.toml",
            ".netrc",
            ".m2/settings.xml",
            ".config/stripe",
            ".kaggle",
            ".cache/huggingface/token",
            ".local/share/opencode/auth.json",
        ] {
            assert!(secrets.contains(&format!("/home/u/{name}")), "{name}");
        }
        assert!(secrets.iter().all(|path| crate::scope::is_canonical(path) && !path.contains('#')));
        assert!(secrets.iter().all(|path| path.trim() == path));
    }
}
