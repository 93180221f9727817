//! Seatbelt profiles as text: golden files for whole scopes (`MINKE_BLESS=1` writes them anew), and quoting that holds.
//! What macOS makes of them is not tested here.

use std::fs;
use std::path::{Path, PathBuf};

use minke_exec::fence::{EnvRules, FenceError, FenceSpec, Network, PodDirs};
use minke_exec::seatbelt::profile;
use minke_record::{Permission, Scope, ScopeRule};
use proptest::prelude::*;

const HOME: &str = "/Users/ada";
const DATA: &str = "/Users/ada/Library/Application Support/minke";

fn rule(permission: Permission, target: &str) -> ScopeRule {
    ScopeRule { target: target.to_owned(), permission, recursive: true }
}

fn read(target: &str) -> ScopeRule {
    rule(Permission::Read, target)
}

fn write(target: &str) -> ScopeRule {
    rule(Permission::Write, target)
}

fn flat(rule: ScopeRule) -> ScopeRule {
    ScopeRule { recursive: false, ..rule }
}

fn spec(allow: Vec<ScopeRule>, deny: Vec<ScopeRule>) -> FenceSpec {
    let pod = PathBuf::from(DATA).join("pods/ada");
    FenceSpec {
        scope: Scope { allow, deny },
        read_only: false,
        dirs: PodDirs {
            tmp: pod.join("tmp"),
            output: pod.join("output"),
            fences: pod.join("fences"),
            writable_tmp: true,
        },
        masked: vec![PathBuf::from(HOME).join(".ssh"), PathBuf::from(DATA)],
        lifted: Vec::new(),
        findings: minke_exec::fence::Findings::default(),
        network: Network::Off,
        env: EnvRules::default(),
    }
}

fn tools() -> Vec<PathBuf> {
    vec![PathBuf::from(HOME).join(".cargo"), PathBuf::from("/opt/homebrew/bin")]
}

fn golden(name: &str, spec: &FenceSpec) -> String {
    let text = profile(spec, &tools()).expect("a profile");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.sb"));
    if std::env::var_os("MINKE_BLESS").is_some() {
        fs::write(&file, &text).expect("the golden file is written");
    }
    let expected = fs::read_to_string(&file)
        .unwrap_or_else(|e| panic!("{}: {e}; MINKE_BLESS=1 writes it", file.display()));
    assert_eq!(text, expected, "{name}: if it is meant, MINKE_BLESS=1 writes it anew");
    text
}

#[test]
fn profiles_are_as_they_were_read_and_approved() {
    golden("workspace", &spec(vec![write("/Users/ada/work")], vec![]));
    golden("nothing", &spec(vec![], vec![]));
    golden(
        "read_home_write_below",
        &spec(vec![read(HOME), write("/Users/ada/work"), write("/Users/ada/notes")], vec![]),
    );
    golden(
        "denied_and_lent",
        &spec(
            vec![write("/Users/ada/work")],
            vec![read("/Users/ada/work/secret/deep"), write("/Users/ada/work/lent")],
        ),
    );
    golden(
        "flat",
        &spec(
            vec![flat(write("/Users/ada/work")), flat(read("/Users/ada/docs"))],
            vec![flat(write("/Users/ada/work"))],
        ),
    );
    let mut read_only = spec(vec![write("/Users/ada/work")], vec![]);
    read_only.read_only = true;
    read_only.dirs.writable_tmp = false;
    golden("read_only", &read_only);
    let mut proxied = spec(vec![write("/Users/ada/work")], vec![]);
    proxied.network = Network::Proxy { socket: PathBuf::from(DATA).join("pods/ada/proxy.sock") };
    golden("proxy", &proxied);
    let mut lifted = spec(vec![write("/Users/ada/work")], vec![write("/Users/ada/work/.git/config.d")]);
    lifted.lifted = vec![
        "/Users/ada/work/.git/config".into(),
        "/Users/ada/elsewhere/.minke".into(),
        "/Users/ada/.ssh/x".into(),
    ];
    golden("lifted", &lifted);
    let clone = format!("{DATA}/clones/a");
    let mut cloned = spec(vec![write(&clone), read("/Users/ada/work")], vec![]);
    cloned.masked.push(PathBuf::from(&clone).join("masked"));
    golden("clone_inside_our_own", &cloned);
    golden("home", &spec(vec![write(HOME)], vec![]));
    golden(
        "strange_names",
        &spec(
            vec![write("/Users/ada/a \"b\" (c) \\d\n;e[f].*$")],
            vec![read("/Users/ada/a \"b\" (c) \\d\n;e[f].*$/)(allow default)(\"")],
        ),
    );
    golden("root", &spec(vec![flat(read("/")), write("/")], vec![write("/private")]));
}

/// An expression of a profile: a text in quotes, a word, or a list.
#[derive(Debug, PartialEq)]
enum Part {
    Text(String),
    Word(String),
    List(Vec<Part>),
}

/// Reads a profile as Scheme does, independently of who wrote it.
fn parse(text: &str) -> Vec<Part> {
    let mut open: Vec<Vec<Part>> = vec![Vec::new()];
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        let top = open.len() - 1;
        match c {
            '(' => open.push(Vec::new()),
            ')' => {
                let list = open.pop().expect("a list is open");
                open.last_mut().expect("no more ends than beginnings").push(Part::List(list));
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
                open[top].push(Part::Text(string));
            }
            c if c.is_whitespace() => {}
            c => {
                let mut word = String::from(c);
                while let Some(c) = rest.next_if(|c| !c.is_whitespace() && !"()\";".contains(*c)) {
                    word.push(c);
                }
                open[top].push(Part::Word(word));
            }
        }
    }
    assert_eq!(open.len(), 1, "every list is closed");
    open.remove(0)
}

/// The shape of a profile: its words and lists, without what is in quotes.
fn shape(parts: &[Part]) -> String {
    parts
        .iter()
        .map(|part| match part {
            Part::Text(_) => "\"\"".to_owned(),
            Part::Word(word) => word.clone(),
            Part::List(list) => format!("({})", shape(list)),
        })
        .collect::<Vec<_>>()
        .join(" ")
}

fn texts(parts: &[Part], all: &mut Vec<String>) {
    for part in parts {
        match part {
            Part::Text(text) => all.push(text.clone()),
            Part::Word(_) => {}
            Part::List(list) => texts(list, all),
        }
    }
}

fn with_name(name: &str) -> FenceSpec {
    let root = format!("/Users/ada/{name}");
    let mut spec = spec(
        vec![write(&root), flat(read(&format!("{root}/r")))],
        vec![read(&format!("{root}/{name}")), flat(write(&format!("{root}/w/{name}")))],
    );
    spec.masked.push(PathBuf::from(format!("{root}/m/{name}")));
    spec.lifted.push(PathBuf::from(format!("{root}/.git/hooks")));
    spec.network = Network::Proxy { socket: PathBuf::from(format!("{root}/s/{name}")) };
    spec
}

proptest! {
    #[test]
    fn no_path_breaks_out_of_its_quotes(name in "[\"\\\\()\\n\\r\\t ;#'`$.*+?^|\\[\\]{}a-cä]{1,12}") {
        prop_assume!(name != "." && name != "..");
        let tame = parse(&profile(&with_name("x"), &[]).expect("a profile"));
        let hostile = parse(&profile(&with_name(&name), &[]).expect("a profile"));
        let mut lines: Vec<String> = hostile.iter().map(|part| shape(std::slice::from_ref(part))).collect();
        let mut tame_lines: Vec<String> = tame.iter().map(|part| shape(std::slice::from_ref(part))).collect();
        lines.sort();
        tame_lines.sort();
        prop_assert_eq!(lines, tame_lines);
        let mut all = Vec::new();
        texts(&hostile, &mut all);
        let expected = format!("/Users/ada/{name}/m/{name}");
        prop_assert!(all.contains(&expected), "{:?} is not among {:?}", expected, all);
    }
}

/// Whether a profile lets something be done: the last rule that matches decides. Of its filters only literals and
/// subpaths are looked at; regular expressions have a test of their own.
fn verdict(profile: &[Part], operation: &str, path: &str) -> bool {
    let mut allowed = false;
    for part in profile {
        let Part::List(list) = part else { continue };
        let [Part::Word(verdict), rest @ ..] = list.as_slice() else { continue };
        let operations: Vec<&str> = rest
            .iter()
            .map_while(|part| if let Part::Word(word) = part { Some(word.as_str()) } else { None })
            .collect();
        let named = |word: &&str| {
            *word == operation || word.strip_suffix('*').is_some_and(|start| operation.starts_with(start))
        };
        let matches = |filter: &Part| match filter {
            Part::List(filter) => match filter.as_slice() {
                [Part::Word(kind), Part::Text(at)] if kind == "literal" => path == at,
                [Part::Word(kind), Part::Text(at)] if kind == "subpath" => Path::new(path).starts_with(at),
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
    let spec = spec(
        vec![read(HOME), write("/Users/ada/work"), write(&clone)],
        vec![read("/Users/ada/work/secret"), write("/Users/ada/work/lent")],
    );
    let parsed = parse(&profile(&spec, &[tools(), vec![PathBuf::from(DATA).join("bin")]].concat()).unwrap());
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
        assert_eq!(verdict(&parsed, "file-read-data", path), reads, "read {path}");
        assert_eq!(verdict(&parsed, "file-write-create", path), writes, "write {path}");
    }
    assert!(verdict(&parsed, "file-write-unlink", "/Users/ada/work/x"));
    for path in ["/Users/ada/work", "/Users/ada/work/secret", "/Users/ada/work/lent"] {
        assert!(!verdict(&parsed, "file-write-unlink", path), "{path} can be moved away");
    }
    assert!(!verdict(&parsed, "network-outbound", &format!("{DATA}/pods/ada/sock")));
}

/// The expressions of all rules that begin like this.
fn expressions(profile: &[Part], rule: &[&str]) -> String {
    let mut all = Vec::new();
    for part in profile {
        let Part::List(list) = part else { continue };
        let words: Vec<&str> = list
            .iter()
            .map_while(|part| if let Part::Word(word) = part { Some(word.as_str()) } else { None })
            .collect();
        if words == rule {
            texts(list, &mut all);
        }
    }
    all.retain(|text| text.starts_with('^'));
    all.join("\n")
}

/// Which of these paths an engine for extended expressions finds: one of another house than ours.
fn found(expressions: &str, paths: &[&str]) -> Vec<String> {
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
    let parsed = parse(&profile(&spec(vec![write("/Users/ada/w.rk")], vec![]), &[]).unwrap());
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
    let names = expressions(&parsed, &["deny", "file-write*"]);
    assert_eq!(found(&names, &held), held);
    assert_eq!(found(&names, &free), Vec::<String>::new());
    let parents = expressions(&parsed, &["deny", "file-write-create", "file-write-unlink"]);
    let above = ["/Users/ada/w.rk/.git", "/Users/ada/w.rk/a/.Config", "/Users/ada/w.rk/.git/modules"];
    assert_eq!(found(&parents, &above), above);
    assert_eq!(found(&parents, &["/Users/ada/w.rk/.git/x", "/Users/ada/w.rk/a"]), Vec::<String>::new());
    let root = parse(&profile(&spec(vec![write("/")], vec![]), &[]).unwrap());
    let names = expressions(&root, &["deny", "file-write*"]);
    assert_eq!(found(&names, &["/.minke", "/a/.bashrc", "/a/b"]), ["/.minke", "/a/.bashrc"]);
}

#[test]
fn a_path_that_cannot_be_said_gives_no_fence() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let refused = |spec: &FenceSpec| matches!(profile(spec, &[]), Err(FenceError::CannotExpress { .. }));
    assert!(refused(&spec(vec![write("/Users/ada/../bob")], vec![])));
    assert!(refused(&spec(vec![write("relative")], vec![])));
    let mut masked = spec(vec![], vec![]);
    masked.masked.push(PathBuf::from(OsStr::from_bytes(b"/Users/ada/\xff")));
    assert!(refused(&masked));
    let mut socket = spec(vec![], vec![]);
    socket.network = Network::Proxy { socket: "proxy.sock".into() };
    assert!(refused(&socket));
}
