//! The comparison with `rg`: the same searches in the same trees give the same results.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::random_tree::{TreeRng, fill_tree, list_entries};
use crate::{Tools, home, skip_test};

/// The number of trees, and of searches in each. Together at least a thousand cases.
const TREE_COUNT: u64 = 60;
const GREPS_PER_TREE: usize = 14;
const GLOBS_PER_TREE: usize = 6;

fn is_rg_installed() -> bool {
    let found = Command::new("rg").arg("--version").stdout(Stdio::null()).status();
    if found.is_err() {
        skip_test("there is no rg to compare with");
    }
    found.is_ok()
}

/// Returns the output of `rg` in `root`, without any configuration.
fn run_rg(root: &Path, arguments: &[String]) -> Vec<String> {
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

/// Returns all pages of a result.
async fn all_pages(tools: &Tools, mut arguments: Value) -> Vec<String> {
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
        match remark.as_deref().and_then(|remark| remark.split_once("continue with offset ")) {
            Some((_, rest)) => {
                let next = rest.split(' ').next().unwrap().parse().unwrap();
                assert!(next > offset, "{arguments} does not continue");
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

struct RgComparison {
    ours: Value,
    theirs: Vec<String>,
}

fn random_grep(rng: &mut TreeRng, root: &Path) -> RgComparison {
    let multiline = rng.one_in(4);
    let pattern = rng.pick_one(if multiline { MULTILINE } else { PATTERNS });
    let mut ours = json!({ "pattern": pattern, "head_limit": 0 });
    let mut theirs =
        vec!["--no-heading".to_owned(), "--with-filename".to_owned(), format!("--regexp={pattern}")];
    if multiline {
        ours["multiline"] = true.into();
        theirs.extend(["--multiline".to_owned(), "--multiline-dotall".to_owned()]);
    }
    if rng.one_in(3) {
        ours["-i"] = true.into();
        theirs.push("--ignore-case".to_owned());
    }
    match rng.next_below(4) {
        0 => theirs.push("--files-with-matches".to_owned()),
        1 => {
            ours["output_mode"] = "count".into();
            theirs.push("--count".to_owned());
        }
        _ => add_content_options(rng, &mut ours, &mut theirs),
    }
    if rng.one_in(3) {
        let glob = rng.pick_one(GREP_GLOBS);
        ours["glob"] = glob.into();
        theirs.push(format!("--glob={glob}"));
    }
    if rng.one_in(4) {
        let kind = rng.pick_one(TYPES);
        ours["type"] = kind.into();
        theirs.push(format!("--type={kind}"));
    }
    let all = list_entries(root);
    let mut path = Path::new(".").to_owned();
    if rng.one_in(3) && !all.is_empty() {
        path = all[rng.next_below(all.len())].clone();
        let found = root.join(&path).symlink_metadata().unwrap();
        // Other tests cover special files; names that are not UTF-8 cannot be passed.
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
    RgComparison { ours, theirs }
}

fn add_content_options(rng: &mut TreeRng, ours: &mut Value, theirs: &mut Vec<String>) {
    ours["output_mode"] = "content".into();
    if rng.one_in(3) {
        ours["-n"] = false.into();
        theirs.push("--no-line-number".to_owned());
    } else {
        theirs.push("--line-number".to_owned());
    }
    for (key, flag) in [("-A", "--after-context"), ("-B", "--before-context")] {
        if rng.one_in(4) {
            let lines = rng.next_below(4);
            ours[key] = lines.into();
            theirs.push(format!("{flag}={lines}"));
        }
    }
    if ours.get("-A").is_none() && ours.get("-B").is_none() && rng.one_in(4) {
        let lines = rng.next_below(3);
        ours["-C"] = lines.into();
        theirs.push(format!("--context={lines}"));
    }
}

/// Removes the remarks about binary files, which differ in wording.
fn strip_remarks(lines: Vec<String>) -> (Vec<String>, usize) {
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
    if !is_rg_installed() {
        return;
    }
    let (mut cases, mut found) = (0, 0);
    for seed in 0..TREE_COUNT {
        let (_home, root) = home();
        let mut rng = TreeRng::new(seed);
        fill_tree(&mut rng, &root);
        let tools = Tools::at(&root);
        for _ in 0..GREPS_PER_TREE {
            let RgComparison { ours, theirs } = random_grep(&mut rng, &root);
            let got = strip_remarks(all_pages(&tools, ours.clone()).await);
            let want = strip_remarks(run_rg(&root, &theirs));
            assert!(got == want, "tree {seed}: {ours}\nrg {theirs:?}\n ours {got:#?}\n rg {want:#?}");
            cases += 1;
            found += usize::from(!got.0.is_empty());
        }
    }
    eprintln!("{cases} searches as rg makes them, {found} of them with matches");
    assert!(found * 3 > cases, "too few searches find anything: {found} of {cases}");
}

#[tokio::test]
async fn what_is_listed_is_what_rg_lists() {
    if !is_rg_installed() {
        return;
    }
    let (mut cases, mut found) = (0, 0);
    for seed in 1_000..1_000 + TREE_COUNT {
        let (_home, root) = home();
        let mut rng = TreeRng::new(seed);
        fill_tree(&mut rng, &root);
        let tools = Tools::at(&root);
        for _ in 0..GLOBS_PER_TREE {
            let pattern = rng.pick_one(GLOB_PATTERNS);
            let include_ignored = rng.one_in(3);
            let ours = json!({ "pattern": pattern, "include_ignored": include_ignored });
            let mut got = tools.lines("Glob", ours.clone()).await;
            got.sort();
            // The files that `rg` does not ignore, restricted to the matching ones; a glob alone would
            // override ignore files.
            let mut left = vec!["--files".to_owned(), "./".to_owned()];
            if include_ignored {
                left.push("--no-ignore".to_owned());
            }
            if pattern.contains("/.") || pattern.starts_with('.') {
                left.push("--hidden".to_owned());
            }
            let left = run_rg(&root, &left);
            let glob = format!("--glob={pattern}");
            let matching = run_rg(&root, &["--files", "-uu", &glob, "./"].map(str::to_owned));
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
