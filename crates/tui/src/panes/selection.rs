//! A selection in a list, and its text filter.

use std::ops::Range;

use nucleo_matcher::pattern::{CaseMatching, Normalization, Pattern};
use nucleo_matcher::{Config, Matcher, Utf32Str};

/// Limit for the letters of a filter.
const MAX_FILTER_CHARS: usize = 200;

/// The selected row among the matching ones.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RowSelection {
    index: usize,
    filter: String,
}

impl RowSelection {
    /// Returns the selected index of `rows` matching rows.
    pub fn selected_index(&self, rows: usize) -> Option<usize> {
        (rows > 0).then(|| self.index.min(rows - 1))
    }

    pub fn filter(&self) -> &str {
        &self.filter
    }

    /// Moves the selection by rows; negative is up.
    pub fn move_by(&mut self, steps: isize, rows: usize) {
        let last = rows.saturating_sub(1);
        self.index = self.index.min(last).saturating_add_signed(steps).min(last);
    }

    pub fn select_row(&mut self, row: usize) {
        self.index = row;
    }

    /// Appends a letter to the filter.
    pub fn push_filter_char(&mut self, letter: char) {
        if !letter.is_control() && self.filter.chars().count() < MAX_FILTER_CHARS {
            self.filter.push(letter);
            self.index = 0;
        }
    }

    /// Removes the last letter of the filter.
    pub fn pop_filter_char(&mut self) {
        self.filter.pop();
        self.index = 0;
    }

    pub fn clear_filter(&mut self) {
        self.filter.clear();
        self.index = 0;
    }

    /// Returns the indices of the matching items in order.
    pub(super) fn matching_rows<T>(&self, all: &[T], text: impl Fn(&T) -> String) -> Vec<usize> {
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

    /// Returns the visible rows including the selected one.
    pub(super) fn visible_rows(&self, rows: usize, lines: usize) -> Range<usize> {
        let at = self.selected_index(rows).unwrap_or(0);
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
                let mut selection = RowSelection::default();
                for _ in 0..=rows {
                    let seen = selection.visible_rows(rows, lines);
                    assert!(seen.len() <= lines && seen.end <= rows);
                    assert!(
                        lines == 0 || rows == 0 || seen.contains(&selection.selected_index(rows).unwrap())
                    );
                    selection.move_by(1, rows);
                }
                selection.move_by(-1_000, rows);
                assert_eq!(selection.selected_index(rows), (rows > 0).then_some(0));
            }
        }
    }

    #[test]
    fn a_filter_narrows_and_is_taken_back() {
        let mut pick = RowSelection::default();
        let all = ["alpha", "beta", "alphabet"];
        let fits = |selection: &RowSelection| selection.matching_rows(&all, |text| (*text).to_owned());
        assert_eq!(fits(&pick), [0, 1, 2]);
        pick.move_by(2, 3);
        "alp".chars().for_each(|letter| pick.push_filter_char(letter));
        assert_eq!((fits(&pick), pick.selected_index(2)), (vec![0, 2], Some(0)));
        pick.push_filter_char('\u{1b}');
        assert_eq!(pick.filter(), "alp");
        pick.pop_filter_char();
        assert_eq!(pick.filter(), "al");
        pick.clear_filter();
        assert_eq!(fits(&pick).len(), 3);
    }
}
