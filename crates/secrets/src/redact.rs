//! The redactor: known values taken out of text and bytes, whole or as they come.
//!
//! Here: finding and replacing. Elsewhere: which text goes through it (`llm` and whoever takes text in), escapes
//! (`escape`).
//! Invariant: no byte of a known value is shown, whatever the cuts, overlaps and escapes, and the cuts change nothing in
//! what is shown (`any_split_gives_the_same_and_shows_nothing`, against a plain restatement of the rule). What is held
//! back is shorter than the longest value, written in escapes.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use secrecy::{ExposeSecret, SecretString};

use crate::escape::View;
use crate::secret::Secret;

/// A shorter value is not redacted: it would be found in ordinary words.
pub const REDACTED_MIN: usize = 8;
/// So much of a secret's name is shown in its place.
const NAME_CHARS: usize = 64;

/// How what stands in the place of a value begins.
const MASK: &str = "[secret ";

/// Knows values that nobody is to see. Cheap to clone.
#[derive(Clone, Default)]
pub struct Redactor {
    known: Option<Arc<Known>>,
    too_short: Vec<String>,
}

/// The values in every form in which they are looked for.
struct Known {
    forms: Vec<Form>,
    longest: usize,
    /// With which bytes a form begins.
    begins: [bool; 256],
    /// Says quickly that there is nothing; nearly all text is so.
    any: AhoCorasick,
    /// Finds every form everywhere, overlaps included.
    all: AhoCorasick,
}

struct Form {
    text: SecretString,
    mask: Arc<str>,
}

impl Form {
    fn bytes(&self) -> &[u8] {
        self.text.expose_secret().as_bytes()
    }
}

impl Redactor {
    /// Each value with the name that stands in its place. Of two names for one value the first is used.
    pub fn new(secrets: impl IntoIterator<Item = (String, Secret)>) -> Redactor {
        let mut forms: Vec<Form> = Vec::new();
        let mut too_short = Vec::new();
        for (name, secret) in secrets {
            if secret.expose().len() < REDACTED_MIN {
                too_short.push(name);
                continue;
            }
            let mask: Arc<str> = format!("{MASK}{}]", tame(&name)).into();
            for text in written(secret.expose()) {
                if !forms.iter().any(|form| form.bytes() == text.as_bytes()) {
                    forms.push(Form { text: text.into(), mask: Arc::clone(&mask) });
                }
            }
        }
        let known = (!forms.is_empty()).then(|| Arc::new(Known::new(forms)));
        Redactor { known, too_short }
    }

    /// Whether there is nothing to look for.
    pub fn is_empty(&self) -> bool {
        self.known.is_none()
    }

    /// The names of values that are too short to be looked for; somebody should be told.
    pub fn too_short(&self) -> &[String] {
        &self.too_short
    }

    /// The text with `[secret NAME]` in the place of each value.
    pub fn text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.bytes(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            Cow::Owned(bytes) => Cow::Owned(still_text(bytes)),
        }
    }

    /// The same for bytes of any kind.
    pub fn bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(known) = &self.known else { return Cow::Borrowed(bytes) };
        let mut out = Vec::new();
        if known.sweep(bytes, 0, true, &mut out).hit { Cow::Owned(out) } else { Cow::Borrowed(bytes) }
    }

    /// The names of the values in these bytes, each once, in the order of their first place.
    pub fn names_in(&self, bytes: &[u8]) -> Vec<String> {
        let Some(known) = &self.known else { return Vec::new() };
        let mut masks: Vec<&str> = Vec::new();
        for place in known.places(bytes, &View::of(bytes, true)) {
            let mask = &*known.forms[place.form].mask;
            if !masks.contains(&mask) {
                masks.push(mask);
            }
        }
        masks.into_iter().map(|mask| name_in(mask).to_owned()).collect()
    }

    /// The names that stand in the place of values in this text: whoever wrote it had read a text without them.
    pub fn masks_in(&self, text: &str) -> Vec<String> {
        let Some(known) = &self.known else { return Vec::new() };
        if !text.contains(MASK) {
            return Vec::new();
        }
        let mut names: Vec<String> = Vec::new();
        for form in &known.forms {
            let name = name_in(&form.mask);
            if text.contains(&*form.mask) && !names.iter().any(|have| have == name) {
                names.push(name.to_owned());
            }
        }
        names
    }

    /// For bytes that come in pieces.
    pub fn stream(&self) -> Stream {
        Stream { known: self.known.clone(), held: Vec::new(), covered: 0, hit: false }
    }

    /// For text that comes in pieces.
    pub fn text_stream(&self) -> TextStream {
        TextStream(self.stream())
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let forms = self.known.as_ref().map_or(0, |known| known.forms.len());
        f.debug_struct("Redactor").field("forms", &forms).field("too_short", &self.too_short).finish()
    }
}

impl Known {
    fn new(forms: Vec<Form>) -> Known {
        let build = |kind| {
            // Small rather than fastest: a table of all transitions of a long key would be megabytes.
            let mut builder = AhoCorasick::builder();
            builder.match_kind(kind).kind(Some(AhoCorasickKind::ContiguousNFA));
            builder
                .build(forms.iter().map(Form::bytes))
                .expect("a few keys of bounded length fit into an automaton")
        };
        let (any, all) = (build(MatchKind::LeftmostFirst), build(MatchKind::Standard));
        let longest = forms.iter().map(|form| form.bytes().len()).max().unwrap_or(0);
        let mut begins = [false; 256];
        for first in forms.iter().filter_map(|form| form.bytes().first()) {
            begins[usize::from(*first)] = true;
        }
        Known { forms, longest, begins, any, all }
    }

    /// Where at the end of `text` a value may have begun that is not all there yet; the end if nowhere.
    fn doubtful(&self, text: &[u8]) -> usize {
        let near = text.len().saturating_sub(self.longest.saturating_sub(1));
        let begun = |rest: &[u8]| {
            self.forms.iter().any(|form| form.bytes().len() > rest.len() && form.bytes().starts_with(rest))
        };
        let starts = (near..text.len()).find(|at| {
            let rest = text.get(*at..).unwrap_or_default();
            rest.first().is_some_and(|first| self.begins[usize::from(*first)]) && begun(rest)
        });
        starts.unwrap_or(text.len())
    }

    /// Where values stand, as they are or in escapes, by where they begin, the longest first.
    fn places(&self, text: &[u8], view: &View<'_>) -> Vec<Place> {
        let mut places = Vec::new();
        let mut look = |within: &[u8], raw: &dyn Fn(usize) -> usize| {
            if self.any.is_match(within) {
                let found = self.all.find_overlapping_iter(within);
                places.extend(found.map(|one| Place {
                    start: raw(one.start()),
                    end: raw(one.end()),
                    form: one.pattern().as_usize(),
                }));
            }
        };
        look(text, &|at| at);
        if let Cow::Owned(undone) = &view.bytes {
            look(undone, &|at| view.raw(at));
        }
        places.sort_by_key(|place| (place.start, std::cmp::Reverse(place.end), place.form));
        places
    }

    /// Writes what of `text` can be shown, each run of overlapping values as one mask with the name of the first (of
    /// those that begin there, the longest). The first `covered` bytes belong to a mask that has been written. `last`:
    /// nothing more comes, so that nothing is held back.
    fn sweep(&self, text: &[u8], covered: usize, last: bool, out: &mut Vec<u8>) -> Swept {
        let view = View::of(text, last);
        let until = if last {
            text.len()
        } else {
            let plain = self.doubtful(text);
            let undone = match &view.bytes {
                Cow::Borrowed(_) => plain,
                Cow::Owned(undone) => view.raw(self.doubtful(undone)).min(view.open),
            };
            // What is held back begins outside of escapes, so that it is read the same when more has come.
            view.outside(plain.min(undone))
        };
        let mut shown = covered;
        let mut hit = false;
        for place in self.places(text, &view).iter().take_while(|place| place.start < until) {
            if place.start >= shown {
                out.extend_from_slice(text.get(shown..place.start).unwrap_or_default());
                out.extend_from_slice(self.forms[place.form].mask.as_bytes());
                hit = true;
            }
            shown = shown.max(place.end);
        }
        out.extend_from_slice(text.get(shown..until).unwrap_or_default());
        Swept { until, covered: shown.saturating_sub(until), hit }
    }
}

/// Where a value stands.
struct Place {
    start: usize,
    end: usize,
    form: usize,
}

/// What became of a text.
struct Swept {
    /// What comes from here on is held back.
    until: usize,
    /// So many of the bytes that are held back belong to a mask that was written.
    covered: usize,
    /// Whether a mask was written.
    hit: bool,
}

/// Bytes in pieces, redacted as they come. What may be the beginning of a value waits for the rest.
pub struct Stream {
    known: Option<Arc<Known>>,
    held: Vec<u8>,
    /// So many of the held bytes belong to a mask that has been given out.
    covered: usize,
    hit: bool,
}

impl Stream {
    /// What can be shown now.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let Some(known) = &self.known else { return bytes.to_vec() };
        let mut out = Vec::with_capacity(self.held.len() + bytes.len());
        let joined;
        let text = if self.held.is_empty() {
            bytes
        } else {
            joined = [&self.held, bytes].concat();
            &joined
        };
        let swept = known.sweep(text, self.covered, false, &mut out);
        self.held = text.get(swept.until..).unwrap_or_default().to_vec();
        self.covered = swept.covered;
        self.hit |= swept.hit;
        out
    }

    /// What was held back; nothing more comes. The stream can be used again after this.
    pub fn finish(&mut self) -> Vec<u8> {
        let held = std::mem::take(&mut self.held);
        let covered = std::mem::take(&mut self.covered);
        let mut out = Vec::new();
        if let Some(known) = &self.known {
            self.hit |= known.sweep(&held, covered, true, &mut out).hit;
        }
        out
    }

    /// Whether a value was found since the beginning.
    pub fn hit(&self) -> bool {
        self.hit
    }
}

/// The same for text.
pub struct TextStream(Stream);

impl TextStream {
    pub fn push(&mut self, text: &str) -> String {
        still_text(self.0.push(text.as_bytes()))
    }

    pub fn finish(&mut self) -> String {
        still_text(self.0.finish())
    }

    pub fn hit(&self) -> bool {
        self.0.hit()
    }
}

/// The name in what stands in the place of a value.
fn name_in(mask: &str) -> &str {
    mask.strip_prefix(MASK).and_then(|rest| rest.strip_suffix(']')).unwrap_or(mask)
}

/// Text stays text: values are text, so they begin and end between characters, and so does what is left.
fn still_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("values begin and end between characters")
}

/// The ways in which a value is written outside of JSON: as it is, and inside an address. Most keys look the same in
/// both.
fn written(value: &str) -> Vec<String> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let address = |hex: fn(u8) -> String| -> String {
        value.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { hex(b) }).collect()
    };
    let (upper, lower) = (address(|b| format!("%{b:02X}")), address(|b| format!("%{b:02x}")));
    vec![value.to_owned(), upper, lower]
}

/// A name that can stand in any text, inside JSON too.
fn tame(name: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    name.chars().take(NAME_CHARS).map(|c| if fits(c) { c } else { '_' }).collect()
}
