//! The comparison with `rg`: the same trees, the same questions, the same answers.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::tree::{Dice, entries, grow};
use crate::{Tools, home, skipped};

/// Trees, and questions about each. Together at least a thousand cases.
const TREES: u64 = 60;
const GREPS: usize = 14;
const GLOBS: usize = 6;

fn rg_is_here() -> bool {
    let found = Command::new("rg").arg("--version").stdout(Stdio::null()).status();
    if found.is_err() {
        skipped("there is no rg to compare with");
    }
    found.is_ok()
}

/// What `rg` prints in `root`, with nobody's settings.
fn rg(root: &Path, arguments: &[String]) -> Vec<String> {
    let output = Command::new("rg")
        .args(["--no-config", "--color=never", "--no-messages", "--sort=path", "--no-mmap"])
        .args(arguments)
        .current_dir(root)
        .env("HOME", "/nonexistent")
        .env_remove("XDG_CONFIG_HOME")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_terminator('\n').map(|line| line.strip_prefix("./").unwrap_or(line).to_owned()).collect()
}

/// All of a result, page by page.
async fn pages(tools: &Tools, mut arguments: Value) -> Vec<String> {
    let (mut lines, mut offset) = (Vec::new(), 0_u64);
    loop {
        arguments["offset"] = offset.into();
        let output =
            tools.run("Grep", arguments.clone()).await.unwrap_or_else(|e| panic!("{arguments}: {e:?}"));
        let content = output.content.unwrap_or_default();
        assert!(content.len() <= 64 * 1024);
        let mut page: Vec<String> = content.split_terminator('\n').map(str::to_owned).collect();
        let remark = page.pop_if(|line| line.starts_with("[rows "));
        lines.extend(page);
        match remark.as_deref().and_then(|remark| remark.split_once("go on with offset ")) {
            Some((_, rest)) => {
                let next = rest.split(' ').next().unwrap().parse().unwrap();
                assert!(next > offset, "{arguments} does not go on");
                offset = next;
            }
            None => return lines,
        }
    }
}

const PATTERNS: &[&str] = &[
    "foo",
    "Foo",
    "foo|bar",
    r"\bfoo\b",
    "^fn",
    "end$",
    r"^\s*$",
    r"let [a-z]+ = [0-9]",
    "naïve",
    r"\(x\)",
    "日本",
    ".",
    "x*",
    r"\r$",
    "s",
    r"[^\x00-\x7f]",
    "(?i)todo",
    r"(?-u:\w+ \w+ \w+)",
    "nothing here",
    r"a\.b",
    "^",
    "$",
    r"(foo|bar|main).*(end|ß)",
    r"\S",
    r"\p{Lu}",
    "0123$",
    r"foo\s",
    "(?-u:\\xff)",
    "[[:upper:]]",
];
const MULTILINE: &[&str] = &[
    r"foo\s+bar",
    r"end\n",
    r"\n\n",
    r"(?s)fn.{0,3}end",
    "x*",
    r"main[^\n]*\n[^\n]*foo",
    r"bar.foo",
    "foo",
    "^$",
    r"a\s*b",
];
const GREP_GLOBS: &[&str] = &[
    "*.rs", "!*.rs", "src/**", "**/*.md", "*.{c,h}", "/x.txt", "!target", ".*", "*.log", "docs", "docs/*",
    "[a-m]*", "!src/", "*.txt", "lib/*.rs", "**",
];
const TYPES: &[&str] = &["rust", "py", "c", "md", "txt", "json", "toml", "make"];
const GLOB_PATTERNS: &[&str] = &[
    "*",
    "**",
    "*.rs",
    "**/*.rs",
    "src/*.rs",
    "src/**/*",
    "*.{md,txt}",
    "**/.env",
    ".*",
    ".hidden/**",
    "/x.txt",
    "a b/*",
    "lib/*",
    "**/deep/**",
    "[a-m]*.??",
    "ünï*",
    "target/**",
    "docs/",
    "docs",
    "*/*",
    "*/main.rs",
    "x.d/**/y.txt",
    "\\[x\\].rs",
    "**/ünï/*",
    "*.log",
    "no_ext",
    "deep/**/*.{c,h}",
    "src/deep/*",
    "src/lib/**",
    "/lib/src/*.rs",
    "lib/target/*",
];

struct Question {
    ours: Value,
    theirs: Vec<String>,
}

fn grep_question(dice: &mut Dice, root: &Path) -> Question {
    let multiline = dice.once_in(4);
    let pattern = dice.pick(if multiline { MULTILINE } else { PATTERNS });
    let mut ours = json!({ "pattern": pattern, "head_limit": 0 });
    let mut theirs =
        vec!["--no-heading".to_owned(), "--with-filename".to_owned(), format!("--regexp={pattern}")];
    if multiline {
        ours["multiline"] = true.into();
        theirs.extend(["--multiline".to_owned(), "--multiline-dotall".to_owned()]);
    }
    if dice.once_in(3) {
        ours["-i"] = true.into();
        theirs.push("--ignore-case".to_owned());
    }
    match dice.below(4) {
        0 => theirs.push("--files-with-matches".to_owned()),
        1 => {
            ours["output_mode"] = "count".into();
            theirs.push("--count".to_owned());
        }
        _ => content_question(dice, &mut ours, &mut theirs),
    }
    if dice.once_in(3) {
        let glob = dice.pick(GREP_GLOBS);
        ours["glob"] = glob.into();
        theirs.push(format!("--glob={glob}"));
    }
    if dice.once_in(4) {
        let kind = dice.pick(TYPES);
        ours["type"] = kind.into();
        theirs.push(format!("--type={kind}"));
    }
    let all = entries(root);
    let mut path = Path::new(".").to_owned();
    if dice.once_in(3) && !all.is_empty() {
        path = all[dice.below(all.len())].clone();
        let found = root.join(&path).symlink_metadata().unwrap();
        // What is neither is refused, which other tests look at; names that are no text cannot be given.
        if !(found.is_file() || found.is_dir()) || path.to_str().is_none() {
            path = Path::new(".").to_owned();
        }
    }
    let path = path.to_str().unwrap();
    ours["path"] = path.into();
    theirs.push(format!("./{}", path.trim_start_matches('.').trim_start_matches('/')).to_owned());
    if path != "." {
        *theirs.last_mut().unwrap() = format!("./{path}");
    }
    Question { ours, theirs }
}

fn content_question(dice: &mut Dice, ours: &mut Value, theirs: &mut Vec<String>) {
    ours["output_mode"] = "content".into();
    if dice.once_in(3) {
        ours["-n"] = false.into();
        theirs.push("--no-line-number".to_owned());
    } else {
        theirs.push("--line-number".to_owned());
    }
    for (key, flag) in [("-A", "--after-context"), ("-B", "--before-context")] {
        if dice.once_in(4) {
            let lines = dice.below(4);
            ours[key] = lines.into();
            theirs.push(format!("{flag}={lines}"));
        }
    }
    if ours.get("-A").is_none() && ours.get("-B").is_none() && dice.once_in(4) {
        let lines = dice.below(3);
        ours["-C"] = lines.into();
        theirs.push(format!("--context={lines}"));
    }
}

/// Each says in its own words that a file turned out not to be text.
fn without_remarks(lines: Vec<String>) -> (Vec<String>, usize) {
    let all = lines.len();
    let remark = |line: &String| {
        line.contains("[the search ends here: not text")
            || line.contains("[matches, but is not text")
            || line.contains("WARNING: stopped searching binary file")
            || line.contains("inary file matches (found")
    };
    let kept: Vec<String> = lines.into_iter().filter(|line| !remark(line)).collect();
    let remarks = all - kept.len();
    (kept, remarks)
}

#[tokio::test]
async fn what_is_found_is_what_rg_finds() {
    if !rg_is_here() {
        return;
    }
    let (mut cases, mut found) = (0, 0);
    for seed in 0..TREES {
        let (_home, root) = home();
        let mut dice = Dice::new(seed);
        grow(&mut dice, &root);
        let tools = Tools::at(&root);
        for _ in 0..GREPS {
            let Question { ours, theirs } = grep_question(&mut dice, &root);
            let got = without_remarks(pages(&tools, ours.clone()).await);
            let want = without_remarks(rg(&root, &theirs));
            assert!(got == want, "tree {seed}: {ours}\nrg {theirs:?}\n ours {got:#?}\n rg {want:#?}");
            cases += 1;
            found += usize::from(!got.0.is_empty());
        }
    }
    eprintln!("{cases} searches as rg makes them, {found} of them with matches");
    assert!(found * 3 > cases, "too few of the questions find anything: {found} of {cases}");
}

#[tokio::test]
async fn what_is_listed_is_what_rg_lists() {
    if !rg_is_here() {
        return;
    }
    let (mut cases, mut found) = (0, 0);
    for seed in 1_000..1_000 + TREES {
        let (_home, root) = home();
        let mut dice = Dice::new(seed);
        grow(&mut dice, &root);
        let tools = Tools::at(&root);
        for _ in 0..GLOBS {
            let pattern = dice.pick(GLOB_PATTERNS);
            let include_ignored = dice.once_in(3);
            let ours = json!({ "pattern": pattern, "include_ignored": include_ignored });
            let mut got = tools.lines("Glob", ours.clone()).await;
            got.sort();
            // Those that `rg` leaves, among those that match; a glob alone would overrule its ignore files.
            let mut left = vec!["--files".to_owned(), "./".to_owned()];
            if include_ignored {
                left.push("--no-ignore".to_owned());
            }
            if pattern.contains("/.") || pattern.starts_with('.') {
                left.push("--hidden".to_owned());
            }
            let left = rg(&root, &left);
            let glob = format!("--glob={pattern}");
            let matching = rg(&root, &["--files", "-uu", &glob, "./"].map(str::to_owned));
            let mut want: Vec<String> = matching.into_iter().filter(|path| left.contains(path)).collect();
            want.sort();
            assert!(got == want, "tree {seed}: {ours}\n ours {got:#?}\n rg {want:#?}");
            cases += 1;
            found += usize::from(!got.is_empty());
        }
    }
    eprintln!("{cases} listings as rg makes them, {found} of them with files");
    assert!(found * 3 > cases, "too few of the patterns list anything: {found} of {cases}");
}
