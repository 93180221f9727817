//! Finds the lines of a file that a missing `old_string` probably means. The time is limited: one pass over
//! the file, then a comparison of a few places.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// The maximum number of lines shown around the best place.
const SHOWN_LINES: usize = 12;
/// The maximum length of a line that is shown or compared.
const LINE_CHARS: usize = 160;
/// The time limit of the search for a similar line.
const TIME_LIMIT: Duration = Duration::from_millis(500);
/// The number of hash slots for character pairs; more slots only cost memory.
const PAIR_SLOTS: usize = 4_096;
/// The minimum similarity of a useful hint.
const MIN_SIMILARITY: f64 = 0.5;

/// Returns an error text for a missing `old`, with the nearest lines.
pub(super) fn describe_missing(text: &str, old: &str) -> String {
    let mut words = "`old_string` was not found".to_owned();
    if let Some(hint) = mistake_hint(old) {
        words.push_str(hint);
        return words;
    }
    let lines: Vec<&str> = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
    let wanted: Vec<&str> = old.split('\n').map(str::trim).collect();
    let Some(found) = find_same_lines(&lines, &wanted).or_else(|| find_similar_line(&lines, &wanted)) else {
        words.push_str(", and nothing in the file is similar: Read the file and quote it exactly");
        return words;
    };
    words.push_str(&format!(
        "; the nearest lines are {} to {}. Quote them exactly as they are in the file:\n",
        found.start + 1,
        found.end
    ));
    for (index, line) in
        lines.iter().enumerate().take(found.end.min(found.start + SHOWN_LINES)).skip(found.start)
    {
        words.push_str(&format!("{:>6}\t{}\n", index + 1, minke_text::shorten_to_chars(line, LINE_CHARS)));
    }
    if found.end > found.start + SHOWN_LINES {
        words.push_str(&format!("[{} more lines]\n", found.end - found.start - SHOWN_LINES));
    }
    if let Some((number, actual, wanted_line)) = first_difference(&lines, &wanted, &found) {
        words.push_str(&format!(
            "The first line that differs is {number}.\n  file:       {}\n  old_string: {}\n",
            minke_text::shorten_to_chars(actual, LINE_CHARS),
            minke_text::shorten_to_chars(wanted_line, LINE_CHARS)
        ));
    }
    words
}

/// Lines of the file, from 0, without the end.
struct LineSpan {
    start: usize,
    end: usize,
}

/// Returns a hint for a typical mistake.
fn mistake_hint(old: &str) -> Option<&'static str> {
    let numbered = |line: &str| {
        let rest = line.trim_start();
        let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        digits.len() < rest.len() && digits.starts_with('\t')
    };
    old.split('\n').filter(|line| !line.is_empty()).all(numbered).then_some(
        ": it contains the line numbers that Read adds before each line; leave them and the tab after them out",
    )
}

/// Returns the lines that have most lines in common with `wanted`, ignoring white space at the ends of lines.
fn find_same_lines(lines: &[&str], wanted: &[&str]) -> Option<LineSpan> {
    // Common lines such as a closing brace are not significant.
    let telling: HashSet<&str> = wanted
        .iter()
        .copied()
        .filter(|line| line.chars().filter(|c| c.is_alphanumeric()).count() > 2)
        .collect();
    let window = wanted.len().min(lines.len());
    let (mut inside, mut best): (HashMap<&str, usize>, Option<(usize, usize)>) = (HashMap::new(), None);
    for (index, line) in lines.iter().enumerate() {
        let line = line.trim();
        if telling.contains(line) {
            *inside.entry(line).or_default() += 1;
        }
        if let Some(left) = index.checked_sub(window).and_then(|left| lines.get(left)).map(|line| line.trim())
            && let Some(count) = inside.get_mut(left)
        {
            *count -= 1;
            if *count == 0 {
                inside.remove(left);
            }
        }
        if inside.len() > best.map_or(0, |(score, _)| score) {
            best = Some((inside.len(), index));
        }
    }
    let (_, last) = best?;
    // The window ends with a wanted line; its position in `old_string` determines the start.
    let position =
        wanted.iter().rposition(|want| lines.get(last).is_some_and(|line| line.trim() == *want))?;
    let start = last.saturating_sub(position);
    Some(LineSpan { start, end: (start + wanted.len()).min(lines.len()) })
}

/// Returns the lines around the line that is most similar to the longest wanted line.
fn find_similar_line(lines: &[&str], wanted: &[&str]) -> Option<LineSpan> {
    let (offset, telling) = wanted.iter().enumerate().max_by_key(|(_, line)| line.len())?;
    let mut wanted_pairs = BigramCounts::from_line(telling);
    let until = Instant::now() + TIME_LIMIT;
    let mut best: Option<(f64, usize)> = None;
    for (index, line) in lines.iter().enumerate() {
        if index % 1_024 == 0 && Instant::now() > until {
            break;
        }
        let likeness = wanted_pairs.similarity(line.trim());
        if likeness > best.map_or(MIN_SIMILARITY, |(best, _)| best) {
            best = Some((likeness, index));
        }
    }
    let (_, index) = best?;
    let start = index.saturating_sub(offset);
    Some(LineSpan { start, end: (start + wanted.len()).min(lines.len()) })
}

/// Counts the pairs of neighboring characters of a line, for comparison with other lines.
struct BigramCounts {
    counts: Vec<u32>,
    total: usize,
    /// For each pair: the last comparison that contained it, and its count there.
    line_counts: Vec<(usize, u32)>,
    round: usize,
}

impl BigramCounts {
    fn from_line(line: &str) -> BigramCounts {
        let mut pairs = BigramCounts {
            counts: vec![0; PAIR_SLOTS],
            total: 0,
            line_counts: vec![(0, 0); PAIR_SLOTS],
            round: 0,
        };
        for sign in bigrams(line) {
            if let Some(actual) = pairs.counts.get_mut(sign) {
                *actual += 1;
                pairs.total += 1;
            }
        }
        pairs
    }

    /// Returns the similarity of a line to this one, from 0 to 1.
    fn similarity(&mut self, line: &str) -> f64 {
        self.round += 1;
        let (mut common, mut count) = (0_usize, 0_usize);
        for sign in bigrams(line) {
            if let (Some(actual), Some((round, times))) =
                (self.counts.get(sign), self.line_counts.get_mut(sign))
            {
                *times = if *round == self.round { *times + 1 } else { 1 };
                *round = self.round;
                common += usize::from(*times <= *actual);
                count += 1;
            }
        }
        if count + self.total == 0 { 0.0 } else { 2.0 * common as f64 / (count + self.total) as f64 }
    }
}

fn bigrams(line: &str) -> impl Iterator<Item = usize> {
    let chars = line.chars().filter(|c| !c.is_whitespace()).take(LINE_CHARS);
    chars.scan('\0', |last, c| {
        let pair = (*last as usize).wrapping_mul(31).wrapping_add(c as usize) % PAIR_SLOTS;
        *last = c;
        Some(pair)
    })
}

fn first_difference<'a>(
    lines: &[&'a str],
    wanted: &[&'a str],
    place: &LineSpan,
) -> Option<(usize, &'a str, &'a str)> {
    let file = lines.get(place.start..place.end)?;
    let index = file.iter().zip(wanted).position(|(actual, wanted_line)| actual.trim() != *wanted_line)?;
    Some((place.start + index + 1, file.get(index)?.trim(), wanted.get(index)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_place_is_named_with_the_line_that_differs() {
        let file: String = (1..=50).map(|n| format!("    let value_{n} = compute({n});\n")).collect();
        let message = describe_missing(
            &file,
            "    let value_20 = compute(20);\n    let value_21 = calculate(21);\n    let value_22 = compute(22);\n",
        );
        assert!(message.contains("nearest lines are 20 to 23"), "{message}");
        assert!(message.contains("first line that differs is 21"), "{message}");
        assert!(message.contains("compute(21)") && message.contains("calculate(21)"), "{message}");
        let said = describe_missing(&file, "let valeu_33 = compute(33);");
        assert!(said.contains("nearest lines are 33 to 33"), "{said}");
        let said = describe_missing(&file, "nothing of the sort, at all 99 %");
        assert!(said.contains("nothing in the file is similar"), "{said}");
        let message = describe_missing(&file, "    20\tlet value_20 = compute(20);");
        assert!(message.contains("line numbers"), "{message}");
    }

    #[test]
    fn a_large_file_and_a_large_wish_end_soon() {
        let file: String = (0..300_000).map(|n| format!("some line of text, number {n}\n")).collect();
        let start = Instant::now();
        let wish: String = (0..10_000).map(|n| format!("another liin of txt number{n}\n")).collect();
        let message = describe_missing(&file, &wish);
        assert!(message.len() < 10_000);
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    }
}
