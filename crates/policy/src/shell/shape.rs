//! Shapes: what a word that is not known before the line runs can become.
//!
//! Here: the pieces of such a word as the grammar reads them, what globs, braces and variables make of them, and the
//! values of variables put in once the whole line is read. Elsewhere: whether a shape could be a path that a rule names
//! (`crate::rules::reach`), what commands print (`listing`).
//! Invariant: a shape covers every word that the shell could put in its place, as long as the environment of the shell
//! holds no blanks. What is too odd to follow is anything.

use std::collections::BTreeMap;

/// The most alternatives that are followed; with more, a word can become anything.
const ALTERNATIVES: usize = 64;
/// The most atoms of one alternative.
const ATOMS: usize = 1_024;
/// How deep one variable may take its value from another.
const DEPTH: usize = 4;

/// Everything that a word can become: any of these alternatives. None at all: nothing that the line itself names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape(pub(crate) Vec<Vec<Atom>>);

/// One part of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Atom {
    Char(char),
    /// One character of a name, by a glob of the shell: never the dot that hides a name.
    One,
    /// Any characters of a name, by a glob of the shell: the same holds for the first.
    Star,
    /// `**` of the shell: names that are not hidden, and the slashes between them.
    Deep,
    /// Any characters but a slash.
    Name,
    /// A number or a date.
    Digits,
    /// Any text, slashes too.
    Any,
    /// Any text that may hold blanks: outside quotes it becomes several words.
    Loose,
    /// The working directory of the line.
    Cwd,
    /// Nothing by itself: what follows is one of several words of an output.
    Several,
    /// The value of a variable, until the whole line is read.
    Variable(Box<Variable>),
}

/// A variable in a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) quoted: bool,
    /// An operator takes a part of the value.
    pub(crate) cut: bool,
}

/// What stands in a word at a place whose text is not known.
#[derive(Debug, Clone)]
pub(super) enum Hole {
    Anything,
    Number,
    /// `~` and the name behind it.
    Home,
    /// `<( )`: a descriptor.
    Pipe,
    /// Letters or numbers between two others: `{a..c}`.
    Range,
    /// `bare`: without braces, so that what braces of the shell put behind it belongs to its name.
    Variable {
        name: String,
        cut: bool,
        bare: bool,
    },
    Output(Shape),
}

/// One piece of a word, and whether it is quoted.
#[derive(Debug, Clone)]
pub(super) enum Piece {
    Char(char, bool),
    Hole(Hole, bool),
}

/// The values that a line gives to its variables.
pub(super) type Values = BTreeMap<String, Vec<Shape>>;

impl Shape {
    /// Any text at all.
    pub fn anything() -> Shape {
        Shape(vec![vec![Atom::Loose]])
    }

    /// Nothing that the line names: a program finds it by itself.
    pub fn nothing() -> Shape {
        Shape(Vec::new())
    }

    pub(super) fn of(atom: Atom) -> Shape {
        Shape(vec![vec![atom]])
    }

    pub(super) fn text(text: &str) -> Shape {
        Shape(vec![text.chars().map(Atom::Char).collect()])
    }

    /// The words of a text, each an alternative. Quotes and escapes in it are for others to read.
    pub(super) fn words(text: &str) -> Shape {
        if text.contains(['\'', '"', '\\', '%']) {
            return Shape::anything();
        }
        Shape(text.split_whitespace().map(|word| word.chars().map(Atom::Char).collect()).collect()).bounded()
    }

    /// A glob that a program reads by itself, at the end of some path: its wildcards find hidden names, too.
    pub(crate) fn found_by(glob: &str) -> Shape {
        let mut atoms = vec![Atom::Any];
        let mut letters = glob.chars();
        while let Some(letter) = letters.next() {
            match letter {
                '*' | '?' => atoms.push(Atom::Name),
                '[' => {
                    // A set may hold its own end; what follows is not followed.
                    atoms.push(Atom::Any);
                    return Shape(vec![atoms]);
                }
                '\\' => atoms.extend(letters.next().map(Atom::Char)),
                letter => atoms.push(Atom::Char(letter)),
            }
        }
        Shape(vec![atoms])
    }

    /// A text in which each mark stands for one of these.
    pub(super) fn put_in(text: &str, mark: &str, put: &Shape) -> Shape {
        let alternatives = put.0.iter().map(|put| {
            let mut atoms: Vec<Atom> = Vec::new();
            for (at, part) in text.split(mark).enumerate() {
                if at > 0 {
                    atoms.extend(put.iter().cloned());
                }
                atoms.extend(part.chars().map(Atom::Char));
            }
            atoms
        });
        Shape(alternatives.collect()).bounded()
    }

    pub(super) fn or(mut self, other: Shape) -> Shape {
        self.0.extend(other.0);
        self.bounded()
    }

    fn bounded(self) -> Shape {
        let fits = self.0.len() <= ALTERNATIVES && self.0.iter().all(|atoms| atoms.len() <= ATOMS);
        if fits { self } else { Shape::anything() }
    }

    /// The same in capitals or small letters.
    pub(super) fn without_letters(mut self) -> Shape {
        for atom in self.0.iter_mut().flatten() {
            if matches!(atom, Atom::Char(letter) if letter.is_alphabetic()) {
                *atom = Atom::Name;
            }
        }
        self
    }

    fn has_variables(&self) -> bool {
        self.0.iter().flatten().any(|atom| matches!(atom, Atom::Variable(_)))
    }

    /// The shape with the values of variables in their places.
    pub(super) fn settle(&mut self, values: &Values) {
        if self.has_variables() {
            *self = settled(self, values, 0);
            self.0.iter_mut().for_each(|atoms| atoms.retain(|atom| *atom != Atom::Several));
        }
    }

    /// Globs of the shell also find hidden names (`dotglob`), or names in other letters (`nocaseglob`).
    pub(super) fn widen(&mut self, hidden: bool, letters: bool) {
        let globs = |atoms: &[Atom]| atoms.iter().any(|a| matches!(a, Atom::One | Atom::Star | Atom::Deep));
        for atoms in self.0.iter_mut().filter(|atoms| globs(atoms)) {
            for atom in atoms {
                match atom {
                    Atom::One | Atom::Star if hidden => *atom = Atom::Name,
                    Atom::Deep if hidden => *atom = Atom::Any,
                    Atom::Char(letter) if letters && letter.is_alphabetic() => *atom = Atom::Name,
                    _ => {}
                }
            }
        }
    }

    /// The shape of a word, from its pieces. `globs` says whether the shell looks for names.
    pub(super) fn of_pieces(pieces: &[Piece], globs: bool) -> Shape {
        let bare = |piece: &Piece| matches!(piece, Piece::Hole(Hole::Variable { bare: true, .. }, false));
        let brace = |piece: &Piece| matches!(piece, Piece::Char('{', false));
        // The shell expands braces first: `$d{a,b}` holds the variables `da` and `db`.
        if globs && pieces.iter().any(bare) && pieces.iter().any(brace) {
            return Shape::anything();
        }
        let expanded = if globs { super::brace::alternatives(pieces) } else { Some(vec![pieces.to_vec()]) };
        let Some(expanded) = expanded else { return Shape::anything() };
        let mut shape = Shape::nothing();
        for pieces in expanded {
            shape = shape.or(alternative(&pieces, globs));
        }
        shape
    }
}

/// The shape of one word without braces.
fn alternative(pieces: &[Piece], globs: bool) -> Shape {
    let mut all: Vec<Vec<Atom>> = vec![Vec::new()];
    // The first words that several in one place become, and those between the first and the last.
    let mut ended: Vec<Vec<Atom>> = Vec::new();
    let mut at = 0;
    let push = |all: &mut Vec<Vec<Atom>>, atom: Atom| all.iter_mut().for_each(|a| a.push(atom.clone()));
    while let Some(piece) = pieces.get(at) {
        at += 1;
        match piece {
            Piece::Char('*', false) if globs => {
                let deep = matches!(pieces.get(at), Some(Piece::Char('*', false)));
                at += usize::from(deep);
                push(&mut all, if deep { Atom::Deep } else { Atom::Star });
            }
            Piece::Char('?', false) if globs => push(&mut all, Atom::One),
            Piece::Char('[', false) if globs => match set_end(pieces, at) {
                Some(end) => {
                    at = end + 1;
                    push(&mut all, Atom::One);
                }
                None => push(&mut all, Atom::Char('[')),
            },
            Piece::Char(letter, _) => push(&mut all, Atom::Char(*letter)),
            Piece::Hole(hole, quoted) => {
                if matches!(hole, Hole::Home) {
                    while matches!(pieces.get(at), Some(Piece::Char(letter, _)) if *letter != '/') {
                        at += 1;
                    }
                }
                let mut put = atoms_of(hole, *quoted);
                if !globs && matches!(hole, Hole::Output(_)) {
                    put.0.iter_mut().for_each(|atoms| atoms.insert(0, Atom::Several));
                }
                // Outside quotes a text with blanks becomes several words, each of which may be anything.
                let splits = globs && !quoted && put.0.iter().flatten().any(|atom| *atom == Atom::Loose);
                if splits || all.len() * put.0.len() > ALTERNATIVES {
                    return Shape::anything();
                }
                all = joined(&all, &put);
                if matches!(hole, Hole::Output(_)) && !quoted && pieces.len() > 1 {
                    ended.extend(all.iter().chain(&put.0).cloned());
                    all.extend(put.0);
                }
            }
        }
    }
    all.extend(ended);
    Shape(all).bounded()
}

/// Each beginning with each end.
fn joined(before: &[Vec<Atom>], put: &Shape) -> Vec<Vec<Atom>> {
    before
        .iter()
        .flat_map(|before| put.0.iter().map(|put| [before.as_slice(), put.as_slice()].concat()))
        .collect()
}

/// Where a set of a glob ends: behind its first member, which may be `]` itself.
fn set_end(pieces: &[Piece], from: usize) -> Option<usize> {
    let plain = |at: usize, wanted: &[char]| matches!(pieces.get(at), Some(Piece::Char(c, false)) if wanted.contains(c));
    let mut at = from + usize::from(plain(from, &['!', '^']));
    let first = at;
    while at < pieces.len() {
        if plain(at, &['[']) && plain(at + 1, &[':', '.', '=']) {
            // A class of characters, with an end of its own.
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

fn atoms_of(hole: &Hole, quoted: bool) -> Shape {
    match hole {
        Hole::Anything => Shape::anything(),
        Hole::Number => Shape::of(Atom::Digits),
        Hole::Home => Shape::of(Atom::Any),
        Hole::Pipe => Shape::text("/dev/fd/63"),
        Hole::Range => Shape::of(Atom::Name),
        Hole::Variable { name, cut, .. } => {
            Shape::of(Atom::Variable(Box::new(Variable { name: name.clone(), quoted, cut: *cut })))
        }
        Hole::Output(shape) => shape.clone(),
    }
}

fn settled(shape: &Shape, values: &Values, depth: usize) -> Shape {
    let mut out = Shape::nothing();
    for atoms in &shape.0 {
        let mut all: Vec<Vec<Atom>> = vec![Vec::new()];
        let mut ended: Vec<Vec<Atom>> = Vec::new();
        for atom in atoms {
            let put = match atom {
                Atom::Variable(variable) => value(variable, values, depth),
                atom => Shape::of(atom.clone()),
            };
            let splits = matches!(atom, Atom::Variable(variable) if !variable.quoted)
                && put.0.iter().flatten().any(|atom| *atom == Atom::Loose);
            if splits || all.len() * put.0.len() > ALTERNATIVES {
                return Shape::anything();
            }
            all = joined(&all, &put);
            let given = matches!(atom, Atom::Variable(v) if !v.quoted)
                && put.0.iter().flatten().any(|atom| *atom == Atom::Several);
            if given && atoms.len() > 1 {
                ended.extend(all.iter().chain(&put.0).cloned());
                all.extend(put.0);
            }
        }
        all.extend(ended);
        out = out.or(Shape(all));
    }
    out
}

/// What a variable holds. The environment gives what the line does not; the model does not choose it.
fn value(variable: &Variable, values: &Values, depth: usize) -> Shape {
    let Some(given) = values.get(&variable.name) else {
        let is_directory = variable.name == "PWD" && !variable.cut;
        return Shape::of(if is_directory { Atom::Cwd } else { Atom::Any });
    };
    if depth >= DEPTH {
        return Shape::anything();
    }
    let mut all = Shape::nothing();
    for shape in given {
        all = all.or(settled(shape, values, depth + 1));
    }
    let blank =
        |atom: &Atom| matches!(atom, Atom::Loose) || matches!(atom, Atom::Char(c) if c.is_whitespace());
    if variable.cut {
        let loose = all.0.iter().flatten().any(blank);
        return Shape::of(if loose { Atom::Loose } else { Atom::Any });
    }
    if !variable.quoted {
        all.0.iter_mut().for_each(unquoted);
    }
    all
}

/// What the shell makes of a value outside quotes: blanks part it, and globs in it look for names.
fn unquoted(atoms: &mut Vec<Atom>) {
    if atoms.iter().any(|atom| matches!(atom, Atom::Char(c) if c.is_whitespace())) {
        *atoms = vec![Atom::Loose];
        return;
    }
    for at in 0..atoms.len() {
        match atoms.get(at) {
            Some(Atom::Char('*')) => atoms[at] = Atom::Star,
            Some(Atom::Char('?')) => atoms[at] = Atom::One,
            Some(Atom::Char('[')) => {
                atoms.truncate(at);
                atoms.push(Atom::Any);
                return;
            }
            _ => {}
        }
    }
}
