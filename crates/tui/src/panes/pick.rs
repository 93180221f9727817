//! A place in a list, and the words that narrow it.

use std::ops::Range;

use nucleo_matcher::pattern::{CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher, Utf32Str};

/// Letters that a filter takes.
const FILTER_CHARS: usize = 200;

/// Which row is chosen, among those that fit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pick {
    at: usize,
    filter: String,
}

impl Pick {
    /// The row that is chosen, of `rows` that fit; none if there are none.
    pub fn at(&self, rows: usize) -> Option<usize> {
        (rows > 0).then(|| self.at.min(rows - 1))
    }

    pub fn filter(&self) -> &str {
        &self.filter
    }

    /// Goes by so many rows; up is negative.
    pub fn by(&mut self, steps: isize, rows: usize) {
        let last = rows.saturating_sub(1);
        self.at = self.at.min(last).saturating_add_signed(steps).min(last);
    }

    pub fn to(&mut self, row: usize) {
        self.at = row;
    }

    /// A letter of the filter.
    pub fn typed(&mut self, letter: char) {
        if !letter.is_control() && self.filter.chars().count() < FILTER_CHARS {
            self.filter.push(letter);
            self.at = 0;
        }
    }

    /// Takes the last letter of the filter back.
    pub fn rub_out(&mut self) {
        self.filter.pop();
        self.at = 0;
    }

    pub fn clear_filter(&mut self) {
        self.filter.clear();
        self.at = 0;
    }

    /// Which of these fit the filter, in their own order.
    pub(super) fn fitting<T>(&self, all: &[T], text: impl Fn(&T) -> String) -> Vec<usize> {
        if self.filter.trim().is_empty() {
            return (0..all.len()).collect();
        }
        let mut matcher = Matcher::new(Config::DEFAULT.match_paths());
        let pattern = Pattern::parse(&self.filter, CaseMatching::Smart, Normalization::Smart);
        let mut letters = Vec::new();
        let mut fits =
            |one: &T| pattern.score(Utf32Str::new(&text(one), &mut letters), &mut matcher).is_some();
        all.iter().enumerate().filter(|(_, one)| fits(one)).map(|(at, _)| at).collect()
    }

    /// The rows that are seen on so many lines, the chosen one among them.
    pub(super) fn window(&self, rows: usize, lines: usize) -> Range<usize> {
        let at = self.at(rows).unwrap_or(0);
        let first = at.saturating_sub(lines / 2).min(rows.saturating_sub(lines));
        first..rows.min(first.saturating_add(lines))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chosen_row_is_always_seen() {
        for rows in [0, 1, 3, 10, 100] {
            for lines in [0, 1, 4, 10, 200] {
                let mut pick = Pick::default();
                for _ in 0..=rows {
                    let seen = pick.window(rows, lines);
                    assert!(seen.len() <= lines && seen.end <= rows);
                    assert!(lines == 0 || rows == 0 || seen.contains(&pick.at(rows).unwrap()));
                    pick.by(1, rows);
                }
                pick.by(-1_000, rows);
                assert_eq!(pick.at(rows), (rows > 0).then_some(0));
            }
        }
    }

    #[test]
    fn a_filter_narrows_and_is_taken_back() {
        let mut pick = Pick::default();
        let all = ["alpha", "beta", "alphabet"];
        let fits = |pick: &Pick| pick.fitting(&all, |text| (*text).to_owned());
        assert_eq!(fits(&pick), [0, 1, 2]);
        pick.by(2, 3);
        "alp".chars().for_each(|letter| pick.typed(letter));
        assert_eq!((fits(&pick), pick.at(2)), (vec![0, 2], Some(0)));
        pick.typed('\u{1b}');
        assert_eq!(pick.filter(), "alp");
        pick.rub_out();
        assert_eq!(pick.filter(), "al");
        pick.clear_filter();
        assert_eq!(fits(&pick).len(), 3);
    }
}
