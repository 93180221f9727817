//! Full-text search of messages.

use std::collections::BTreeSet;

use minke_record::SessionId;
use rusqlite::params;

use crate::IndexError;
use crate::database::Index;

/// The maximum number of results.
pub const MAX_MATCHES: usize = 200;
/// The maximum number of words in a query.
pub const MAX_WORDS: usize = 16;
/// The maximum length of a word in bytes.
const MAX_WORD_BYTES: usize = 64;
/// The number of words around a match in a snippet.
const SNIPPET_WORDS: i32 = 12;

/// A message that contains all words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchHit {
    pub session: SessionId,
    pub seq: u64,
    /// `user` or `assistant`.
    pub role: String,
    /// An excerpt, with matches between `[` and `]`.
    pub snippet: String,
}

impl Index {
    /// Returns messages that contain all these words, newest first: ranking them would require reading all of them. If
    /// there are few, adds those in which the last word is a prefix. Queries have no syntax: every word is searched
    /// literally.
    pub fn search_messages(&self, text: &str, limit: usize) -> Result<Vec<SearchHit>, IndexError> {
        let Some(words) = quote_words(text) else { return Ok(Vec::new()) };
        let limit = limit.clamp(1, MAX_MATCHES);
        let mut hits = self.find_matches(&words, limit)?;
        // A prefix search takes time proportional to the messages with any matching word.
        if hits.len() < limit {
            let more = self.find_matches(&format!("{words}*"), limit)?;
            let seen_hits: BTreeSet<(SessionId, u64)> =
                hits.iter().map(|hit| (hit.session, hit.seq)).collect();
            hits.extend(more.into_iter().filter(|hit| !seen_hits.contains(&(hit.session, hit.seq))));
            hits.truncate(limit);
        }
        Ok(hits)
    }

    fn find_matches(&self, wanted: &str, limit: usize) -> Result<Vec<SearchHit>, IndexError> {
        let failed = self.error_for("search");
        let mut rows = self
            .connection
            .prepare_cached(
                "select said.session, said.seq, said.role, snippet(said_words, 0, '[', ']', '…', ?3)
                 from said_words join said on said.n = said_words.rowid
                 where said_words match ?1 order by said_words.rowid desc limit ?2",
            )
            .map_err(&failed)?;
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let rows_found = rows
            .query_map(params![wanted, limit, SNIPPET_WORDS], |row| {
                let session: String = row.get(0)?;
                Ok((session, row.get::<_, i64>(1)?, row.get(2)?, row.get(3)?))
            })
            .map_err(&failed)?;
        let mut hits = Vec::new();
        for row in rows_found {
            let (session, seq, role, snippet) = row.map_err(&failed)?;
            if let Ok(session) = session.parse() {
                hits.push(SearchHit { session, seq: seq.cast_unsigned(), role, snippet });
            }
        }
        Ok(hits)
    }
}

/// Returns the words as full-text search strings.
fn quote_words(text: &str) -> Option<String> {
    let word = |word: &str| {
        let short: String = word
            .char_indices()
            .take_while(|(at, c)| at + c.len_utf8() <= MAX_WORD_BYTES)
            .map(|(_, c)| c)
            .collect();
        format!("\"{}\"", short.replace('"', "\"\"").replace('\0', ""))
    };
    // A word without letters or digits would match nothing and exclude all results.
    let words: Vec<String> = text
        .split_whitespace()
        .filter(|word| word.chars().any(char::is_alphanumeric))
        .take(MAX_WORDS)
        .map(word)
        .collect();
    (!words.is_empty()).then(|| words.join(" "))
}
