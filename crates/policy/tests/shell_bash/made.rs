//! Lines made up from a harmless vocabulary, by a grammar and by spoiling what the grammar gave.

/// A small generator with a seed, so that a failure can be had again.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound.max(1)
    }

    pub(crate) fn one<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    fn chance(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }
}

const NAMES: &[&str] = &[
    "aa", "bb", "cc", "dd", "ee", "echo", "ls", "rm", "cat", "git", "cargo", "true", "false", "printf", ":",
];
const WORDS: &[&str] = &[
    "a", "-b", "--long", "x=y", "1", "2", "a.b", "a,b", "{}", "a#b", "#", "!", "a!b", "%", "+", "=", "a=",
    "-", "--", "{", "}", "a{b", "]", "then", "do", "in", "if", "esac", "a:b", "@", "^", "a@b", "[", "{a}",
    "a}b{",
];
const UNKNOWN: &[&str] = &[
    "$v",
    "$n",
    "\"$v\"",
    "${v}",
    "${v:-a b}",
    "\"${v#a}\"",
    "${#v}",
    "$((1+2))",
    "$((n * 2))",
    "*.none",
    "[ab]",
    "?",
    "{a,b}",
    "{1..3}",
    "a{b,c}d",
    "$'\\n'",
    "$?",
    "$#",
    "\"$@\"",
    "${v/a/b}",
    "${v%b}",
    "${v:1:2}",
    "~",
    "a=~",
    "${v^^}",
];
const QUOTED: &[&str] = &[
    "'a b'",
    "\"a b\"",
    "'$(aa)'",
    "\"\\$(aa)\"",
    "a\\ b",
    "\\;",
    "\\$v",
    "''",
    "\"\"",
    "'a'\"b\"c",
    "$'a\\tb'",
    "$'\\x61'",
    "\\a",
    "a'b c'd",
    "'`aa`'",
    "\"'\"",
    "'\"'",
    "\\\"",
    "a\\\nb",
    "'a\nb'",
    "\"a\\\nb\"",
    "\"a\\b\"",
    "$'\\''",
    "\\#",
    "\"#\"",
    "'&&'",
    "'|'",
    "\"a;b\"",
    "\\(",
    "'('",
    "$",
    "a$",
    "\"$\"",
    "\"a$\"",
    "\\\\",
    "'\\'",
    "\"\\\\\"",
    "\\{a,b}",
    "{a\\,b}",
    "'{a,b}'",
    "\\~",
    "'*'",
    "\\*",
    "\"[a]\"",
];

pub(crate) struct Maker {
    pub(crate) dice: Dice,
    depth: usize,
}

impl Maker {
    pub(crate) fn new(seed: u64) -> Maker {
        Maker { dice: Dice::new(seed), depth: 0 }
    }

    /// A whole line; every fourth is spoiled. Every sixth is one of those that were given, most of them spoiled.
    pub(crate) fn line(&mut self, given: &[String]) -> String {
        self.depth = 0;
        if self.dice.chance(6) {
            let line = &given[self.dice.below(given.len())];
            return if self.dice.chance(4) { line.clone() } else { self.spoiled(line) };
        }
        let line = self.list();
        if self.dice.chance(4) { self.spoiled(&line) } else { line }
    }

    fn list(&mut self) -> String {
        let mut line = self.pipeline();
        let more = if self.dice.chance(2 + self.depth * 2) { 1 + self.dice.below(2) } else { 0 };
        for _ in 0..more {
            line.push_str(self.dice.one(&[
                "; ",
                " && ",
                " || ",
                "\n",
                ";",
                "&&",
                " & ",
                " ||\n",
                " # aa; bb\n",
            ]));
            let next = self.pipeline();
            line.push_str(&next);
        }
        line
    }

    fn pipeline(&mut self) -> String {
        let mut line = String::new();
        if self.dice.chance(12) {
            line.push_str(self.dice.one(&["! ", "time ", "! "]));
        }
        line.push_str(&self.command());
        while self.dice.chance(9) {
            line.push_str(self.dice.one(&[" | ", "|", " |& ", " |\n"]));
            let next = self.command();
            line.push_str(&next);
        }
        line
    }

    fn command(&mut self) -> String {
        self.depth += 1;
        let line = if self.depth > 3 || !self.dice.chance(3 + self.depth * 2) {
            self.simple()
        } else {
            self.compound()
        };
        self.depth -= 1;
        line
    }

    fn compound(&mut self) -> String {
        let form = self.dice.one(&[
            "( A )",
            "{ A; }",
            "if A; then B; fi",
            "if A; then B; else A; fi",
            "if A\nthen B\nelif A; then\nB\nfi",
            "while A; do B; break; done",
            "until A; do B; break; done",
            "for i in W b; do A; done",
            "for ((kD=0; kD<2; kD++)); do A; done",
            "case W in a) A;; b|c) B;; *) A;; esac",
            "case a in (a) A;;& *) B ;; esac",
            "f() { A; }; f W",
            "[[ -n W && a == b* ]]",
            "(( n > 2 ))",
            "(A)",
            "function g { A; }\ng",
            "[[ a =~ ^(a|b)$ || ! -f x ]] && A",
            "case W in a|b) A;& *) B;; esac",
            "while read -r q; do A; break; done <<< W",
            "{ A; } 2>&1 | while read -r q; do B; done",
            "[ -n W ] && A",
            "trap 'A' EXIT; B",
            "x=$(A) && B",
            "A <<EOF\n$(B)\nEOF\n",
            "A <<-'EOF' | B\n\ta $(aa)\n\tEOF\n",
            "A <<X; B <<Y\n1\nX\n2\nY\n",
            "bash <<'EOF'\nA\nB\nEOF\n",
            "bash <<< 'A'",
            "eval A \\; B",
            "q=(W $(A)); B",
            "for q in W $(A) {1..2}; do B; done",
            "until A; do B; break; done 2> f1",
            "if [[ W == a* ]]; then A; fi",
            "echo \"${v:-$(A)} `B`\" W",
            "A && { B; } || ( A )",
            "! { A; } && B",
            "f() { A; } 2> f1; f; B",
            "f() if A; then B; fi; f",
            "(( $n > 2 )) && A || B",
            "echo $(( n + 1 )) ${v:n} && A",
            "echo $((A))",
            "echo $( (A) ; B )",
            "echo \"a${v:+\"$(A)\"}b\" ${v//a/$(B)}",
            "for i; do A; done",
            "for i in W\ndo\nA\ndone",
            "f() ( A ); f",
            "{ A; } | B",
        ]);
        let mut body = String::new();
        for c in form.chars() {
            match c {
                'A' | 'B' => body.push_str(&self.list()),
                'W' => body.push_str(&self.word()),
                'D' => body.push_str(&self.depth.to_string()),
                c => body.push(c),
            }
        }
        if self.dice.chance(5) { format!("{body} {}", self.redirect()) } else { body }
    }

    fn simple(&mut self) -> String {
        let mut line = String::new();
        if self.dice.chance(10) {
            line.push_str(self.dice.one(&[
                "q=1 ",
                "q='a b' r= ",
                "q=$(aa) ",
                "q=a\\ b ",
                "q+=x ",
                "q=(a b); ",
                "q[1]=c; ",
            ]));
        }
        if self.dice.chance(20) {
            line.push_str(&format!("{} ", self.redirect()));
        }
        match self.dice.below(18) {
            0 => line.push_str(self.dice.one(&[
                "sudo ",
                "env q=1 ",
                "nohup ",
                "timeout 5 ",
                "nice -n 3 ",
                "command ",
                "busybox ",
                "setsid ",
                "xargs ",
            ])),
            1 => {
                let inner = self.deeper(Self::list).unwrap_or_else(|| "aa".into());
                let quoted = inner.replace('\'', "'\\''");
                line.push_str(&format!("{} '{quoted}'", self.dice.one(&["bash -c", "sh -c", "eval"])));
                return line;
            }
            2 if self.depth < 4 => {
                let (start, end) = if self.dice.chance(2) { ("<<EOF", "EOF") } else { ("<<'E'", "E") };
                let inner = self.deeper(Self::list).unwrap_or_else(|| "aa".into());
                let inner = inner.replace(['\'', '"', '\\'], "");
                line.push_str(&format!("cat {start}\na $({inner}\n) b\n{end}\naa"));
                return line;
            }
            _ => {}
        }
        let name = self.dice.one(NAMES);
        line.push_str(&if self.dice.chance(8) { self.disguised(name) } else { name.to_owned() });
        for _ in 0..self.dice.below(4) {
            line.push(' ');
            let next = if self.dice.chance(9) { self.redirect() } else { self.word() };
            line.push_str(&next);
        }
        line
    }

    /// A name that does not look like itself.
    fn disguised(&mut self, name: &str) -> String {
        let (first, rest) = name.split_at(1);
        match self.dice.below(7) {
            0 => format!("\\{name}"),
            1 => format!("'{name}'"),
            2 => format!("\"{name}\""),
            3 => format!("{first}''{rest}"),
            4 => format!("{first}\\\n{rest}"),
            5 => format!("$'{name}'"),
            _ => format!("{first}\"{rest}\""),
        }
    }

    fn deeper<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.depth > 3 {
            return None;
        }
        self.depth += 1;
        let made = make(self);
        self.depth -= 1;
        Some(made)
    }

    fn word(&mut self) -> String {
        match self.dice.below(18) {
            0..=10 => self.dice.one(WORDS).to_owned(),
            11..=13 => self.dice.one(QUOTED).to_owned(),
            14 | 15 => self.dice.one(UNKNOWN).to_owned(),
            16 => format!("{}{}", self.dice.one(WORDS), self.dice.one(QUOTED)),
            _ => self.substitution(),
        }
    }

    fn substitution(&mut self) -> String {
        let Some(inner) = self.deeper(Self::list) else { return "$(aa)".into() };
        match self.dice.below(7) {
            0 => format!("$({inner})"),
            1 => format!("\"$({inner})\""),
            2 if !inner.contains(['`', '\\']) => format!("`{inner}`"),
            3 => format!("<({inner})"),
            4 => format!("${{v:+$({inner})}}"),
            5 => format!("a\"b$({inner} )\"c"),
            _ => format!("${{zz:-$({inner})}}"),
        }
    }

    fn redirect(&mut self) -> String {
        let target = self.dice.one(&["f1", "f2", "'f 3'", "f1"]);
        match self.dice.below(9) {
            0 => format!("> {target}"),
            1 => format!(">{target}"),
            2 => format!("2>{target}"),
            3 => "2>&1".to_owned(),
            4 => format!(">> {target}"),
            5 => format!("&> {target}"),
            6 => format!(">| {target}"),
            7 => self.dice.one(&["<<< aa", "<<< aa", ">&f1", ">&'$(aa)'", "<>f1", "{fd}>f1"]).to_owned(),
            _ => "< /dev/null".to_owned(),
        }
    }

    /// The line with a few pieces put in, taken out or doubled.
    fn spoiled(&mut self, line: &str) -> String {
        const PIECES: &[&str] = &[
            "'", "\"", "`", "$(", ")", "(", "{", "}", "\\", "\n", ";", "&", "|", "<", ">", "#", " ", "\t",
            "=", "$", "((", "))", "[[", "]]", "!", "<<", "<<<", "<(", "${", ";;", "&&", "||", "\\\n", "aa",
            " bb ", "$'", "$\"", "*", "?", "[", "]", "1", ">&", "<&", "|&", "&>", "-", "{a,b}", "if ",
            "; then ", "; fi", "; do ", "; done", "case ", " in ", "esac", "()", " #", "\\ ", "$((", "${v",
            "EOF", "\nEOF\n",
        ];
        let mut chars: Vec<char> = line.chars().collect();
        for _ in 0..=self.dice.below(3) {
            let at = self.dice.below(chars.len() + 1);
            match self.dice.below(3) {
                0 => {
                    let end = (at + 1 + self.dice.below(3)).min(chars.len());
                    chars.drain(at.min(end)..end);
                }
                _ => {
                    let piece: Vec<char> = self.dice.one(PIECES).chars().collect();
                    chars.splice(at..at, piece);
                }
            }
        }
        chars.into_iter().collect()
    }
}
