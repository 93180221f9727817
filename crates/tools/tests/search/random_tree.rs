//! Random trees and searches for the comparison with `rg`, reproducible from a seed.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

/// A deterministic random number generator.
pub(crate) struct TreeRng(u64);

impl TreeRng {
    pub(crate) fn new(seed: u64) -> TreeRng {
        TreeRng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next_below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 16).unwrap() % end
    }

    /// Returns true once in `times` on average.
    pub(crate) fn one_in(&mut self, times: usize) -> bool {
        self.next_below(times) == 0
    }

    pub(crate) fn pick_one<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.next_below(from.len())]
    }
}

const FOLDERS: &[&str] = &["src", "lib", "target", "docs", "a b", "ünï", ".hidden", "build", "deep", "x.d"];
const NAMES: &[&str] = &[
    "main.rs",
    "lib.rs",
    "a.py",
    "b.c",
    "b.h",
    "notes.md",
    "README.md",
    "x.txt",
    "y.txt",
    ".env",
    ".dot.rs",
    "data.json",
    "Makefile",
    "keep.log",
    "drop.log",
    "ünï.rs",
    "a b.txt",
    "[x].rs",
    "no_ext",
    "z.tmp",
    "Cargo.toml",
    "-dash.rs",
];
const WORDS: &[&str] = &[
    "fn",
    "main",
    "foo",
    "bar",
    "Foo",
    "FOO",
    "struct",
    "let x = 1;",
    "// note",
    "",
    "  indented",
    "\ttab",
    "naïve",
    "ß",
    "foobar",
    "a.b",
    "(x)",
    "end",
    "foo foo",
    "ſtrange",
    "日本語",
    "0123",
    "key: value",
    "TODO",
];
const RULES: &[&str] = &[
    "*.log",
    "!keep.log",
    "target/",
    "/build",
    "*.tmp",
    "docs/*.md",
    "**/deep",
    "src/**",
    "!src/main.rs",
    "x.*",
    "# comment",
    "\\#x",
    "",
    "a b",
    "[xy].txt",
    "*.r?",
    "!*.rs",
    ".hidden",
    "!.hidden",
    "!.env",
    "/lib/",
    "**/x.d/**",
    "a.py  ",
    "deep/**/y.txt",
    "ünï*",
    "*",
    "!*/",
    "!/src",
    "README*",
    "{a,b}.c",
    "no_ext",
    "src/target/",
    "!.dot.rs",
    "/*.md",
];

/// Fills a directory.
pub(crate) fn fill_tree(rng: &mut TreeRng, root: &Path) {
    let mut folders = vec![root.to_owned()];
    for _ in 0..2 + rng.next_below(7) {
        let parent = folders[rng.next_below(folders.len())].clone();
        let folder = parent.join(rng.pick_one(FOLDERS));
        if fs::create_dir(&folder).is_ok() {
            folders.push(folder);
        }
    }
    for folder in &folders {
        for _ in 0..rng.next_below(7) {
            let name = rng.pick_one(NAMES);
            fs::write(folder.join(name), random_content(rng)).unwrap();
        }
        for name in [".gitignore", ".ignore", ".rgignore"] {
            if rng.one_in(if name == ".gitignore" { 3 } else { 6 }) {
                fs::write(folder.join(name), random_rules(rng)).unwrap();
            }
        }
        if rng.one_in(12) {
            fs::write(folder.join(OsStr::from_bytes(b"n\xff\xfe.txt")), random_content(rng)).unwrap();
        }
        add_odd_entries(rng, root, folder);
    }
    let top = if rng.one_in(4) { folders[rng.next_below(folders.len())].clone() } else { root.to_owned() };
    if !rng.one_in(4) {
        fs::create_dir_all(top.join(".git/info")).unwrap();
        if rng.one_in(3) {
            fs::write(top.join(".git/info/exclude"), random_rules(rng)).unwrap();
        }
    }
}

fn add_odd_entries(dice: &mut TreeRng, root: &Path, folder: &Path) {
    let links: [(&str, PathBuf); 4] = [
        ("link.rs", folder.join("main.rs")),
        ("linked", root.join("src")),
        ("loop", folder.to_owned()),
        ("broken", folder.join("nothing")),
    ];
    for (name, target) in links {
        if dice.one_in(6) {
            symlink(target, folder.join(name)).unwrap();
        }
    }
    if dice.one_in(10) {
        rustix::fs::mknodat(
            rustix::fs::CWD,
            folder.join("fifo.rs"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::from_raw_mode(0o600),
            0,
        )
        .unwrap();
    }
}

fn random_rules(rng: &mut TreeRng) -> String {
    let mut text = String::new();
    for _ in 0..1 + rng.next_below(4) {
        text.push_str(rng.pick_one(RULES));
        text.push_str(if rng.one_in(10) { "\r\n" } else { "\n" });
    }
    text
}

fn random_content(dice: &mut TreeRng) -> Vec<u8> {
    let lines = if dice.one_in(25) { 4_000 + dice.next_below(6_000) } else { dice.next_below(14) };
    let end = if dice.one_in(5) { "\r\n" } else { "\n" };
    let mut text = String::new();
    for _ in 0..lines {
        for _ in 0..dice.next_below(4) {
            text.push_str(dice.pick_one(WORDS));
            text.push(' ');
        }
        text.push_str(dice.pick_one(WORDS));
        text.push_str(if dice.one_in(30) { "\n" } else { end });
    }
    if dice.one_in(3) {
        text.push_str(dice.pick_one(WORDS));
    }
    let mut bytes = text.clone().into_bytes();
    let at = dice.next_below(bytes.len() + 1);
    match dice.next_below(16) {
        0 => bytes.insert(at, 0),
        1 => bytes.splice(at..at, *b"\xff\xc3(\xe2\x82").for_each(drop),
        2 => bytes.splice(..0, *b"\xef\xbb\xbf").for_each(drop),
        3 => bytes = encode_utf16(&text, u16::to_le_bytes),
        4 => bytes = encode_utf16(&text, u16::to_be_bytes),
        5 => bytes.clear(),
        6 => bytes.push(0),
        _ => {}
    }
    bytes
}

fn encode_utf16(text: &str, order: fn(u16) -> [u8; 2]) -> Vec<u8> {
    std::iter::once(0xfeff).chain(text.encode_utf16()).flat_map(order).collect()
}

/// Returns every entry below a directory, without following links.
pub(crate) fn list_entries(root: &Path) -> Vec<PathBuf> {
    let (mut found, mut waiting) = (Vec::new(), vec![root.to_owned()]);
    while let Some(folder) = waiting.pop() {
        let mut here: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap()).collect();
        here.sort_by_key(fs::DirEntry::file_name);
        for entry in here {
            if entry.file_type().unwrap().is_dir() {
                waiting.push(entry.path());
            }
            found.push(entry.path().strip_prefix(root).unwrap().to_owned());
        }
    }
    found
}
