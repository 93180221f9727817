//! Environment variables that change the effect of a command. For exported variables only the names of a
//! short list are harmless; for variables that stay inside the shell, the names that shells and programs use
//! are dangerous.

use super::super::ShellWord;

/// Variables that may be exported to any command: they change its output or limits, not the programs that
/// run.
const HARMLESS_VARIABLES: &[&str] = &[
    "CARGO_INCREMENTAL",
    "CARGO_PROFILE_DEV_DEBUG",
    "CARGO_TERM_COLOR",
    "CARGO_TERM_PROGRESS_WHEN",
    "CARGO_TERM_VERBOSE",
    "CARGO_NET_OFFLINE",
    "CARGO_BUILD_JOBS",
    "CGO_ENABLED",
    "CI",
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLORTERM",
    "COLUMNS",
    "DEBIAN_FRONTEND",
    "DJANGO_DEBUG",
    "DOCKER_BUILDKIT",
    "FORCE_COLOR",
    "GIT_TERMINAL_PROMPT",
    "GOARCH",
    "GOMAXPROCS",
    "GOOS",
    "HOMEBREW_NO_AUTO_UPDATE",
    "INSTA_UPDATE",
    "INSTA_FORCE_PASS",
    "LANG",
    "LANGUAGE",
    "LC_ALL",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_MESSAGES",
    "LC_NUMERIC",
    "LC_TIME",
    "LINES",
    "MIX_ENV",
    "NEXTEST_PROFILE",
    "NODE_ENV",
    "NO_COLOR",
    "OMP_NUM_THREADS",
    "PORT",
    "PROPTEST_CASES",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONUNBUFFERED",
    "PYTHONHASHSEED",
    "RAILS_ENV",
    "RUST_BACKTRACE",
    "RUST_LIB_BACKTRACE",
    "RUST_LOG",
    "RUST_LOG_STYLE",
    "RUST_MIN_STACK",
    "RUST_TEST_THREADS",
    "SOURCE_DATE_EPOCH",
    "TERM",
    "TZ",
    "UPDATE_EXPECT",
    "VERBOSE",
];

/// Variables that shells, loaders and common programs use, exported or not.
const DANGEROUS_VARIABLES: &[&str] = &[
    "AR",
    "AS",
    "BASHOPTS",
    "BROWSER",
    "CC",
    "CDPATH",
    "CFLAGS",
    "CLASSPATH",
    "CPATH",
    "CPP",
    "CURL_HOME",
    "CXX",
    "EDITOR",
    "ENV",
    "EXECIGNORE",
    "FCEDIT",
    "FC",
    "FIGNORE",
    "FUNCNEST",
    "GCONV_PATH",
    "GLOBIGNORE",
    "GOFLAGS",
    "GOPROXY",
    "GREP_OPTIONS",
    "HISTFILE",
    "HOME",
    "HOSTALIASES",
    "IFS",
    "INPUTRC",
    "JAVA_HOME",
    "JDK_JAVA_OPTIONS",
    "KUBECONFIG",
    "LDFLAGS",
    "LESS",
    "LESSCLOSE",
    "LESSOPEN",
    "LIBRARY_PATH",
    "LOCPATH",
    "MAILPATH",
    "MAKE",
    "MAKEFILES",
    "MAKEFLAGS",
    "MANOPT",
    "MANPAGER",
    "MANPATH",
    "MAVEN_OPTS",
    "MFLAGS",
    "NLSPATH",
    "NM",
    "OLDPWD",
    "OPENSSL_CONF",
    "OPTARG",
    "PAGER",
    "PATH",
    "PERLLIB",
    "PKG_CONFIG",
    "POSIXLY_CORRECT",
    "PROMPT_COMMAND",
    "PS0",
    "PS1",
    "PS2",
    "PS3",
    "PS4",
    "PWD",
    "RANLIB",
    "RESOLV_HOST_CONF",
    "RSYNC_RSH",
    "RUSTC",
    "RUSTDOC",
    "RUSTFLAGS",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "RUSTDOCFLAGS",
    "SHELL",
    "SHELLOPTS",
    "TAPE",
    "TAR_OPTIONS",
    "TERMCAP",
    "TERMINFO",
    "TEXTDOMAIN",
    "TEXTDOMAINDIR",
    "TMPDIR",
    "TMOUT",
    "TZDIR",
    "USERNAME",
    "VISUAL",
    "WGETRC",
    "XDG_CONFIG_HOME",
    "XDG_CONFIG_DIRS",
    "XDG_DATA_DIRS",
    "ZDOTDIR",
];

/// Prefixes of variables that a program or the loader uses.
const DANGEROUS_PREFIXES: &[&str] = &[
    "ANSIBLE_",
    "AWS_",
    "AZURE_",
    "BASH",
    "BUNDLE_",
    "CARGO_",
    "CMAKE_",
    "COMP_",
    "DENO_",
    "DOCKER_",
    "DOTNET_",
    "DYLD_",
    "GEM_",
    "GIT_",
    // Keys and settings of a cloud; the full name is data of `llm`.
    "GOO",
    "GRADLE_",
    "JAVA_",
    "LD_",
    "LUA_",
    "MALLOC_",
    "MSBUILD",
    "NODE_",
    "NPM_",
    "PERL5",
    "PHP",
    "PIP_",
    "PYTHON",
    "READLINE_",
    "RUBY",
    "RUSTUP_",
    "SSH_",
    "SSL_",
    "SUDO_",
    "TF_",
    "UV_",
    "YARN_",
    "_JAVA",
    "npm_",
];

/// Suffixes of variables that programs use.
const DANGEROUS_SUFFIXES: &[&str] = &[
    "_proxy", "_PROXY", "PAGER", "EDITOR", "_OPTS", "_OPTIONS", "_WRAPPER", "_RUNNER", "_LINKER", "_ASKPASS",
    "_PRELOAD",
];

/// Variables whose value is a file or a command line that a shell runs, or a replacement for a program: with
/// one of them a line can run commands that it does not contain.
const HIDING_VARIABLES: &[&str] = &[
    "BASH_ALIASES",
    "BASH_CMDS",
    "BASH_ENV",
    "BASH_LOADABLES_PATH",
    "BASH_XTRACEFD",
    "LD_AUDIT",
    "LD_PRELOAD",
    "PROMPT_COMMAND",
    "ZDOTDIR",
];

/// Returns whether a variable can make a shell run hidden commands. Prompts can if their value contains a
/// substitution.
pub(in crate::shell) fn hides_commands(name: &str, value: &ShellWord) -> bool {
    let (ShellWord::Known(text) | ShellWord::Unknown { raw: text, .. }) = value;
    let prompt = matches!(name, "PS0" | "PS1" | "PS2" | "PS4");
    HIDING_VARIABLES.contains(&name)
        || name.starts_with("BASH_FUNC_")
        || (prompt
            && (value.as_known().is_none() || ["$(", "${", "`"].iter().any(|begin| text.contains(begin))))
}

/// Returns whether an exported variable never changes the effect of a command.
pub fn is_harmless_variable(name: &str) -> bool {
    HARMLESS_VARIABLES.contains(&name)
}

/// Returns whether a shell variable can change the effect of commands.
pub fn is_dangerous_variable(name: &str) -> bool {
    if HARMLESS_VARIABLES.contains(&name) || name == "_" {
        return false;
    }
    DANGEROUS_VARIABLES.contains(&name)
        || DANGEROUS_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || DANGEROUS_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
        || name.eq_ignore_ascii_case("http_proxy")
}
