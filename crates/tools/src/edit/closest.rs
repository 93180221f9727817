//! Closest: which lines of a file an `old_string` that is not there was probably meant for. Bounded in time: one pass over
//! the file, then a closer look at a few places.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// Lines that are shown around the best place.
const SHOWN_LINES: usize = 12;
/// The longest line that is shown or compared.
const LINE_CHARS: usize = 160;
/// How long the file is looked through for a similar line.
const TIME: Duration = Duration::from_millis(500);
/// How many signs of a line are told apart when lines are compared; more only costs memory.
const SIGNS: usize = 4_096;
/// Less than this much in common is no help.
const ENOUGH: f64 = 0.5;

/// Says that `old` is not in the text, and what is nearest.
pub(super) fn describe(text: &str, old: &str) -> String {
    let mut words = "`old_string` was not found".to_owned();
    if let Some(hint) = hint(old) {
        words.push_str(hint);
        return words;
    }
    let lines: Vec<&str> = text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
    let wanted: Vec<&str> = old.split('\n').map(str::trim).collect();
    let Some(found) = by_same_lines(&lines, &wanted).or_else(|| by_similar_line(&lines, &wanted)) else {
        words.push_str(", and nothing in the file is like it: Read the file and quote it exactly");
        return words;
    };
    words.push_str(&format!(
        "; the nearest lines are {} to {}. Quote them exactly as they are in the file:\n",
        found.from + 1,
        found.to
    ));
    for (index, line) in
        lines.iter().enumerate().take(found.to.min(found.from + SHOWN_LINES)).skip(found.from)
    {
        words.push_str(&format!("{:>6}\t{}\n", index + 1, cut(line)));
    }
    if found.to > found.from + SHOWN_LINES {
        words.push_str(&format!("[{} more lines]\n", found.to - found.from - SHOWN_LINES));
    }
    if let Some((number, has, wants)) = first_difference(&lines, &wanted, &found) {
        words.push_str(&format!(
            "The first line that differs is {number}.\n  file:       {}\n  old_string: {}\n",
            cut(has),
            cut(wants)
        ));
    }
    words
}

/// Lines of the file, from 0, the end not included.
struct Place {
    from: usize,
    to: usize,
}

/// A mistake that is known by sight.
fn hint(old: &str) -> Option<&'static str> {
    let numbered = |line: &str| {
        let rest = line.trim_start();
        let digits = rest.trim_start_matches(|c: char| c.is_ascii_digit());
        digits.len() < rest.len() && digits.starts_with('\t')
    };
    old.split('\n').filter(|line| !line.is_empty()).all(numbered).then_some(
        ": it has the line numbers that Read puts before each line; leave them and the tab after them out",
    )
}

/// The stretch that has most lines in common with what is wanted, compared without white space around them.
fn by_same_lines(lines: &[&str], wanted: &[&str]) -> Option<Place> {
    // Lines that are everywhere, such as a closing brace, say nothing.
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
    // The window ends with a line that is wanted; where that line stands in `old_string` says where it begins.
    let position =
        wanted.iter().rposition(|want| lines.get(last).is_some_and(|line| line.trim() == *want))?;
    let from = last.saturating_sub(position);
    Some(Place { from, to: (from + wanted.len()).min(lines.len()) })
}

/// The line that is most like the most telling line of what is wanted.
fn by_similar_line(lines: &[&str], wanted: &[&str]) -> Option<Place> {
    let (offset, telling) = wanted.iter().enumerate().max_by_key(|(_, line)| line.len())?;
    let mut wanted_pairs = Pairs::of(telling);
    let until = Instant::now() + TIME;
    let mut best: Option<(f64, usize)> = None;
    for (index, line) in lines.iter().enumerate() {
        if index % 1_024 == 0 && Instant::now() > until {
            break;
        }
        let likeness = wanted_pairs.likeness(line.trim());
        if likeness > best.map_or(ENOUGH, |(best, _)| best) {
            best = Some((likeness, index));
        }
    }
    let (_, index) = best?;
    let from = index.saturating_sub(offset);
    Some(Place { from, to: (from + wanted.len()).min(lines.len()) })
}

/// How often each pair of neighbouring characters is in a line, and room to count those of another.
struct Pairs {
    has: Vec<u32>,
    count: usize,
    /// The round in which a pair was last seen, and how often since.
    seen: Vec<(usize, u32)>,
    round: usize,
}

impl Pairs {
    fn of(line: &str) -> Pairs {
        let mut pairs = Pairs { has: vec![0; SIGNS], count: 0, seen: vec![(0, 0); SIGNS], round: 0 };
        for sign in signs(line) {
            if let Some(has) = pairs.has.get_mut(sign) {
                *has += 1;
                pairs.count += 1;
            }
        }
        pairs
    }

    /// How much a line has in common with this one, from 0 to 1.
    fn likeness(&mut self, line: &str) -> f64 {
        self.round += 1;
        let (mut common, mut count) = (0_usize, 0_usize);
        for sign in signs(line) {
            if let (Some(has), Some((round, times))) = (self.has.get(sign), self.seen.get_mut(sign)) {
                *times = if *round == self.round { *times + 1 } else { 1 };
                *round = self.round;
                common += usize::from(*times <= *has);
                count += 1;
            }
        }
        if count + self.count == 0 { 0.0 } else { 2.0 * common as f64 / (count + self.count) as f64 }
    }
}

fn signs(line: &str) -> impl Iterator<Item = usize> {
    let chars = line.chars().filter(|c| !c.is_whitespace()).take(LINE_CHARS);
    chars.scan('\0', |last, c| {
        let pair = (*last as usize).wrapping_mul(31).wrapping_add(c as usize) % SIGNS;
        *last = c;
        Some(pair)
    })
}

fn first_difference<'a>(
    lines: &[&'a str],
    wanted: &[&'a str],
    place: &Place,
) -> Option<(usize, &'a str, &'a str)> {
    let file = lines.get(place.from..place.to)?;
    let index = file.iter().zip(wanted).position(|(has, wants)| has.trim() != *wants)?;
    Some((place.from + index + 1, file.get(index)?.trim(), wanted.get(index)?))
}

fn cut(line: &str) -> String {
    let mut short: String = line.chars().take(LINE_CHARS).collect();
    if short.len() < line.len() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_place_is_named_with_the_line_that_differs() {
        let file: String = (1..=50).map(|n| format!("    let value_{n} = compute({n});\n")).collect();
        let said = describe(
            &file,
            "    let value_20 = compute(20);\n    let value_21 = calculate(21);\n    let value_22 = compute(22);\n",
        );
        assert!(said.contains("nearest lines are 20 to 23"), "{said}");
        assert!(said.contains("first line that differs is 21"), "{said}");
        assert!(said.contains("compute(21)") && said.contains("calculate(21)"), "{said}");
        let said = describe(&file, "let valeu_33 = compute(33);");
        assert!(said.contains("nearest lines are 33 to 33"), "{said}");
        let said = describe(&file, "nothing of the sort, at all 99 %");
        assert!(said.contains("nothing in the file is like it"), "{said}");
        let said = describe(&file, "    20\tlet value_20 = compute(20);");
        assert!(said.contains("line numbers"), "{said}");
    }

    #[test]
    fn a_large_file_and_a_large_wish_end_soon() {
        let file: String = (0..300_000).map(|n| format!("some line of text, number {n}\n")).collect();
        let start = Instant::now();
        let wish: String = (0..10_000).map(|n| format!("another liin of txt number{n}\n")).collect();
        let said = describe(&file, &wish);
        assert!(said.len() < 10_000);
        assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    }
}
