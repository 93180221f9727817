//! Seatbelt profiles as text: golden files for scopes (`MINKE_BLESS=1` rewrites them), and quoting.
//! Whether macOS enforces them is not tested here.

use std::fs;
use std::path::{Path, PathBuf};

use minke_exec::sandbox::{EnvRules, NetworkAccess, PodDirs, SandboxError, SandboxSpec};
use minke_exec::seatbelt::build_profile;
use minke_record::{Permission, Scope, ScopeRule};
use proptest::prelude::*;

const HOME: &str = "/Users/ada";
const DATA: &str = "/Users/ada/Library/Application Support/minke";

fn scope_rule(permission: Permission, target: &str) -> ScopeRule {
    ScopeRule { target: target.to_owned(), permission, recursive: true }
}

fn read_rule(target: &str) -> ScopeRule {
    scope_rule(Permission::Read, target)
}

fn write_rule(target: &str) -> ScopeRule {
    scope_rule(Permission::Write, target)
}

fn flat_rule(rule: ScopeRule) -> ScopeRule {
    ScopeRule { recursive: false, ..rule }
}

fn sandbox_spec(allow: Vec<ScopeRule>, deny: Vec<ScopeRule>) -> SandboxSpec {
    let pod = PathBuf::from(DATA).join("pods/ada");
    SandboxSpec {
        scope: Scope { allow, deny },
        read_only: false,
        dirs: PodDirs {
            tmp: pod.join("tmp"),
            output: pod.join("output"),
            lock_file: pod.join("sandboxes"),
            writable_tmp: true,
        },
        masked: vec![PathBuf::from(HOME).join(".ssh"), PathBuf::from(DATA)],
        lifted: Vec::new(),
        findings: minke_exec::sandbox::ScopeFindings::default(),
        network: NetworkAccess::Off,
        env: EnvRules::default(),
    }
}

fn toolchain_dirs() -> Vec<PathBuf> {
    vec![PathBuf::from(HOME).join(".cargo"), PathBuf::from("/opt/homebrew/bin")]
}

fn golden_profile(name: &str, spec: &SandboxSpec) -> String {
    let text = build_profile(spec, &toolchain_dirs()).expect("a profile");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.sb"));
    if std::env::var_os("MINKE_BLESS").is_some() {
        fs::write(&file, &text).expect("the golden file is written");
    }
    let expected = fs::read_to_string(&file)
        .unwrap_or_else(|e| panic!("{}: {e}; MINKE_BLESS=1 writes it", file.display()));
    assert_eq!(text, expected, "{name}: MINKE_BLESS=1 accepts the change");
    text
}

#[test]
fn profiles_are_as_they_were_read_and_approved() {
    golden_profile("workspace", &sandbox_spec(vec![write_rule("/Users/ada/work")], vec![]));
    golden_profile("nothing", &sandbox_spec(vec![], vec![]));
    golden_profile(
        "read_home_write_below",
        &sandbox_spec(
            vec![read_rule(HOME), write_rule("/Users/ada/work"), write_rule("/Users/ada/notes")],
            vec![],
        ),
    );
    golden_profile(
        "denied_and_lent",
        &sandbox_spec(
            vec![write_rule("/Users/ada/work")],
            vec![read_rule("/Users/ada/work/secret/deep"), write_rule("/Users/ada/work/lent")],
        ),
    );
    golden_profile(
        "flat",
        &sandbox_spec(
            vec![flat_rule(write_rule("/Users/ada/work")), flat_rule(read_rule("/Users/ada/docs"))],
            vec![flat_rule(write_rule("/Users/ada/work"))],
        ),
    );
    let mut read_only = sandbox_spec(vec![write_rule("/Users/ada/work")], vec![]);
    read_only.read_only = true;
    read_only.dirs.writable_tmp = false;
    golden_profile("read_only", &read_only);
    let mut proxied = sandbox_spec(vec![write_rule("/Users/ada/work")], vec![]);
    proxied.network = NetworkAccess::Proxy { socket: PathBuf::from(DATA).join("pods/ada/proxy.sock") };
    golden_profile("proxy", &proxied);
    let mut lifted =
        sandbox_spec(vec![write_rule("/Users/ada/work")], vec![write_rule("/Users/ada/work/.git/config.d")]);
    lifted.lifted = vec![
        "/Users/ada/work/.git/config".into(),
        "/Users/ada/elsewhere/.minke".into(),
        "/Users/ada/.ssh/x".into(),
    ];
    golden_profile("lifted", &lifted);
    let clone = format!("{DATA}/clones/a");
    let mut cloned = sandbox_spec(vec![write_rule(&clone), read_rule("/Users/ada/work")], vec![]);
    cloned.masked.push(PathBuf::from(&clone).join("masked"));
    golden_profile("clone_inside_our_own", &cloned);
    golden_profile("home", &sandbox_spec(vec![write_rule(HOME)], vec![]));
    golden_profile(
        "strange_names",
        &sandbox_spec(
            vec![write_rule("/Users/ada/a \"b\" (c) \\d\n;e[f].*$")],
            vec![read_rule("/Users/ada/a \"b\" (c) \\d\n;e[f].*$/)(allow default)(\"")],
        ),
    );
    golden_profile(
        "root",
        &sandbox_spec(vec![flat_rule(read_rule("/")), write_rule("/")], vec![write_rule("/private")]),
    );
}

/// An expression of a profile: a quoted text, a word, or a list.
#[derive(Debug, PartialEq)]
enum ProfileNode {
    Text(String),
    Word(String),
    List(Vec<ProfileNode>),
}

/// Parses a profile like Scheme, independently of the code under test.
fn parse_profile(text: &str) -> Vec<ProfileNode> {
    let mut open: Vec<Vec<ProfileNode>> = vec![Vec::new()];
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let top = open.len() - 1;
        match c {
            '(' => open.push(Vec::new()),
            ')' => {
                let list = open.pop().expect("a list is open");
                open.last_mut().expect("no more ends than beginnings").push(ProfileNode::List(list));
            }
            ';' => while rest.next_if(|c| *c != '\n').is_some() {},
            '"' => {
                let mut string = String::new();
                loop {
                    match rest.next().expect("a text ends") {
                        '"' => break,
                        '\\' => string.push(rest.next().expect("a text ends")),
                        other => string.push(other),
                    }
                }
                open[top].push(ProfileNode::Text(string));
            }
            c if c.is_whitespace() => {}
            c => {
                let mut word = String::from(c);
                while let Some(c) = rest.next_if(|c| !c.is_whitespace() && !"()\";".contains(*c)) {
                    word.push(c);
                }
                open[top].push(ProfileNode::Word(word));
            }
        }
    }
    assert_eq!(open.len(), 1, "every list is closed");
    open.remove(0)
}

/// Returns the words and lists of a profile, without quoted texts.
fn profile_shape(parts: &[ProfileNode]) -> String {
    parts
        .iter()
        .map(|part| match part {
            ProfileNode::Text(_) => "\"\"".to_owned(),
            ProfileNode::Word(word) => word.clone(),
            ProfileNode::List(list) => format!("({})", profile_shape(list)),
        })
        .collect::<Vec<_>>()
        .join(" ")
}

fn quoted_texts(parts: &[ProfileNode], all: &mut Vec<String>) {
    for part in parts {
        match part {
            ProfileNode::Text(text) => all.push(text.clone()),
            ProfileNode::Word(_) => {}
            ProfileNode::List(list) => quoted_texts(list, all),
        }
    }
}

fn spec_with_name(name: &str) -> SandboxSpec {
    let root = format!("/Users/ada/{name}");
    let mut spec = sandbox_spec(
        vec![write_rule(&root), flat_rule(read_rule(&format!("{root}/r")))],
        vec![read_rule(&format!("{root}/{name}")), flat_rule(write_rule(&format!("{root}/w/{name}")))],
    );
    spec.masked.push(PathBuf::from(format!("{root}/m/{name}")));
    spec.lifted.push(PathBuf::from(format!("{root}/.git/hooks")));
    spec.network = NetworkAccess::Proxy { socket: PathBuf::from(format!("{root}/s/{name}")) };
    spec
}

proptest! {
    #[test]
    fn no_path_breaks_out_of_its_quotes(name in "[\"\\\\()\\n\\r\\t ;#'`$.*+?^|\\[\\]{}a-cä]{1,12}") {
        prop_assume!(name != "." && name != "..");
        let tame = parse_profile(&build_profile(&spec_with_name("x"), &[]).expect("a profile"));
        let hostile = parse_profile(&build_profile(&spec_with_name(&name), &[]).expect("a profile"));
        let mut lines: Vec<String> = hostile.iter().map(|part| profile_shape(std::slice::from_ref(part))).collect();
        let mut tame_lines: Vec<String> = tame.iter().map(|part| profile_shape(std::slice::from_ref(part))).collect();
        lines.sort();
        tame_lines.sort();
        prop_assert_eq!(lines, tame_lines);
        let mut all = Vec::new();
        quoted_texts(&hostile, &mut all);
        let expected = format!("/Users/ada/{name}/m/{name}");
        prop_assert!(all.contains(&expected), "{:?} is not among {:?}", expected, all);
    }
}

/// Whether a profile allows an operation: the last matching rule decides. Only literal and subpath filters are
/// evaluated; regular expressions have their own test.
fn is_allowed(profile: &[ProfileNode], operation: &str, path: &str) -> bool {
    let mut allowed = false;
    for part in profile {
        let ProfileNode::List(list) = part else { continue };
        let [ProfileNode::Word(verdict), rest @ ..] = list.as_slice() else { continue };
        let operations: Vec<&str> = rest
            .iter()
            .map_while(|part| if let ProfileNode::Word(word) = part { Some(word.as_str()) } else { None })
            .collect();
        let named = |word: &&str| {
            *word == operation || word.strip_suffix('*').is_some_and(|start| operation.starts_with(start))
        };
        let matches = |filter: &ProfileNode| match filter {
            ProfileNode::List(filter) => match filter.as_slice() {
                [ProfileNode::Word(kind), ProfileNode::Text(at)] if kind == "literal" => path == at,
                [ProfileNode::Word(kind), ProfileNode::Text(at)] if kind == "subpath" => {
                    Path::new(path).starts_with(at)
                }
                _ => false,
            },
            _ => false,
        };
        if operations.iter().any(named) && rest.iter().any(matches) {
            allowed = verdict == "allow";
        }
    }
    allowed
}

#[test]
fn the_last_rule_that_matches_says_what_the_scope_says() {
    let clone = format!("{DATA}/clones/a");
    let spec = sandbox_spec(
        vec![read_rule(HOME), write_rule("/Users/ada/work"), write_rule(&clone)],
        vec![read_rule("/Users/ada/work/secret"), write_rule("/Users/ada/work/lent")],
    );
    let parsed = parse_profile(
        &build_profile(&spec, &[toolchain_dirs(), vec![PathBuf::from(DATA).join("bin")]].concat()).unwrap(),
    );
    for (path, reads, writes) in [
        ("/Users/ada/work/x", true, true),
        ("/Users/ada/other", true, false),
        ("/Users/ada/.ssh/id", false, false),
        ("/Users/ada/work/secret/x", false, false),
        ("/Users/ada/work/lent/x", true, false),
        ("/Users/bob/x", false, false),
        (&format!("{DATA}/sessions/x"), false, false),
        (&format!("{clone}/x"), true, true),
        (&format!("{DATA}/pods/ada/tmp/x"), true, true),
        (&format!("{DATA}/pods/ada/output/x"), true, false),
        (&format!("{DATA}/pods/ada/proxy.sock"), false, false),
        ("/usr/lib/x", true, false),
        ("/private/etc/hosts", true, false),
        ("/private/etc/master.passwd", false, false),
        ("/private/var/db/other", false, false),
        ("/Library/Keychains/System.keychain", false, false),
        ("/dev/null", true, false),
        (&format!("{DATA}/bin/x"), false, false),
    ] {
        assert_eq!(is_allowed(&parsed, "file-read-data", path), reads, "read {path}");
        assert_eq!(is_allowed(&parsed, "file-write-create", path), writes, "write {path}");
    }
    assert!(is_allowed(&parsed, "file-write-unlink", "/Users/ada/work/x"));
    for path in ["/Users/ada/work", "/Users/ada/work/secret", "/Users/ada/work/lent"] {
        assert!(!is_allowed(&parsed, "file-write-unlink", path), "{path} can be moved away");
    }
    assert!(!is_allowed(&parsed, "network-outbound", &format!("{DATA}/pods/ada/sock")));
}

/// Returns the regular expressions of all rules that begin with these words.
fn regex_expressions(profile: &[ProfileNode], rule: &[&str]) -> String {
    let mut all = Vec::new();
    for part in profile {
        let ProfileNode::List(list) = part else { continue };
        let words: Vec<&str> = list
            .iter()
            .map_while(|part| if let ProfileNode::Word(word) = part { Some(word.as_str()) } else { None })
            .collect();
        if words == rule {
            quoted_texts(list, &mut all);
        }
    }
    all.retain(|text| text.starts_with('^'));
    all.join("\n")
}

/// Returns the paths that `grep -E` matches, as an independent engine.
fn matched_paths(expressions: &str, paths: &[&str]) -> Vec<String> {
    let dir = tempfile::tempdir().expect("a directory, two files and grep");
    let (patterns, lines) = (dir.path().join("patterns"), dir.path().join("lines"));
    fs::write(&patterns, expressions).expect("a directory, two files and grep");
    fs::write(&lines, paths.join("\0")).expect("a directory, two files and grep");
    let grep = std::process::Command::new("grep")
        .arg("-zE")
        .arg("-f")
        .args([&patterns, &lines])
        .output()
        .expect("a directory, two files and grep");
    assert!(grep.stderr.is_empty(), "{}", String::from_utf8_lossy(&grep.stderr));
    String::from_utf8(grep.stdout)
        .expect("a directory, two files and grep")
        .split_terminator('\0')
        .map(str::to_owned)
        .collect()
}

#[test]
fn protected_names_are_held_in_every_case_and_depth_and_nothing_else_is() {
    let parsed = parse_profile(
        &build_profile(&sandbox_spec(vec![write_rule("/Users/ada/w.rk")], vec![]), &[]).unwrap(),
    );
    let held = [
        "/Users/ada/w.rk/.git/hooks",
        "/Users/ada/w.rk/.git/hooks/pre-commit",
        "/Users/ada/w.rk/.GIT/Hooks/pre-commit",
        "/Users/ada/w.rk/a/b/.git/config",
        "/Users/ada/w.rk/.git/modules/a/b/hooks/x",
        "/Users/ada/w.rk/.minke",
        "/Users/ada/w.rk/.Minke/x",
        "/Users/ada/w.rk/.mcp.json",
        "/Users/ada/w.rk/.claude/settings.json",
        "/Users/ada/w.rk/.bashrc",
        "/Users/ada/w.rk/.git",
        "/Users/ada/w.rk/a\nb/.git/hooks/x",
        "/Users/ada/w.rk/.git/modules/a\nb/hooks/x\ny",
    ];
    let free = [
        "/Users/ada/w.rk/.git/HEAD",
        "/Users/ada/w.rk/.git/objects/ab/cd",
        "/Users/ada/w.rk/.gitignore",
        "/Users/ada/w.rk/xgit/hooks",
        "/Users/ada/w.rk/.mcpxjson",
        "/Users/ada/w.rk/minke",
        "/Users/ada/w.rk/.minke2",
        "/Users/ada/wxrk/.minke",
        "/Users/ada/w.rk.minke",
    ];
    let names = regex_expressions(&parsed, &["deny", "file-write*"]);
    assert_eq!(matched_paths(&names, &held), held);
    assert_eq!(matched_paths(&names, &free), Vec::<String>::new());
    let parents = regex_expressions(&parsed, &["deny", "file-write-create", "file-write-unlink"]);
    let above = ["/Users/ada/w.rk/.git", "/Users/ada/w.rk/a/.Config", "/Users/ada/w.rk/.git/modules"];
    assert_eq!(matched_paths(&parents, &above), above);
    assert_eq!(
        matched_paths(&parents, &["/Users/ada/w.rk/.git/x", "/Users/ada/w.rk/a"]),
        Vec::<String>::new()
    );
    let root = parse_profile(&build_profile(&sandbox_spec(vec![write_rule("/")], vec![]), &[]).unwrap());
    let names = regex_expressions(&root, &["deny", "file-write*"]);
    assert_eq!(matched_paths(&names, &["/.minke", "/a/.bashrc", "/a/b"]), ["/.minke", "/a/.bashrc"]);
}

#[test]
fn a_path_that_cannot_be_said_gives_no_sandbox() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let refused =
        |spec: &SandboxSpec| matches!(build_profile(spec, &[]), Err(SandboxError::CannotExpress { .. }));
    assert!(refused(&sandbox_spec(vec![write_rule("/Users/ada/../bob")], vec![])));
    assert!(refused(&sandbox_spec(vec![write_rule("relative")], vec![])));
    let mut masked = sandbox_spec(vec![], vec![]);
    masked.masked.push(PathBuf::from(OsStr::from_bytes(b"/Users/ada/\xff")));
    assert!(refused(&masked));
    let mut socket = sandbox_spec(vec![], vec![]);
    socket.network = NetworkAccess::Proxy { socket: "proxy.sock".into() };
    assert!(refused(&socket));
}
