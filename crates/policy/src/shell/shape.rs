//! Shapes: the possible values of a word that is unknown before the line runs.
//!
//! This module has the pieces of such a word, the effects of globs, braces and variables, and the
//! substitution of the values of variables after the whole line is parsed. `crate::rules` decides whether a
//! shape could be a path of a rule, `output_shape` has the output of commands.
//! Invariant: a shape covers every word that the shell could produce, provided that variables of the
//! environment contain no blanks. Unsupported constructs become any text.

use std::collections::BTreeMap;

/// The maximum number of alternatives; with more, a word can become anything.
const MAX_ALTERNATIVES: usize = 64;
/// The maximum number of atoms of one alternative.
const MAX_ATOMS: usize = 1_024;
/// The maximum depth of variables that take their values from others.
const MAX_VARIABLE_DEPTH: usize = 4;

/// The possible values of a word. An empty list means names that the line itself does not contain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WordShape(pub(crate) Vec<Vec<ShapeAtom>>);

/// One element of a possible value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ShapeAtom {
    Char(char),
    /// One character matched by a shell glob: never the leading dot of a hidden name.
    AnyChar,
    /// Any characters matched by a shell glob, except the leading dot of a hidden name.
    Star,
    /// `**` of the shell: names that are not hidden, with the slashes between them.
    Deep,
    /// Any characters except a slash.
    Name,
    /// A number or a date.
    Digits,
    /// Any text, including slashes.
    AnyText,
    /// Any text that may contain blanks: outside quotes it becomes several words.
    AnyWords,
    /// The working directory of the line.
    Cwd,
    /// A marker: the following text is one of several words of an output.
    OneOfSeveral,
    /// The value of a variable, until the whole line is parsed.
    Variable(Box<ShapeVariable>),
}

/// A variable in a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShapeVariable {
    pub(crate) name: String,
    pub(crate) quoted: bool,
    /// An operator takes a part of the value.
    pub(crate) cut: bool,
}

/// A part of a word whose text is unknown.
#[derive(Debug, Clone)]
pub(super) enum UnknownPart {
    Anything,
    Number,
    /// `~` and the following name.
    Home,
    /// `<( )`: a file descriptor path.
    Pipe,
    /// A letter or number from a range: `{a..c}`.
    Range,
    /// `bare`: without braces, so that text from a brace expansion after it belongs to its name.
    Variable {
        name: String,
        cut: bool,
        bare: bool,
    },
    Output(WordShape),
}

/// A piece of a word, and whether it is quoted.
#[derive(Debug, Clone)]
pub(super) enum WordPiece {
    Char(char, bool),
    Unknown(UnknownPart, bool),
}

/// The values that a line assigns to its variables.
pub(super) type VariableValues = BTreeMap<String, Vec<WordShape>>;

impl WordShape {
    /// Any text.
    pub fn any_text() -> WordShape {
        WordShape(vec![vec![ShapeAtom::AnyWords]])
    }

    /// Names that the line does not contain: a program finds them itself.
    pub fn unnamed() -> WordShape {
        WordShape(Vec::new())
    }

    pub(super) fn from_atom(atom: ShapeAtom) -> WordShape {
        WordShape(vec![vec![atom]])
    }

    pub(super) fn from_text(text: &str) -> WordShape {
        WordShape(vec![text.chars().map(ShapeAtom::Char).collect()])
    }

    /// Returns the words of a text as alternatives. Quotes and escapes in it make the result unknown.
    pub(super) fn from_words(text: &str) -> WordShape {
        if text.contains(['\'', '"', '\\', '%']) {
            return WordShape::any_text();
        }
        WordShape(text.split_whitespace().map(|word| word.chars().map(ShapeAtom::Char).collect()).collect())
            .limited()
    }

    /// Returns the shape of a glob that a program expands itself, at the end of any path: its wildcards match
    /// hidden names.
    pub(crate) fn from_glob(glob: &str) -> WordShape {
        let mut atoms = vec![ShapeAtom::AnyText];
        let mut letters = glob.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '*' | '?' => atoms.push(ShapeAtom::Name),
                '[' => {
                    // A set may contain its own terminator, so the rest is unknown.
                    atoms.push(ShapeAtom::AnyText);
                    return WordShape(vec![atoms]);
                }
                '\\' => atoms.extend(letters.next().map(ShapeAtom::Char)),
                letter => atoms.push(ShapeAtom::Char(letter)),
            }
        }
        WordShape(vec![atoms])
    }

    /// Replaces each mark in a text by one of these values.
    pub(super) fn substitute(text: &str, mark: &str, put: &WordShape) -> WordShape {
        let alternatives = put.0.iter().map(|put| {
            let mut atoms: Vec<ShapeAtom> = Vec::new();
            for (at, part) in text.split(mark).enumerate() {
                if at > 0 {
                    atoms.extend(put.iter().cloned());
                }
                atoms.extend(part.chars().map(ShapeAtom::Char));
            }
            atoms
        });
        WordShape(alternatives.collect()).limited()
    }

    pub(super) fn union(mut self, other: WordShape) -> WordShape {
        self.0.extend(other.0);
        self.limited()
    }

    fn limited(self) -> WordShape {
        let fits = self.0.len() <= MAX_ALTERNATIVES && self.0.iter().all(|atoms| atoms.len() <= MAX_ATOMS);
        if fits { self } else { WordShape::any_text() }
    }

    /// Returns the shape that ignores case.
    pub(super) fn ignoring_case(mut self) -> WordShape {
        for atom in self.0.iter_mut().flatten() {
            if matches!(atom, ShapeAtom::Char(letter) if letter.is_alphabetic()) {
                *atom = ShapeAtom::Name;
            }
        }
        self
    }

    fn has_variables(&self) -> bool {
        self.0.iter().flatten().any(|atom| matches!(atom, ShapeAtom::Variable(_)))
    }

    /// Replaces variables by their values.
    pub(super) fn resolve(&mut self, values: &VariableValues) {
        if self.has_variables() {
            *self = resolve_shape(self, values, 0);
            self.0.iter_mut().for_each(|atoms| atoms.retain(|atom| *atom != ShapeAtom::OneOfSeveral));
        }
    }

    /// Makes shell globs match hidden names (`dotglob`), or ignore case (`nocaseglob`).
    pub(super) fn widen_globs(&mut self, hidden: bool, letters: bool) {
        let globs = |atoms: &[ShapeAtom]| {
            atoms.iter().any(|a| matches!(a, ShapeAtom::AnyChar | ShapeAtom::Star | ShapeAtom::Deep))
        };
        for atoms in self.0.iter_mut().filter(|atoms| globs(atoms)) {
            for atom in atoms {
                match atom {
                    ShapeAtom::AnyChar | ShapeAtom::Star if hidden => *atom = ShapeAtom::Name,
                    ShapeAtom::Deep if hidden => *atom = ShapeAtom::AnyText,
                    ShapeAtom::Char(letter) if letters && letter.is_alphabetic() => *atom = ShapeAtom::Name,
                    _ => {}
                }
            }
        }
    }

    /// Returns the shape of a word from its pieces. `globs` tells whether the shell expands globs.
    pub(super) fn from_pieces(pieces: &[WordPiece], globs: bool) -> WordShape {
        let bare = |piece: &WordPiece| {
            matches!(piece, WordPiece::Unknown(UnknownPart::Variable { bare: true, .. }, false))
        };
        let brace = |piece: &WordPiece| matches!(piece, WordPiece::Char('{', false));
        // The shell expands braces first: `$d{a,b}` contains the variables `da` and `db`.
        if globs && pieces.iter().any(bare) && pieces.iter().any(brace) {
            return WordShape::any_text();
        }
        let expanded =
            if globs { super::words::brace::brace_alternatives(pieces) } else { Some(vec![pieces.to_vec()]) };
        let Some(expanded) = expanded else { return WordShape::any_text() };
        let mut shape = WordShape::unnamed();
        for pieces in expanded {
            shape = shape.union(pieces_shape(&pieces, globs));
        }
        shape
    }
}

/// Returns the shape of a word without braces.
fn pieces_shape(pieces: &[WordPiece], globs: bool) -> WordShape {
    let mut all: Vec<Vec<ShapeAtom>> = vec![Vec::new()];
    // The first words of outputs with several words, and the words between the first and the last.
    let mut ended: Vec<Vec<ShapeAtom>> = Vec::new();
    let mut at = 0;
    let push =
        |all: &mut Vec<Vec<ShapeAtom>>, atom: ShapeAtom| all.iter_mut().for_each(|a| a.push(atom.clone()));
    while let Some(piece) = pieces.get(at) {
        at += 1;
        match piece {
            WordPiece::Char('*', false) if globs => {
                let deep = matches!(pieces.get(at), Some(WordPiece::Char('*', false)));
                at += usize::from(deep);
                push(&mut all, if deep { ShapeAtom::Deep } else { ShapeAtom::Star });
            }
            WordPiece::Char('?', false) if globs => push(&mut all, ShapeAtom::AnyChar),
            WordPiece::Char('[', false) if globs => match char_set_end(pieces, at) {
                Some(end) => {
                    at = end + 1;
                    push(&mut all, ShapeAtom::AnyChar);
                }
                None => push(&mut all, ShapeAtom::Char('[')),
            },
            WordPiece::Char(letter, _) => push(&mut all, ShapeAtom::Char(*letter)),
            WordPiece::Unknown(hole, quoted) => {
                if matches!(hole, UnknownPart::Home) {
                    while matches!(pieces.get(at), Some(WordPiece::Char(letter, _)) if *letter != '/') {
                        at += 1;
                    }
                }
                let mut put = part_shape(hole, *quoted);
                if !globs && matches!(hole, UnknownPart::Output(_)) {
                    put.0.iter_mut().for_each(|atoms| atoms.insert(0, ShapeAtom::OneOfSeveral));
                }
                // Outside quotes a text with blanks becomes several words, each of which may be anything.
                let splits =
                    globs && !quoted && put.0.iter().flatten().any(|atom| *atom == ShapeAtom::AnyWords);
                if splits || all.len() * put.0.len() > MAX_ALTERNATIVES {
                    return WordShape::any_text();
                }
                all = concat_each(&all, &put);
                if matches!(hole, UnknownPart::Output(_)) && !quoted && pieces.len() > 1 {
                    ended.extend(all.iter().chain(&put.0).cloned());
                    all.extend(put.0);
                }
            }
        }
    }
    all.extend(ended);
    WordShape(all).limited()
}

/// Concatenates each beginning with each end.
fn concat_each(before: &[Vec<ShapeAtom>], put: &WordShape) -> Vec<Vec<ShapeAtom>> {
    before
        .iter()
        .flat_map(|before| put.0.iter().map(|put| [before.as_slice(), put.as_slice()].concat()))
        .collect()
}

/// Returns the end of a character set, after its first member, which may be `]` itself.
fn char_set_end(pieces: &[WordPiece], from: usize) -> Option<usize> {
    let plain = |at: usize, wanted: &[char]| matches!(pieces.get(at), Some(WordPiece::Char(c, false)) if wanted.contains(c));
    let mut at = from + usize::from(plain(from, &['!', '^']));
    let first = at;
    while at < pieces.len() {
        if plain(at, &['[']) && plain(at + 1, &[':', '.', '=']) {
            // A character class has its own terminator.
            let end =
                (at + 2..pieces.len()).find(|end| plain(*end, &[':', '.', '=']) && plain(end + 1, &[']']));
            at = end? + 2;
            continue;
        }
        if at > first && plain(at, &[']']) {
            return Some(at);
        }
        at += 1;
    }
    None
}

fn part_shape(hole: &UnknownPart, quoted: bool) -> WordShape {
    match hole {
        UnknownPart::Anything => WordShape::any_text(),
        UnknownPart::Number => WordShape::from_atom(ShapeAtom::Digits),
        UnknownPart::Home => WordShape::from_atom(ShapeAtom::AnyText),
        UnknownPart::Pipe => WordShape::from_text("/dev/fd/63"),
        UnknownPart::Range => WordShape::from_atom(ShapeAtom::Name),
        UnknownPart::Variable { name, cut, .. } => {
            WordShape::from_atom(ShapeAtom::Variable(Box::new(ShapeVariable {
                name: name.clone(),
                quoted,
                cut: *cut,
            })))
        }
        UnknownPart::Output(shape) => shape.clone(),
    }
}

fn resolve_shape(shape: &WordShape, values: &VariableValues, depth: usize) -> WordShape {
    let mut out = WordShape::unnamed();
    for atoms in &shape.0 {
        let mut all: Vec<Vec<ShapeAtom>> = vec![Vec::new()];
        let mut ended: Vec<Vec<ShapeAtom>> = Vec::new();
        for atom in atoms {
            let put = match atom {
                ShapeAtom::Variable(variable) => variable_value(variable, values, depth),
                atom => WordShape::from_atom(atom.clone()),
            };
            let splits = matches!(atom, ShapeAtom::Variable(variable) if !variable.quoted)
                && put.0.iter().flatten().any(|atom| *atom == ShapeAtom::AnyWords);
            if splits || all.len() * put.0.len() > MAX_ALTERNATIVES {
                return WordShape::any_text();
            }
            all = concat_each(&all, &put);
            let given = matches!(atom, ShapeAtom::Variable(v) if !v.quoted)
                && put.0.iter().flatten().any(|atom| *atom == ShapeAtom::OneOfSeveral);
            if given && atoms.len() > 1 {
                ended.extend(all.iter().chain(&put.0).cloned());
                all.extend(put.0);
            }
        }
        all.extend(ended);
        out = out.union(WordShape(all));
    }
    out
}

/// Returns the values of a variable. Variables that the line does not assign come from the environment, which
/// the model does not choose.
fn variable_value(variable: &ShapeVariable, values: &VariableValues, depth: usize) -> WordShape {
    let Some(given) = values.get(&variable.name) else {
        let is_directory = variable.name == "PWD" && !variable.cut;
        return WordShape::from_atom(if is_directory { ShapeAtom::Cwd } else { ShapeAtom::AnyText });
    };
    if depth >= MAX_VARIABLE_DEPTH {
        return WordShape::any_text();
    }
    let mut all = WordShape::unnamed();
    for shape in given {
        all = all.union(resolve_shape(shape, values, depth + 1));
    }
    let blank = |atom: &ShapeAtom| {
        matches!(atom, ShapeAtom::AnyWords) || matches!(atom, ShapeAtom::Char(c) if c.is_whitespace())
    };
    if variable.cut {
        let loose = all.0.iter().flatten().any(blank);
        return WordShape::from_atom(if loose { ShapeAtom::AnyWords } else { ShapeAtom::AnyText });
    }
    if !variable.quoted {
        all.0.iter_mut().for_each(split_unquoted);
    }
    all
}

/// Applies word splitting and globbing to a value outside quotes.
fn split_unquoted(atoms: &mut Vec<ShapeAtom>) {
    if atoms.iter().any(|atom| matches!(atom, ShapeAtom::Char(c) if c.is_whitespace())) {
        *atoms = vec![ShapeAtom::AnyWords];
        return;
    }
    for at in 0..atoms.len() {
        match atoms.get(at) {
            Some(ShapeAtom::Char('*')) => atoms[at] = ShapeAtom::Star,
            Some(ShapeAtom::Char('?')) => atoms[at] = ShapeAtom::AnyChar,
            Some(ShapeAtom::Char('[')) => {
                atoms.truncate(at);
                atoms.push(ShapeAtom::AnyText);
                return;
            }
            _ => {}
        }
    }
}
