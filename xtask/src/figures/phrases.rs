//! Phrases of the old dialect, counted in source text and pages.

use super::{Figure, Figures};

/// Words after "what" that make it a noun ("what is told", "what a pod has").
const AFTER_WHAT: &[&str] = &[
    "is", "was", "it", "a", "the", "has", "can", "they", "he", "she", "we", "this", "that", "its", "one",
    "are", "were", "had", "have", "would", "will", "must", "may", "came", "comes", "goes", "went", "stands",
    "stood", "lies", "cannot", "could",
];
const TO_BE: &[&str] = &["is", "was", "are", "were", "be", "been"];
const TOLD: &[&str] = &["told", "said", "heard", "asked", "lent", "kept", "had"];

/// The name of a phrase's figure and the words that make one occurrence: one word, or two in a row.
type Phrase = (&'static str, &'static [&'static str], &'static [&'static str]);

const PHRASES: &[Phrase] = &[
    ("phrase: what is", &["what"], AFTER_WHAT),
    ("phrase: is told", TO_BE, TOLD),
    ("phrase: somebody", &["somebody", "nobody", "everybody"], &[]),
    ("phrase: stands", &["stands", "stood"], &[]),
    ("phrase: whoever", &["whoever"], &[]),
    ("phrase: goes on", &["goes", "gone", "go", "went", "going"], &["on"]),
];

/// Counts the occurrences of one phrase in a text; `after` may be empty.
pub fn count(text: &str, first: &[&str], after: &[&str]) -> usize {
    let lower = text.to_lowercase();
    let mut previous: Option<(&str, usize)> = None;
    let mut found = 0;
    for (at, word) in words(&lower) {
        if after.is_empty() {
            found += usize::from(first.contains(&word));
        } else if let Some((before, end)) = previous
            && first.contains(&before)
            && after.contains(&word)
            && lower.get(end..at).is_some_and(|gap| gap.chars().all(char::is_whitespace))
        {
            found += 1;
        }
        previous = Some((word, at + word.len()));
    }
    found
}

/// Words with their places; an underscore is part of a word, so names in code do not count.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let start = text.as_ptr() as usize;
    text.split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .filter(|word| !word.is_empty())
        .map(move |word| (word.as_ptr() as usize - start, word))
}

/// One figure for each phrase; the texts with most occurrences come first.
#[expect(clippy::cast_precision_loss, reason = "counts of words are far below the limit")]
pub(super) fn figures(texts: &[(String, String)]) -> Figures {
    let mut figures = Figures::new();
    for (name, first, after) in PHRASES {
        let mut counts: Vec<(usize, &str)> =
            texts.iter().map(|(path, text)| (count(text, first, after), path.as_str())).collect();
        counts.retain(|(count, _)| *count > 0);
        counts.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        let value = counts.iter().map(|(count, _)| count).sum::<usize>() as f64;
        let places = counts.into_iter().map(|(count, path)| format!("{count} {path}")).collect();
        figures.insert(name, Figure { value, places });
    }
    figures
}
