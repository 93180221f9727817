//! The environment of a command: an allow-list, variables that the manifest passes by name, and variables that it sets.
//!
//! Here: which variables pass. Elsewhere: `TMPDIR` and the proxy's variables, which depend on the sandbox (`sandbox`).
//! No secret is inherited by a command (`names_of_secrets_pass_only_when_they_are_named`).

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// `sandbox.env` of a manifest.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EnvRules {
    /// Names that pass in addition to the allow-list, even if they look like secrets.
    pub pass: Vec<String>,
    /// Variables to set; they override all others.
    pub set: BTreeMap<String, String>,
}

/// Allowed names: user, directories, language, terminal.
const BASIC_NAMES: [&str; 14] = [
    "PATH",
    "HOME",
    "LANG",
    "LANGUAGE",
    "TERM",
    "COLORTERM",
    "NO_COLOR",
    "TZ",
    "USER",
    "LOGNAME",
    "SHELL",
    "LINES",
    "COLUMNS",
    "CI",
];

/// Allowed names that locate and configure tool chains. None of them contains a secret.
const TOOLCHAIN_NAMES: [&str; 44] = [
    "CARGO_HOME",
    "CARGO_TARGET_DIR",
    "CARGO_BUILD_JOBS",
    "CARGO_INCREMENTAL",
    "CARGO_TERM_COLOR",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "RUSTFLAGS",
    "RUST_BACKTRACE",
    "GOPATH",
    "GOROOT",
    "GOFLAGS",
    "GOBIN",
    "JAVA_HOME",
    "JDK_HOME",
    "M2_HOME",
    "MAVEN_HOME",
    "GRADLE_HOME",
    "ANDROID_HOME",
    "ANDROID_SDK_ROOT",
    "NVM_DIR",
    "NODE_ENV",
    "NODE_PATH",
    "PNPM_HOME",
    "VOLTA_HOME",
    "BUN_INSTALL",
    "DENO_DIR",
    "VIRTUAL_ENV",
    "CONDA_PREFIX",
    "CONDA_DEFAULT_ENV",
    "PYENV_ROOT",
    "PYTHONPATH",
    "UV_PYTHON",
    "RBENV_ROOT",
    "GEM_HOME",
    "GEM_PATH",
    "DOTNET_ROOT",
    "PKG_CONFIG_PATH",
    "LD_LIBRARY_PATH",
    "LIBRARY_PATH",
    "CPATH",
    "CC",
    "CXX",
    "MAKEFLAGS",
];

/// Parts of a name that mark its value as a secret.
const SECRET_PARTS: [&str; 10] =
    ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "AUTH", "COOKIE", "PRIVATE"];

/// Whether the value of this variable is probably a secret.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    SECRET_PARTS.iter().any(|part| name.contains(part))
}

fn is_listed(name: &str) -> bool {
    BASIC_NAMES.contains(&name) || TOOLCHAIN_NAMES.contains(&name) || name.starts_with("LC_")
}

/// Removes relative entries from a search path: `.` would run programs of the repository.
fn absolute_entries(path: &OsStr) -> OsString {
    let parts = path.as_bytes().split(|byte| *byte == b':').filter(|part| part.starts_with(b"/"));
    OsString::from_vec(parts.collect::<Vec<&[u8]>>().join(&b':'))
}

/// Returns the environment of a command, sorted and without duplicates.
pub(crate) fn build_env(
    rules: &EnvRules,
    inherited: impl Iterator<Item = (OsString, OsString)>,
) -> BTreeMap<OsString, OsString> {
    let passes = |name: &OsStr| {
        name.to_str().is_some_and(|name| {
            rules.pass.iter().any(|passed| passed == name) || (is_listed(name) && !is_secret_name(name))
        })
    };
    let mut built: BTreeMap<OsString, OsString> = inherited.filter(|(name, _)| passes(name)).collect();
    if let Some(path) = built.get_mut(OsStr::new("PATH")) {
        *path = absolute_entries(path);
    }
    for (name, value) in &rules.set {
        built.insert(name.into(), value.into());
    }
    built
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build_names(rules: &EnvRules, names: &[&str]) -> Vec<String> {
        let inherited = names.iter().map(|name| (OsString::from(name), OsString::from("v")));
        build_env(rules, inherited).into_keys().map(|name| name.into_string().unwrap()).collect()
    }

    #[test]
    fn names_of_secrets_pass_only_when_they_are_named() {
        let names = [
            "PATH",
            "ANTHROPIC_API_KEY",
            "GITHUB_TOKEN",
            "aws_secret_access_key",
            "LC_AUTH_TOKEN",
            "SSH_AUTH_SOCK",
            "LD_PRELOAD",
            "BASH_ENV",
            "MINKE_HOME",
        ];
        assert_eq!(build_names(&EnvRules::default(), &names), ["PATH"]);
        let rules = EnvRules { pass: vec!["GITHUB_TOKEN".to_owned()], ..EnvRules::default() };
        assert_eq!(build_names(&rules, &names), ["GITHUB_TOKEN", "PATH"]);
    }

    #[test]
    fn the_listed_names_pass_and_what_is_set_wins() {
        let rules =
            EnvRules { set: BTreeMap::from([("LANG".to_owned(), "C".to_owned())]), ..EnvRules::default() };
        let inherited = ["LANG", "LC_ALL", "TERM", "CARGO_HOME", "OTHER"].map(|n| (n.into(), "v".into()));
        let built = build_env(&rules, inherited.into_iter());
        let expected = [("CARGO_HOME", "v"), ("LANG", "C"), ("LC_ALL", "v"), ("TERM", "v")];
        assert_eq!(built, expected.map(|(name, value)| (name.into(), value.into())).into());
    }

    /// Otherwise programs of the current repository would be found first.
    #[test]
    fn a_path_leads_nowhere_from_where_one_stands() {
        for (path, expected) in [
            (".:/bin:./bin::/usr/bin:", "/bin:/usr/bin"),
            ("/bin:/usr/bin", "/bin:/usr/bin"),
            ("~/bin:bin", ""),
        ] {
            let built = build_env(&EnvRules::default(), std::iter::once(("PATH".into(), path.into())));
            assert_eq!(built[OsStr::new("PATH")], expected, "{path}");
        }
    }

    #[test]
    fn no_name_of_the_list_looks_like_a_secret() {
        for name in BASIC_NAMES.iter().chain(&TOOLCHAIN_NAMES) {
            assert!(!is_secret_name(name), "{name}");
        }
    }
}
