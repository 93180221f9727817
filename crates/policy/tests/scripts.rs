//! Scripts: every way in which a line may name a file that it runs.

use minke_policy::shell::find_scripts;

/// Lines that run the file `/ws/x.sh`, or one that the second part names.
const SCRIPT_LINES: [(&str, &str); 52] = [
    ("./x.sh", "/ws/x.sh"),
    ("/ws/x.sh --fast", "/ws/x.sh"),
    ("sub/../x.sh", "/ws/sub/../x.sh"),
    ("bash x.sh", "/ws/x.sh"),
    ("bash -eu ./x.sh one two", "/ws/x.sh"),
    ("sh -x -- x.sh", "/ws/x.sh"),
    ("bash --rcfile ./x.sh -i", "/ws/x.sh"),
    ("source x.sh", "/ws/x.sh"),
    (". ./x.sh", "/ws/x.sh"),
    ("python3 x.py", "/ws/x.py"),
    ("python3.12 -u x.py data", "/ws/x.py"),
    ("python -m pkg.tool", "/ws/pkg/tool.py"),
    ("python3 pkg", "/ws/pkg/__main__.py"),
    ("node x.js", "/ws/x.js"),
    ("node -r ./hook.js app.js", "/ws/hook.js"),
    ("node -r ./hook.js app.js", "/ws/app.js"),
    ("node --require=./hook.js app.js", "/ws/hook.js"),
    ("node app", "/ws/app.js"),
    ("perl -w x.pl", "/ws/x.pl"),
    ("ruby -r./lib.rb x.rb", "/ws/lib.rb"),
    ("awk -f x.awk data", "/ws/x.awk"),
    ("deno run x.ts", "/ws/x.ts"),
    ("go run ./x.go", "/ws/x.go"),
    ("cd sub && ./x.sh", "/ws/sub/x.sh"),
    ("cd sub; cd deep && bash x.sh", "/ws/sub/deep/x.sh"),
    ("(cd /other && ./x.sh)", "/other/x.sh"),
    ("pushd sub && ./x.sh", "/ws/sub/x.sh"),
    ("env -C sub ./x.sh", "/ws/sub/x.sh"),
    ("bash -c './x.sh'", "/ws/x.sh"),
    ("bash -c \"cd sub && sh x.sh\"", "/ws/sub/x.sh"),
    ("sudo ./x.sh", "/ws/x.sh"),
    ("env A=1 nice -n 5 ./x.sh", "/ws/x.sh"),
    ("timeout 5 bash x.sh", "/ws/x.sh"),
    ("xargs ./x.sh < list", "/ws/x.sh"),
    ("find . -name '*.c' -exec ./x.sh {} ;", "/ws/x.sh"),
    ("true && false || ./x.sh", "/ws/x.sh"),
    ("./a.sh | ./x.sh", "/ws/x.sh"),
    ("./a.sh; ./x.sh &", "/ws/a.sh"),
    ("echo $(./x.sh)", "/ws/x.sh"),
    ("diff <(./x.sh) old", "/ws/x.sh"),
    ("sh < x.sh", "/ws/x.sh"),
    ("bash -s < x.sh", "/ws/x.sh"),
    ("cat x.sh | sh", "/ws/x.sh"),
    ("cat a b x.sh | python3 -", "/ws/x.sh"),
    ("BASH_ENV=./x.sh bash -c :", "/ws/x.sh"),
    ("LD_PRELOAD=/ws/x.so ls", "/ws/x.so"),
    ("NODE_OPTIONS='--require ./x.js' npm test", "/ws/x.js"),
    ("make", "/ws/Makefile"),
    ("make -C sub all", "/ws/sub/GNUmakefile"),
    ("make -f x.mk", "/ws/x.mk"),
    ("npm test", "/ws/package.json"),
    ("npm --prefix sub run build", "/ws/sub/package.json"),
];

#[test]
fn every_way_to_name_a_script_names_it() {
    for (line, path) in SCRIPT_LINES {
        let found = find_scripts(line, "/ws");
        assert!(found.named.iter().any(|named| named == path), "{line}: {found:#?}");
    }
}

/// Unknown programs: an argument counts if the file is executable.
#[test]
fn words_of_unknown_programs_may_be_programs() {
    for line in [
        "hyperfine ./x.sh",
        "hyperfine 'x.sh --fast'",
        "git bisect run ./x.sh",
        "docker run --entrypoint=./x.sh image",
        "rsync -e ./x.sh a b:c",
        "tar -cf a.tar --to-command=x.sh .",
        "/usr/bin/time -v ./x.sh",
    ] {
        let found = find_scripts(line, "/ws");
        let all = found.named.iter().chain(&found.possible).any(|path| path == "/ws/x.sh");
        assert!(all, "{line}: {found:#?}");
    }
}

#[test]
fn what_is_known_only_later_is_said() {
    for line in [
        "$RUN",
        "bash $SCRIPT",
        "./$name.sh",
        "python3 \"$X\"",
        "sh < $X",
        "cd $DIR && ./x.sh",
        "cd && ./x.sh",
    ] {
        assert!(!find_scripts(line, "/ws").unknown.is_empty(), "{line}");
    }
    for line in [
        "ls -la",
        "cargo test",
        "git commit -m 'a b'",
        "./x.sh",
        "echo $HOME",
        "cat $FILE",
        "python3 x.py \"$1\"",
    ] {
        assert_eq!(find_scripts(line, "/ws").unknown, Vec::<String>::new(), "{line}");
    }
}

/// Data files are not scripts: an approved `cat notes.txt` does not ask again.
#[test]
fn plain_arguments_are_at_most_maybe() {
    for line in
        ["cat notes.txt", "grep -r x notes.txt", "cp notes.txt other", "git add notes.txt", "ls ./notes.txt"]
    {
        let found = find_scripts(line, "/ws");
        assert!(!found.named.iter().any(|path| path.ends_with("notes.txt")), "{line}: {found:#?}");
    }
    assert_eq!(find_scripts("cargo test", "/ws").programs, ["cargo"]);
}

#[test]
fn a_line_that_cannot_be_read_is_searched_word_by_word() {
    for line in
        ["parallel ./x.sh ::: a b", "zsh -c './x.sh'", "if ./x.sh", "eval \"$A ./x.sh\"", "screen -dm ./x.sh"]
    {
        let found = find_scripts(line, "/ws");
        assert!(found.named.iter().any(|path| path == "/ws/x.sh"), "{line}: {found:#?}");
    }
}

#[test]
fn a_hostile_line_ends_within_bounds() {
    let many = "cd a && ".repeat(300) + "./x.sh";
    assert!(!find_scripts(&many, "/ws").unknown.is_empty());
    let words = format!("bash x.sh {}", "w ".repeat(60_000));
    let found = find_scripts(&words, "/ws");
    assert!(found.named.len() + found.possible.len() <= 2_048 && !found.named.is_empty());
    for line in ["", ";", "((((", "'", "\0", "<<<", "| |"] {
        let _ends = find_scripts(line, "");
    }
}
