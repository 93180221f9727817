//! Searching what was said.

use std::collections::BTreeSet;

use minke_record::SessionId;
use rusqlite::params;

use crate::IndexError;
use crate::open::Index;

/// The most that one search gives.
pub const MATCHES: usize = 200;
/// The most words that are looked for.
pub const WORDS: usize = 16;
/// The longest of them, in bytes.
const WORD_BYTES: usize = 64;
/// Words around what was found.
const AROUND: i32 = 12;

/// A message in which all words stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hit {
    pub session: SessionId,
    pub seq: u64,
    /// `user` or `assistant`.
    pub role: String,
    /// A piece of it, what was found between `[` and `]`.
    pub snippet: String,
}

impl Index {
    /// Messages in which all these words stand, the newest first: which are best, only reading all of them would
    /// say. If they are few, those follow in which the last word is the beginning of one. Whatever is typed is looked for
    /// as it stands: there is no syntax to get wrong.
    pub fn search(&self, text: &str, limit: usize) -> Result<Vec<Hit>, IndexError> {
        let Some(words) = quoted(text) else { return Ok(Vec::new()) };
        let limit = limit.clamp(1, MATCHES);
        let mut hits = self.matching(&words, limit)?;
        // Beginnings cost as much as there are messages with any of their words.
        if hits.len() < limit {
            let more = self.matching(&format!("{words}*"), limit)?;
            let known: BTreeSet<(SessionId, u64)> = hits.iter().map(|hit| (hit.session, hit.seq)).collect();
            hits.extend(more.into_iter().filter(|hit| !known.contains(&(hit.session, hit.seq))));
            hits.truncate(limit);
        }
        Ok(hits)
    }

    fn matching(&self, wanted: &str, limit: usize) -> Result<Vec<Hit>, IndexError> {
        let failed = self.failed("search");
        let mut rows = self
            .connection
            .prepare_cached(
                "select said.session, said.seq, said.role, snippet(said_words, 0, '[', ']', '…', ?3)
                 from said_words join said on said.n = said_words.rowid
                 where said_words match ?1 order by said_words.rowid desc limit ?2",
            )
            .map_err(&failed)?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let found = rows
            .query_map(params![wanted, limit, AROUND], |row| {
                let session: String = row.get(0)?;
                Ok((session, row.get::<_, i64>(1)?, row.get(2)?, row.get(3)?))
            })
            .map_err(&failed)?;
        let mut hits = Vec::new();
        for row in found {
            let (session, seq, role, snippet) = row.map_err(&failed)?;
            if let Ok(session) = session.parse() {
                hits.push(Hit { session, seq: seq.cast_unsigned(), role, snippet });
            }
        }
        Ok(hits)
    }
}

/// The words as the full-text search takes them: each a plain text.
fn quoted(text: &str) -> Option<String> {
    let word = |word: &str| {
        let short: String = word
            .char_indices()
            .take_while(|(at, c)| at + c.len_utf8() <= WORD_BYTES)
            .map(|(_, c)| c)
            .collect();
        format!("\"{}\"", short.replace('"', "\"\"").replace('\0', ""))
    };
    // A word without letters or digits finds nothing and would make all others find nothing.
    let words: Vec<String> = text
        .split_whitespace()
        .filter(|word| word.chars().any(char::is_alphanumeric))
        .take(WORDS)
        .map(word)
        .collect();
    (!words.is_empty()).then(|| words.join(" "))
}
