//! The redactor: known values taken out of text and bytes, whole or as they come.
//!
//! Here: finding and replacing. Elsewhere: which text goes through it (`llm` and whoever takes text in), the ways in which
//! a text can be read (`reading`), the encodings that are looked for (`encode`).
//! Invariant: no byte of a known value is shown, whatever the cuts, overlaps and encodings, and the cuts change nothing in
//! what is shown (`any_split_gives_the_same_and_shows_nothing`, against a plain restatement of the rule;
//! `no_encoding_and_no_split_shows_a_value`). What is held back is shorter than the longest encoding of a value, written
//! in escapes.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use secrecy::{ExposeSecret, SecretString};

use crate::encode::encodings;
use crate::reading::Readings;
use crate::secret::Secret;
use crate::unseen::encoded_tail;

/// A shorter value is not redacted: it would be found in ordinary words.
pub const REDACTED_MIN: usize = 8;
/// The beginnings of so many forms have a table of all transitions.
const FAST_FORMS: usize = 512;
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
    /// The forms by the byte with which they begin.
    by_first: Vec<Vec<usize>>,
    /// Finds how forms begin, and so says quickly that there is none; nearly all text is so.
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
            for text in encodings(secret.expose()) {
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
        if known.sweep(&Held { bytes, covered: 0, encoded: 0 }, true, &mut out).hit {
            Cow::Owned(out)
        } else {
            Cow::Borrowed(bytes)
        }
    }

    /// The names of the values in these bytes, each once, in the order of their first place.
    pub fn names_in(&self, bytes: &[u8]) -> Vec<String> {
        let Some(known) = &self.known else { return Vec::new() };
        let mut masks: Vec<&str> = Vec::new();
        for place in known.places(&Readings::of(bytes, true, 0)) {
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
        Stream { known: self.known.clone(), held: Vec::new(), covered: 0, encoded: 0, hit: false }
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
        let build = |kind, texts: Vec<&[u8]>| {
            let mut builder = AhoCorasick::builder();
            builder.match_kind(MatchKind::Standard).kind(Some(kind));
            builder.build(texts).expect("a few keys of bounded length fit into an automaton")
        };
        // Small rather than fastest: a table of all transitions of a long key would be megabytes. Of beginnings it is small.
        let all = build(AhoCorasickKind::ContiguousNFA, forms.iter().map(Form::bytes).collect());
        let few = forms.len() <= FAST_FORMS;
        let kind = if few { AhoCorasickKind::DFA } else { AhoCorasickKind::ContiguousNFA };
        let any = build(kind, forms.iter().filter_map(|form| form.bytes().get(..REDACTED_MIN)).collect());
        let longest = forms.iter().map(|form| form.bytes().len()).max().unwrap_or(0);
        let mut by_first = vec![Vec::new(); 256];
        for (index, form) in forms.iter().enumerate() {
            if let Some(first) = form.bytes().first() {
                by_first[usize::from(*first)].push(index);
            }
        }
        Known { forms, longest, by_first, any, all }
    }

    /// Where at the end of `text` a value may have begun that is not all there yet; the end if nowhere.
    fn doubtful(&self, text: &[u8]) -> usize {
        let near = text.len().saturating_sub(self.longest.saturating_sub(1));
        let begun = |at: &usize| {
            let rest = text.get(*at..).unwrap_or_default();
            let Some(first) = rest.first() else { return false };
            self.by_first[usize::from(*first)].iter().any(|index| {
                let form = self.forms[*index].bytes();
                form.len() > rest.len() && form.starts_with(rest)
            })
        };
        (near..text.len()).find(begun).unwrap_or(text.len())
    }

    /// Where values are, however they are written, by where they begin, the longest first.
    fn places(&self, readings: &Readings<'_>) -> Vec<Place> {
        let mut places = Vec::new();
        for reading in readings.all() {
            let bytes = reading.bytes();
            if self.any.is_match(bytes) {
                places.extend(self.all.find_overlapping_iter(bytes).map(|found| Place {
                    start: reading.start(found.start()),
                    end: reading.end(found.end()),
                    form: found.pattern().as_usize(),
                }));
            }
        }
        places.sort_by_key(|place| (place.start, std::cmp::Reverse(place.end), place.form));
        places
    }

    /// Writes what of `held` can be shown, each run of overlapping values as one mask with the name of the first (of
    /// those that begin there, the longest). `last`: nothing more comes, so that nothing is held back.
    fn sweep(&self, held: &Held<'_>, last: bool, out: &mut Vec<u8>) -> Swept {
        let text = held.bytes;
        let readings = Readings::of(text, last, held.encoded);
        let until = if last {
            text.len()
        } else {
            let doubtful = readings.all().map(|reading| reading.start(self.doubtful(reading.bytes()))).min();
            // What is held back begins outside of escapes, so that it is read the same when more has come.
            readings.outside(doubtful.unwrap_or(text.len()).min(readings.open()))
        };
        let mut shown = held.covered;
        let mut hit = false;
        for place in self.places(&readings).iter().take_while(|place| place.start < until) {
            if place.start >= shown {
                out.extend_from_slice(text.get(shown..place.start).unwrap_or_default());
                out.extend_from_slice(self.forms[place.form].mask.as_bytes());
                hit = true;
            }
            shown = shown.max(place.end);
        }
        out.extend_from_slice(text.get(shown..until).unwrap_or_default());
        let encoded = encoded_tail(text.get(..until).unwrap_or_default(), held.encoded);
        Swept { until, covered: shown.saturating_sub(until), encoded, hit }
    }
}

/// A text, or what of it was held back with what came after.
struct Held<'a> {
    bytes: &'a [u8],
    /// So many of its bytes belong to a mask that has been written.
    covered: usize,
    /// So many letters of an encoded line precede it.
    encoded: usize,
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
    /// So many letters of an encoded line precede them.
    encoded: usize,
    /// Whether a mask was written.
    hit: bool,
}

/// Bytes in pieces, redacted as they come. What may be the beginning of a value waits for the rest.
pub struct Stream {
    known: Option<Arc<Known>>,
    held: Vec<u8>,
    /// So many of the held bytes belong to a mask that has been given out.
    covered: usize,
    /// So many letters of an encoded line precede the held bytes.
    encoded: usize,
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
        let text = Held { bytes: text, covered: self.covered, encoded: self.encoded };
        let swept = known.sweep(&text, false, &mut out);
        self.held = text.bytes.get(swept.until..).unwrap_or_default().to_vec();
        (self.covered, self.encoded) = (swept.covered, swept.encoded);
        self.hit |= swept.hit;
        out
    }

    /// What was held back; nothing more comes. The stream can be used again after this.
    pub fn finish(&mut self) -> Vec<u8> {
        let held = std::mem::take(&mut self.held);
        let covered = std::mem::take(&mut self.covered);
        let encoded = std::mem::take(&mut self.encoded);
        let mut out = Vec::new();
        if let Some(known) = &self.known {
            self.hit |= known.sweep(&Held { bytes: &held, covered, encoded }, true, &mut out).hit;
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

/// A name that can stand in any text, inside JSON too.
fn tame(name: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    name.chars().take(NAME_CHARS).map(|c| if fits(c) { c } else { '_' }).collect()
}
