//! The redactor replaces known values in text and bytes, complete or in pieces.
//!
//! Here: finding and replacing values. Elsewhere: which text is redacted (`llm` and the callers that accept
//! text), the decoded views of a text (`decoded_views`) and the encodings of a value (`encodings`).
//! Invariant: no byte of a known value is shown, whatever the cuts, overlaps and encodings, and the cuts do
//! not change the output (`any_split_gives_the_same_and_shows_nothing` compares with a plain restatement of
//! the rule; `no_encoding_and_no_split_shows_a_value`). The pending text is shorter than the longest escaped
//! encoding of a value.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use secrecy::{ExposeSecret, SecretString};

use crate::decoded_views::DecodedViews;
use crate::encodings::encodings;
use crate::invisible::encoded_tail_len;
use crate::secret::Secret;

/// The shortest value that is redacted. A shorter one would also match in ordinary words.
pub const MIN_SECRET_BYTES: usize = 8;
/// Up to this number of forms, the prefix matcher is a DFA with a full transition table.
const DFA_MAX_FORMS: usize = 512;
/// Longest part of a secret's name that is shown.
const MAX_NAME_CHARS: usize = 64;

/// Start of the mask that replaces a value.
const MASK_PREFIX: &str = "[secret ";

/// Redacts a set of known values. Cheap to clone.
#[derive(Clone, Default)]
pub struct Redactor {
    forms: Option<Arc<SecretForms>>,
    too_short: Vec<String>,
}

/// The known values in every encoded form.
struct SecretForms {
    list: Vec<SecretForm>,
    longest: usize,
    /// The forms, indexed by their first byte.
    by_first: Vec<Vec<usize>>,
    /// Matches prefixes of forms. It rejects text without a match quickly, which is nearly all text.
    prefix_matcher: AhoCorasick,
    /// Matches every form at every position, including overlaps.
    full_matcher: AhoCorasick,
}

struct SecretForm {
    text: SecretString,
    mask: Arc<str>,
}

impl SecretForm {
    fn bytes(&self) -> &[u8] {
        self.text.expose_secret().as_bytes()
    }
}

impl Redactor {
    /// Creates a redactor from values and the names that replace them. If a value has two names, the first
    /// one is used.
    pub fn new(secrets: impl IntoIterator<Item = (String, Secret)>) -> Redactor {
        let mut forms: Vec<SecretForm> = Vec::new();
        let mut too_short = Vec::new();
        for (name, secret) in secrets {
            if secret.expose().len() < MIN_SECRET_BYTES {
                too_short.push(name);
                continue;
            }
            let mask: Arc<str> = format!("{MASK_PREFIX}{}]", sanitize_name(&name)).into();
            for text in encodings(secret.expose()) {
                if !forms.iter().any(|form| form.bytes() == text.as_bytes()) {
                    forms.push(SecretForm { text: text.into(), mask: Arc::clone(&mask) });
                }
            }
        }
        let known = (!forms.is_empty()).then(|| Arc::new(SecretForms::new(forms)));
        Redactor { forms: known, too_short }
    }

    /// Returns whether there is no value to search for.
    pub fn is_empty(&self) -> bool {
        self.forms.is_none()
    }

    /// Returns the names of values that are too short to be redacted. The caller should warn about them.
    pub fn too_short(&self) -> &[String] {
        &self.too_short
    }

    /// Replaces each value in `text` by `[secret NAME]`.
    pub fn redact_text<'a>(&self, text: &'a str) -> Cow<'a, str> {
        match self.redact_bytes(text.as_bytes()) {
            Cow::Borrowed(_) => Cow::Borrowed(text),
            Cow::Owned(bytes) => Cow::Owned(into_text(bytes)),
        }
    }

    /// Replaces each value in arbitrary bytes.
    pub fn redact_bytes<'a>(&self, bytes: &'a [u8]) -> Cow<'a, [u8]> {
        let Some(known) = &self.forms else { return Cow::Borrowed(bytes) };
        let mut out = Vec::new();
        if known
            .redact_pending(&PendingText { bytes, masked_bytes: 0, encoded_chars: 0 }, true, &mut out)
            .has_redacted
        {
            Cow::Owned(out)
        } else {
            Cow::Borrowed(bytes)
        }
    }

    /// Returns the names of the values in `bytes`, each once, in order of their first occurrence.
    pub fn names_in(&self, bytes: &[u8]) -> Vec<String> {
        let Some(known) = &self.forms else { return Vec::new() };
        let mut masks: Vec<&str> = Vec::new();
        for place in known.find_matches(&DecodedViews::decode_text(bytes, true, 0)) {
            let mask = &*known.list[place.form].mask;
            if !masks.contains(&mask) {
                masks.push(mask);
            }
        }
        masks.into_iter().map(|mask| mask_name(mask).to_owned()).collect()
    }

    /// Returns the names in the masks of this text. Its author has read a redacted text.
    pub fn masks_in(&self, text: &str) -> Vec<String> {
        let Some(known) = &self.forms else { return Vec::new() };
        if !text.contains(MASK_PREFIX) {
            return Vec::new();
        }
        let mut names: Vec<String> = Vec::new();
        for form in &known.list {
            let name = mask_name(&form.mask);
            if text.contains(&*form.mask) && !names.iter().any(|have| have == name) {
                names.push(name.to_owned());
            }
        }
        names
    }

    /// Returns a redactor for bytes that arrive in pieces.
    pub fn byte_stream(&self) -> RedactionStream {
        RedactionStream {
            forms: self.forms.clone(),
            pending: Vec::new(),
            masked_bytes: 0,
            encoded_chars: 0,
            has_redacted: false,
        }
    }

    /// Returns a redactor for text that arrives in pieces.
    pub fn text_stream(&self) -> TextRedactionStream {
        TextRedactionStream(self.byte_stream())
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let forms = self.forms.as_ref().map_or(0, |known| known.list.len());
        f.debug_struct("Redactor").field("forms", &forms).field("too_short", &self.too_short).finish()
    }
}

impl SecretForms {
    fn new(list: Vec<SecretForm>) -> SecretForms {
        let build = |kind, texts: Vec<&[u8]>| {
            let mut builder = AhoCorasick::builder();
            builder.match_kind(MatchKind::Standard).kind(Some(kind));
            builder.build(texts).expect("a few keys of bounded length fit into an automaton")
        };
        // Prefer size to speed: a full transition table of a long key would take megabytes. The table for
        // prefixes stays small.
        let full_matcher =
            build(AhoCorasickKind::ContiguousNFA, list.iter().map(SecretForm::bytes).collect());
        let few = list.len() <= DFA_MAX_FORMS;
        let kind = if few { AhoCorasickKind::DFA } else { AhoCorasickKind::ContiguousNFA };
        let prefix_matcher =
            build(kind, list.iter().filter_map(|form| form.bytes().get(..MIN_SECRET_BYTES)).collect());
        let longest = list.iter().map(|form| form.bytes().len()).max().unwrap_or(0);
        let mut by_first = vec![Vec::new(); 256];
        for (index, form) in list.iter().enumerate() {
            if let Some(first) = form.bytes().first() {
                by_first[usize::from(*first)].push(index);
            }
        }
        SecretForms { list, longest, by_first, prefix_matcher, full_matcher }
    }

    /// Returns the start of a possible incomplete value at the end of `text`, or the length of `text`.
    fn partial_match_start(&self, text: &[u8]) -> usize {
        let near = text.len().saturating_sub(self.longest.saturating_sub(1));
        let begun = |at: &usize| {
            let rest = text.get(*at..).unwrap_or_default();
            let Some(first) = rest.first() else { return false };
            self.by_first[usize::from(*first)].iter().any(|index| {
                let form = self.list[*index].bytes();
                form.len() > rest.len() && form.starts_with(rest)
            })
        };
        (near..text.len()).find(begun).unwrap_or(text.len())
    }

    /// Returns all matches in all views, sorted by start, the longest first.
    fn find_matches(&self, readings: &DecodedViews<'_>) -> Vec<SecretMatch> {
        let mut places = Vec::new();
        for reading in readings.iter() {
            let bytes = reading.bytes();
            if self.prefix_matcher.is_match(bytes) {
                places.extend(self.full_matcher.find_overlapping_iter(bytes).map(|found| SecretMatch {
                    start: reading.source_start(found.start()),
                    end: reading.source_end(found.end()),
                    form: found.pattern().as_usize(),
                }));
            }
        }
        places.sort_by_key(|place| (place.start, std::cmp::Reverse(place.end), place.form));
        places
    }

    /// Writes the part of `held` that can be shown. Each run of overlapping values becomes one mask with the
    /// name of the first value (the longest of those with the same start). `last` means that no more text
    /// follows, so nothing stays pending.
    fn redact_pending(&self, held: &PendingText<'_>, last: bool, out: &mut Vec<u8>) -> RedactionProgress {
        let text = held.bytes;
        let readings = DecodedViews::decode_text(text, last, held.encoded_chars);
        let pending_from = if last {
            text.len()
        } else {
            let doubtful = readings
                .iter()
                .map(|reading| reading.source_start(self.partial_match_start(reading.bytes())))
                .min();
            // The pending text starts outside of escapes, so it decodes the same when more text has arrived.
            readings.last_boundary_before(doubtful.unwrap_or(text.len()).min(readings.incomplete_from()))
        };
        let mut shown = held.masked_bytes;
        let mut has_redacted = false;
        for place in self.find_matches(&readings).iter().take_while(|place| place.start < pending_from) {
            if place.start >= shown {
                out.extend_from_slice(text.get(shown..place.start).unwrap_or_default());
                out.extend_from_slice(self.list[place.form].mask.as_bytes());
                has_redacted = true;
            }
            shown = shown.max(place.end);
        }
        out.extend_from_slice(text.get(shown..pending_from).unwrap_or_default());
        let encoded_chars =
            encoded_tail_len(text.get(..pending_from).unwrap_or_default(), held.encoded_chars);
        RedactionProgress {
            pending_from,
            masked_bytes: shown.saturating_sub(pending_from),
            encoded_chars,
            has_redacted,
        }
    }
}

/// A text, or pending text with the text that followed it.
struct PendingText<'a> {
    bytes: &'a [u8],
    /// Number of bytes at the start that belong to a mask already written.
    masked_bytes: usize,
    /// Number of characters of an encoded line before this text.
    encoded_chars: usize,
}

/// The position of a value.
struct SecretMatch {
    start: usize,
    end: usize,
    form: usize,
}

/// Result of redacting a text.
struct RedactionProgress {
    /// Start of the pending text.
    pending_from: usize,
    /// Number of pending bytes that belong to a mask already written.
    masked_bytes: usize,
    /// Number of characters of an encoded line before the pending text.
    encoded_chars: usize,
    /// Whether a mask was written.
    has_redacted: bool,
}

/// Redacts bytes that arrive in pieces. A possible start of a value stays pending until more bytes arrive.
pub struct RedactionStream {
    forms: Option<Arc<SecretForms>>,
    pending: Vec<u8>,
    /// Number of pending bytes that belong to a mask already returned.
    masked_bytes: usize,
    /// Number of characters of an encoded line before the pending bytes.
    encoded_chars: usize,
    has_redacted: bool,
}

impl RedactionStream {
    /// Appends bytes and returns the part that can be shown.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        let Some(known) = &self.forms else { return bytes.to_vec() };
        let mut out = Vec::with_capacity(self.pending.len() + bytes.len());
        let joined;
        let text = if self.pending.is_empty() {
            bytes
        } else {
            joined = [&self.pending, bytes].concat();
            &joined
        };
        let text =
            PendingText { bytes: text, masked_bytes: self.masked_bytes, encoded_chars: self.encoded_chars };
        let swept = known.redact_pending(&text, false, &mut out);
        self.pending = text.bytes.get(swept.pending_from..).unwrap_or_default().to_vec();
        (self.masked_bytes, self.encoded_chars) = (swept.masked_bytes, swept.encoded_chars);
        self.has_redacted |= swept.has_redacted;
        out
    }

    /// Returns the pending bytes at the end of the input. The stream can be reused afterwards.
    pub fn finish(&mut self) -> Vec<u8> {
        let held = std::mem::take(&mut self.pending);
        let masked_bytes = std::mem::take(&mut self.masked_bytes);
        let encoded_chars = std::mem::take(&mut self.encoded_chars);
        let mut out = Vec::new();
        if let Some(known) = &self.forms {
            self.has_redacted |= known
                .redact_pending(&PendingText { bytes: &held, masked_bytes, encoded_chars }, true, &mut out)
                .has_redacted;
        }
        out
    }

    /// Returns whether a value has been redacted since the start.
    pub fn has_redacted(&self) -> bool {
        self.has_redacted
    }
}

/// Redacts text that arrives in pieces.
pub struct TextRedactionStream(RedactionStream);

impl TextRedactionStream {
    pub fn push(&mut self, text: &str) -> String {
        into_text(self.0.push(text.as_bytes()))
    }

    pub fn finish(&mut self) -> String {
        into_text(self.0.finish())
    }

    pub fn has_redacted(&self) -> bool {
        self.0.has_redacted()
    }
}

/// Returns the name in a mask.
fn mask_name(mask: &str) -> &str {
    mask.strip_prefix(MASK_PREFIX).and_then(|rest| rest.strip_suffix(']')).unwrap_or(mask)
}

/// Converts redacted bytes back to text. Values are text, so masks begin and end between characters.
fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).expect("values begin and end between characters")
}

/// Makes a name safe to insert into any text, including JSON.
fn sanitize_name(name: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
    name.chars().take(MAX_NAME_CHARS).map(|c| if fits(c) { c } else { '_' }).collect()
}
