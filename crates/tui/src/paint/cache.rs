//! Caches the rendered lines of blocks, within a limit.
//!
//! A growing reply keeps its incremental parser, so that new text costs only its own length.

use std::collections::HashMap;

use minke_view::{Block, BlockBody, BlockId};
use ratatui::text::Line;

use super::block::{block_lines, omitted_line};
use super::incremental::MarkdownStream;
use super::theme::Theme;

/// Limit for cached lines, some megabytes. The least recently used blocks are evicted first.
const MAX_CACHED_LINES: usize = 60_000;

/// The cached lines of blocks.
pub struct PaintCache {
    entries: HashMap<BlockId, CacheEntry>,
    /// Counts lookups; an entry's age follows from its last lookup.
    clock: u64,
    lines: usize,
    limit: usize,
    paint_count: u64,
    growth_count: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct CacheKey {
    version: u64,
    width: u16,
    theme: Theme,
    open: bool,
}

struct CacheEntry {
    key: CacheKey,
    last_used: u64,
    content: CachedContent,
}

enum CachedContent {
    Lines(Vec<Line<'static>>),
    Growing {
        stream: Box<MarkdownStream>,
        /// The text that the parser has consumed.
        source_text: String,
    },
}

impl CachedContent {
    fn line_count(&self) -> usize {
        match self {
            CachedContent::Lines(lines) => lines.len(),
            CachedContent::Growing { stream, .. } => stream.line_count(),
        }
    }
}

impl Default for PaintCache {
    fn default() -> PaintCache {
        PaintCache::new(MAX_CACHED_LINES)
    }
}

impl PaintCache {
    /// Creates a cache for about `limit` lines.
    pub fn new(limit: usize) -> PaintCache {
        PaintCache { entries: HashMap::new(), clock: 0, lines: 0, limit, paint_count: 0, growth_count: 0 }
    }

    /// Returns the lines of a block, as [`block_lines`](super::block_lines) renders them.
    pub fn block_lines(
        &mut self,
        block_ref: &Block,
        width: u16,
        theme: &Theme,
        open: bool,
    ) -> &[Line<'static>] {
        self.clock += 1;
        let key = CacheKey { version: block_ref.version, width, theme: *theme, open };
        let mut entry = self.entries.remove(&block_ref.id);
        if let Some(kept) = &entry {
            self.lines = self.lines.saturating_sub(kept.content.line_count());
        }
        if entry.as_ref().is_none_or(|kept| kept.key != key) {
            self.paint_count += 1;
            let (content, more) = match grow_entry(entry.take(), block_ref, key) {
                Some(grown) => grown,
                None => (CachedContent::Lines(block_lines(block_ref, width, theme, open)), false),
            };
            self.growth_count += u64::from(more);
            entry = Some(CacheEntry { key, last_used: self.clock, content });
        }
        let kept = entry.map(|kept| CacheEntry { last_used: self.clock, ..kept });
        self.lines += kept.as_ref().map_or(0, |kept| kept.content.line_count());
        self.evict_older_half();
        self.entries.extend(kept.map(|kept| (block_ref.id, kept)));
        match self.entries.get_mut(&block_ref.id).map(|entry| &mut entry.content) {
            Some(CachedContent::Lines(lines)) => lines,
            Some(CachedContent::Growing { stream, .. }) => stream.all_lines(true),
            None => &[],
        }
    }

    /// Returns how often a block was rendered instead of found.
    pub fn paint_count(&self) -> u64 {
        self.paint_count
    }

    /// Returns how often only new text was rendered.
    pub fn growth_count(&self) -> u64 {
        self.growth_count
    }

    /// Returns the number of cached lines.
    pub fn cached_line_count(&self) -> usize {
        self.lines
    }

    pub fn clear_cache(&mut self) {
        self.entries.clear();
        self.lines = 0;
    }

    /// Evicts the older half if the limit is exceeded, so that evictions are rare.
    fn evict_older_half(&mut self) {
        if self.lines <= self.limit {
            return;
        }
        let mut ages: Vec<(u64, BlockId)> =
            self.entries.iter().map(|(id, entry)| (entry.last_used, *id)).collect();
        ages.sort_unstable();
        for (_, id) in ages {
            if self.lines <= self.limit / 2 {
                break;
            }
            let gone = self.entries.remove(&id).map_or(0, |entry| entry.content.line_count());
            self.lines = self.lines.saturating_sub(gone);
        }
    }
}

/// Continues a streaming reply if its text has only grown. Returns whether it did.
fn grow_entry(entry: Option<CacheEntry>, block_ref: &Block, key: CacheKey) -> Option<(CachedContent, bool)> {
    let BlockBody::Reply(words) = &block_ref.body else { return None };
    if !words.open || key.theme.plain {
        return None;
    }
    let note = omitted_line(words, key.width, &key.theme);
    let same = |old: CacheKey| old.width == key.width && old.theme == key.theme;
    if let Some(CacheEntry {
        key: old, content: CachedContent::Growing { mut stream, mut source_text }, ..
    }) = entry
        && same(old)
        && let Some(more) = words.text.strip_prefix(source_text.as_str())
    {
        stream.push_text(more);
        source_text.push_str(more);
        stream.set_footer(note);
        stream.all_lines(true);
        return Some((CachedContent::Growing { stream, source_text }, true));
    }
    let mut stream = Box::new(MarkdownStream::new(key.width, key.theme));
    stream.push_text(&words.text);
    stream.set_footer(note);
    stream.all_lines(true);
    Some((CachedContent::Growing { stream, source_text: words.text.clone() }, false))
}
