//! Names that no agent writes, because somebody's program runs what it finds there; and secrets that none reads.
//!
//! Here: the lists and the comparison. Elsewhere: who holds them, the file tools by the real path (`files`), commands by
//! mounts (`exec`).
//! Names count anywhere in a path, so nested repositories are held too, and they are compared as a file system that folds
//! names would see them (`no_spelling_slips_past`).
//!
//! What a repository runs only when the user builds or tests it (scripts, Makefiles) is its content and is not protected:
//! the sandbox holds what it does.

use crate::scope::remainder;

/// Protected names, relative to any directory. `*` stands for any one name or more.
///
/// What `git` runs or where it looks for that, the agent's own and other agents' configuration, configuration of editors
/// and tools that can name a program to run, and what a shell, a desktop or a login reads when it starts. File tools and
/// commands are held to this one list.
///
/// Left out: `.gitmodules` (`git submodule add` writes it, and git runs nothing from it), and what a build or a package
/// manager reads only together with the project's own scripts (`.npmrc`, `.cargo/config.toml`, `Makefile`).
pub const NAMES: [&str; 85] = [
    ".minke",
    // Who may log in.
    ".ssh",
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
    // Other agents: servers to start, hooks to run.
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
    // Tools that read a file of the directory in which, or below which, they are started.
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

/// Whether a name means something only in a home directory, so that a project may have the directory it is in.
pub fn is_of_home(name: &str) -> bool {
    name.starts_with(".config/") || name.starts_with(".local/")
}

/// Whether programs read a name in any project, and not in a home directory alone. `git` has names of its own.
pub fn is_of_project(name: &str) -> bool {
    const OF_PROJECT: [&str; 26] = [
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
    OF_PROJECT.contains(&name)
}

/// A file `.git` sends `git` to another directory, with that directory's `config` and `hooks`. Only the name itself:
/// what is in a `.git` is protected by the names above.
const GIT: &str = ".git";

/// The protected name that a path is or lies below, if any. Only names count; `path` may be relative.
pub fn protected(path: &str) -> Option<&'static str> {
    let parts = || path.split('/').filter(|part| !part.is_empty());
    for (place, part) in parts().enumerate() {
        // Nearly every name begins with a dot, so most parts of most paths need no second look.
        let may_begin = part.starts_with(['.', 'o', 'O']) || part.contains('~') || !part.is_ascii();
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
    fn every_name_begins_with_a_dot_or_a_letter_that_is_looked_for() {
        assert!(NAMES.iter().all(|name| name.starts_with(['.', 'o']) && name.to_lowercase() == *name));
        let mut names = NAMES.to_vec();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), NAMES.len(), "a name is there twice");
        assert!(NAMES.iter().all(|name| !(is_of_home(name) && is_of_project(name))));
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
                assert!(protected(&format!("{root}/{path}")).is_some(), "{root}/{path}");
            }
        }
        // What ordinary work writes.
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
            assert_eq!(protected(&format!("/w/{path}")), None, "{path}");
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
