//! Generates lines from a harmless vocabulary, with a grammar and with random mutations.

/// A seeded random number generator, so that failures are reproducible.
pub(crate) struct GeneratorRng(u64);

impl GeneratorRng {
    pub(crate) fn new(seed: u64) -> GeneratorRng {
        GeneratorRng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next_below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound.max(1)
    }

    pub(crate) fn pick_one<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.next_below(from.len())]
    }

    fn one_in(&mut self, of: usize) -> bool {
        self.next_below(of) == 0
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

pub(crate) struct LineGenerator {
    pub(crate) rng: GeneratorRng,
    depth: usize,
}

impl LineGenerator {
    pub(crate) fn new(seed: u64) -> LineGenerator {
        LineGenerator { rng: GeneratorRng::new(seed), depth: 0 }
    }

    /// Returns a line; every fourth is mutated. Every sixth comes from `given`, and most of those are
    /// mutated.
    pub(crate) fn next_line(&mut self, given: &[String]) -> String {
        self.depth = 0;
        if self.rng.one_in(6) {
            let line = &given[self.rng.next_below(given.len())];
            return if self.rng.one_in(4) { line.clone() } else { self.mutate_line(line) };
        }
        let line = self.random_list();
        if self.rng.one_in(4) { self.mutate_line(&line) } else { line }
    }

    fn random_list(&mut self) -> String {
        let mut line = self.random_pipeline();
        let more = if self.rng.one_in(2 + self.depth * 2) { 1 + self.rng.next_below(2) } else { 0 };
        for _ in 0..more {
            line.push_str(self.rng.pick_one(&[
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
            let next = self.random_pipeline();
            line.push_str(&next);
        }
        line
    }

    fn random_pipeline(&mut self) -> String {
        let mut line = String::new();
        if self.rng.one_in(12) {
            line.push_str(self.rng.pick_one(&["! ", "time ", "! "]));
        }
        line.push_str(&self.random_command());
        while self.rng.one_in(9) {
            line.push_str(self.rng.pick_one(&[" | ", "|", " |& ", " |\n"]));
            let next = self.random_command();
            line.push_str(&next);
        }
        line
    }

    fn random_command(&mut self) -> String {
        self.depth += 1;
        let line = if self.depth > 3 || !self.rng.one_in(3 + self.depth * 2) {
            self.random_simple()
        } else {
            self.random_compound()
        };
        self.depth -= 1;
        line
    }

    fn random_compound(&mut self) -> String {
        let form = self.rng.pick_one(&[
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
                'A' | 'B' => body.push_str(&self.random_list()),
                'W' => body.push_str(&self.random_word()),
                'D' => body.push_str(&self.depth.to_string()),
                c => body.push(c),
            }
        }
        if self.rng.one_in(5) { format!("{body} {}", self.random_redirect()) } else { body }
    }

    fn random_simple(&mut self) -> String {
        let mut line = String::new();
        if self.rng.one_in(10) {
            line.push_str(self.rng.pick_one(&[
                "q=1 ",
                "q='a b' r= ",
                "q=$(aa) ",
                "q=a\\ b ",
                "q+=x ",
                "q=(a b); ",
                "q[1]=c; ",
            ]));
        }
        if self.rng.one_in(20) {
            line.push_str(&format!("{} ", self.random_redirect()));
        }
        match self.rng.next_below(18) {
            0 => line.push_str(self.rng.pick_one(&[
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
                let inner = self.nested(Self::random_list).unwrap_or_else(|| "aa".into());
                let quoted = inner.replace('\'', "'\\''");
                line.push_str(&format!("{} '{quoted}'", self.rng.pick_one(&["bash -c", "sh -c", "eval"])));
                return line;
            }
            2 if self.depth < 4 => {
                let (start, end) = if self.rng.one_in(2) { ("<<EOF", "EOF") } else { ("<<'E'", "E") };
                let inner = self.nested(Self::random_list).unwrap_or_else(|| "aa".into());
                let inner = inner.replace(['\'', '"', '\\'], "");
                line.push_str(&format!("cat {start}\na $({inner}\n) b\n{end}\naa"));
                return line;
            }
            _ => {}
        }
        let name = self.rng.pick_one(NAMES);
        line.push_str(&if self.rng.one_in(8) { self.disguise_name(name) } else { name.to_owned() });
        for _ in 0..self.rng.next_below(4) {
            line.push(' ');
            let next = if self.rng.one_in(9) { self.random_redirect() } else { self.random_word() };
            line.push_str(&next);
        }
        line
    }

    /// Returns another spelling of a name.
    fn disguise_name(&mut self, name: &str) -> String {
        let (first, rest) = name.split_at(1);
        match self.rng.next_below(7) {
            0 => format!("\\{name}"),
            1 => format!("'{name}'"),
            2 => format!("\"{name}\""),
            3 => format!("{first}''{rest}"),
            4 => format!("{first}\\\n{rest}"),
            5 => format!("$'{name}'"),
            _ => format!("{first}\"{rest}\""),
        }
    }

    fn nested<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.depth > 3 {
            return None;
        }
        self.depth += 1;
        let made = make(self);
        self.depth -= 1;
        Some(made)
    }

    fn random_word(&mut self) -> String {
        match self.rng.next_below(18) {
            0..=10 => self.rng.pick_one(WORDS).to_owned(),
            11..=13 => self.rng.pick_one(QUOTED).to_owned(),
            14 | 15 => self.rng.pick_one(UNKNOWN).to_owned(),
            16 => format!("{}{}", self.rng.pick_one(WORDS), self.rng.pick_one(QUOTED)),
            _ => self.random_substitution(),
        }
    }

    fn random_substitution(&mut self) -> String {
        let Some(inner) = self.nested(Self::random_list) else { return "$(aa)".into() };
        match self.rng.next_below(7) {
            0 => format!("$({inner})"),
            1 => format!("\"$({inner})\""),
            2 if !inner.contains(['`', '\\']) => format!("`{inner}`"),
            3 => format!("<({inner})"),
            4 => format!("${{v:+$({inner})}}"),
            5 => format!("a\"b$({inner} )\"c"),
            _ => format!("${{zz:-$({inner})}}"),
        }
    }

    fn random_redirect(&mut self) -> String {
        let target = self.rng.pick_one(&["f1", "f2", "'f 3'", "f1"]);
        match self.rng.next_below(9) {
            0 => format!("> {target}"),
            1 => format!(">{target}"),
            2 => format!("2>{target}"),
            3 => "2>&1".to_owned(),
            4 => format!(">> {target}"),
            5 => format!("&> {target}"),
            6 => format!(">| {target}"),
            7 => self.rng.pick_one(&["<<< aa", "<<< aa", ">&f1", ">&'$(aa)'", "<>f1", "{fd}>f1"]).to_owned(),
            _ => "< /dev/null".to_owned(),
        }
    }

    /// Inserts, removes or repeats a few pieces of the line.
    fn mutate_line(&mut self, line: &str) -> String {
        const PIECES: &[&str] = &[
            "'", "\"", "`", "$(", ")", "(", "{", "}", "\\", "\n", ";", "&", "|", "<", ">", "#", " ", "\t",
            "=", "$", "((", "))", "[[", "]]", "!", "<<", "<<<", "<(", "${", ";;", "&&", "||", "\\\n", "aa",
            " bb ", "$'", "$\"", "*", "?", "[", "]", "1", ">&", "<&", "|&", "&>", "-", "{a,b}", "if ",
            "; then ", "; fi", "; do ", "; done", "case ", " in ", "esac", "()", " #", "\\ ", "$((", "${v",
            "EOF", "\nEOF\n",
        ];
        let mut chars: Vec<char> = line.chars().collect();
        for _ in 0..=self.rng.next_below(3) {
            let at = self.rng.next_below(chars.len() + 1);
            match self.rng.next_below(3) {
                0 => {
                    let end = (at + 1 + self.rng.next_below(3)).min(chars.len());
                    chars.drain(at.min(end)..end);
                }
                _ => {
                    let piece: Vec<char> = self.rng.pick_one(PIECES).chars().collect();
                    chars.splice(at..at, piece);
                }
            }
        }
        chars.into_iter().collect()
    }
}
