//! The conversation pane: determines the visible lines and scrolls.
//!
//! Only visible blocks are laid out, and their lines are cached (`paint::PaintCache`), so that ten thousand
//! blocks cost no more than one screen. The scroll position is a block and a line in it, so the total height
//! is never needed.
//! Invariant: scrolling up and down returns to the same lines (`scrolling_up_and_down_comes_back`).

use minke_view::{Block, BlockBody, BlockId};
use ratatui::text::Line;

use crate::paint::{PaintCache, Theme, needs_gap};

/// The scroll position.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum ScrollPosition {
    /// At the end, following new lines.
    #[default]
    Follow,
    /// This line of this block is at the top.
    At { block: BlockId, line: usize },
}

#[derive(Default)]
pub(crate) struct ConversationPane {
    pub(crate) scroll: ScrollPosition,
    /// The block whose beginning is above the visible part.
    pub(crate) cut_block: Option<BlockId>,
    /// Whether more lines follow below the visible part.
    pub(crate) has_more_below: bool,
    cache: PaintCache,
    width: u16,
    pane_height: u16,
    /// Visible blocks whose text is only in a blob, with its name.
    pub(crate) missing_texts: Vec<(BlockId, String)>,
    /// The pane had more space than lines.
    pub(crate) has_room: bool,
}

/// A visible line.
pub(crate) struct VisibleLine {
    pub(crate) block: BlockId,
    pub(crate) line: Line<'static>,
}

/// The blocks with their display settings.
pub(crate) struct PaneContent<'a> {
    pub(crate) blocks: &'a [Block],
    pub(crate) theme: &'a Theme,
    pub(crate) open: &'a dyn Fn(&Block) -> bool,
}

impl ConversationPane {
    /// Returns the visible lines.
    pub(crate) fn visible_lines(
        &mut self,
        content: &PaneContent<'_>,
        width: u16,
        height: u16,
    ) -> Vec<VisibleLine> {
        (self.width, self.pane_height) = (width, height);
        let (mut at, mut line) = self.top_line(content);
        let blank = usize::from(has_gap_above(content.blocks, at));
        self.cut_block = content.blocks.get(at).filter(|_| line > blank).map(|block| block.id);
        let mut seen = Vec::with_capacity(usize::from(height));
        let mut cut = false;
        self.missing_texts.clear();
        while seen.len() < usize::from(height)
            && let Some(block) = content.blocks.get(at)
        {
            let available = usize::from(height) - seen.len();
            self.missing_texts.extend(blob_text(block));
            let mut lines = self.block_lines(content, at).skip(line);
            seen.extend(lines.by_ref().take(available).map(|line| VisibleLine { block: block.id, line }));
            cut = lines.next().is_some();
            (at, line) = (at + 1, 0);
        }
        self.has_more_below = cut || at < content.blocks.len();
        self.has_room = seen.len() < usize::from(height);
        seen
    }

    /// Returns the lines of a block, preceded by its empty line.
    fn block_lines<'a>(
        &'a mut self,
        shown: &PaneContent<'_>,
        at: usize,
    ) -> impl Iterator<Item = Line<'static>> + 'a {
        let gap = has_gap_above(shown.blocks, at).then(Line::default);
        let lines = match shown.blocks.get(at) {
            Some(block) => self.cache.block_lines(block, self.width, shown.theme, (shown.open)(block)),
            None => &[],
        };
        gap.into_iter().chain(lines.iter().cloned())
    }

    fn block_height(&mut self, content: &PaneContent<'_>, at: usize) -> usize {
        let Some(block) = content.blocks.get(at) else { return 0 };
        let lines = self.cache.block_lines(block, self.width, content.theme, (content.open)(block)).len();
        lines + usize::from(has_gap_above(content.blocks, at))
    }

    /// Returns the first visible block and line.
    fn top_line(&mut self, shown: &PaneContent<'_>) -> (usize, usize) {
        match self.scroll {
            ScrollPosition::Follow => self.bottom_position(shown),
            ScrollPosition::At { block, line } => {
                let at = block_index(shown.blocks, block);
                let many = self.block_height(shown, at);
                (at, line.min(many.saturating_sub(1)))
            }
        }
    }

    /// Returns the scroll position at the end.
    fn bottom_position(&mut self, content: &PaneContent<'_>) -> (usize, usize) {
        let mut left = usize::from(self.pane_height);
        let mut at = content.blocks.len();
        while at > 0 && left > 0 {
            at -= 1;
            let many = self.block_height(content, at);
            if many >= left {
                return (at, many - left);
            }
            left -= many;
        }
        (at, 0)
    }

    /// Scrolls by lines; negative is up. Returns whether the beginning was reached.
    pub(crate) fn scroll_by(&mut self, content: &PaneContent<'_>, lines: i64) -> bool {
        let (mut at, mut line) = self.top_line(content);
        let mut left = usize::try_from(lines.unsigned_abs()).unwrap_or(usize::MAX);
        if lines < 0 {
            while left > line && at > 0 {
                left -= line;
                at -= 1;
                line = self.block_height(content, at);
            }
            line = line.saturating_sub(left);
        } else {
            let mut many = self.block_height(content, at);
            while line + left >= many && at + 1 < content.blocks.len() {
                left -= many.saturating_sub(line);
                (at, line) = (at + 1, 0);
                many = self.block_height(content, at);
            }
            line = (line + left).min(many.saturating_sub(1));
        }
        self.scroll_to(content, at, line);
        (at, line) == (0, 0)
    }

    /// Sets the scroll position. Follows new lines if the last line is visible.
    fn scroll_to(&mut self, shown: &PaneContent<'_>, at: usize, line: usize) {
        let end = self.bottom_position(shown);
        self.scroll = match shown.blocks.get(at) {
            Some(block) if (at, line) < end => ScrollPosition::At { block: block.id, line },
            _ => ScrollPosition::Follow,
        };
    }

    pub(crate) fn scroll_to_top(&mut self, content: &PaneContent<'_>) {
        self.scroll_to(content, 0, 0);
    }

    /// Scrolls to a block if it is not visible.
    pub(crate) fn reveal_block(&mut self, shown: &PaneContent<'_>, block: BlockId) {
        let block_id = block_index(shown.blocks, block);
        let (top, line) = self.top_line(shown);
        if (block_id, 0) < (top, line) {
            self.scroll_to(shown, block_id, 0);
            return;
        }
        let mut rows = 0;
        for at in top..=block_id {
            rows += self.block_height(shown, at);
        }
        let below = rows.saturating_sub(line + usize::from(self.pane_height));
        if below > 0 {
            // A block that is higher than the pane is shown from its beginning.
            let most = rows.saturating_sub(line + self.block_height(shown, block_id));
            self.scroll_by(shown, i64::try_from(below.min(most)).unwrap_or(0));
        }
    }

    pub(crate) fn pane_height(&self) -> u16 {
        self.pane_height
    }
}

/// Returns the blob of a text of which only the blob name is known.
fn blob_text(block: &Block) -> Option<(BlockId, String)> {
    let (BlockBody::Reply(words) | BlockBody::Thinking(words)) = &block.body else { return None };
    let blob = words.blob.clone().filter(|_| words.text.is_empty())?;
    Some((block.id, blob))
}

/// Returns whether an empty line precedes a block.
fn has_gap_above(blocks: &[Block], at: usize) -> bool {
    let above = at.checked_sub(1).and_then(|above| blocks.get(above));
    above.zip(blocks.get(at)).is_some_and(|(above, block)| needs_gap(&above.body, &block.body))
}

/// Returns the index of a block, or of the next one if it was removed.
fn block_index(blocks: &[Block], block_id: BlockId) -> usize {
    let found = blocks.iter().position(|block| block.id == block_id);
    found.unwrap_or_else(|| {
        let next = blocks.iter().position(|block| block.id.seq >= block_id.seq);
        next.unwrap_or(blocks.len().saturating_sub(1))
    })
}

#[cfg(test)]
mod tests {
    use minke_view::StreamedText;

    use super::*;

    /// A block with one to four lines, depending on its number, and an empty line above.
    fn sample_block(seq: u64) -> Block {
        let lines: Vec<String> = (0..=seq % 4).map(|line| format!("- {seq}.{line}")).collect();
        let body = BlockBody::Reply(StreamedText { text: lines.join("\n"), ..StreamedText::default() });
        Block { id: BlockId { seq, part: 0, live: false }, version: 0, ts: 0, body }
    }

    fn sample_content(blocks: &[Block]) -> PaneContent<'_> {
        static THEME: std::sync::LazyLock<Theme> = std::sync::LazyLock::new(Theme::default);
        PaneContent { blocks, theme: &THEME, open: &|_| false }
    }

    fn visible_texts(pane: &mut ConversationPane, blocks: &[Block]) -> Vec<String> {
        let line = |seen: &VisibleLine| {
            seen.line.to_string().trim_start_matches(|c: char| !c.is_ascii_digit()).to_owned()
        };
        pane.visible_lines(&sample_content(blocks), 40, 7).iter().map(line).collect()
    }

    #[test]
    fn scrolling_up_and_down_comes_back() {
        let blocks: Vec<Block> = (0..50).map(sample_block).collect();
        let mut pane = ConversationPane::default();
        let end = visible_texts(&mut pane, &blocks);
        assert_eq!(end.last().unwrap(), "49.1");
        assert_eq!(end.len(), 7);
        let mut pictures = vec![end.clone()];
        for _ in 0..60 {
            pane.scroll_by(&sample_content(&blocks), -3);
            pictures.push(visible_texts(&mut pane, &blocks));
        }
        assert_eq!(pictures.last().unwrap().first().unwrap(), "0.0");
        assert!(pane.scroll_by(&sample_content(&blocks), -1), "the start was reached");
        pane.scroll_by(&sample_content(&blocks), 1_000);
        assert_eq!(pane.scroll, ScrollPosition::Follow);
        for picture in pictures.iter().take(20) {
            assert_eq!(visible_texts(&mut pane, &blocks), *picture);
            pane.scroll_by(&sample_content(&blocks), -3);
        }
        for picture in pictures.iter().take(20).rev() {
            pane.scroll_by(&sample_content(&blocks), 3);
            assert_eq!(visible_texts(&mut pane, &blocks), *picture);
        }
        assert_eq!(pane.scroll, ScrollPosition::Follow);
    }

    #[test]
    fn a_pane_that_follows_shows_what_comes_and_another_stays() {
        let mut blocks: Vec<Block> = (1..20).map(sample_block).collect();
        let mut pane = ConversationPane::default();
        visible_texts(&mut pane, &blocks);
        blocks.push(sample_block(20));
        assert_eq!(visible_texts(&mut pane, &blocks).last().unwrap(), "20.0");
        pane.scroll_by(&sample_content(&blocks), -5);
        let before = visible_texts(&mut pane, &blocks);
        blocks.push(sample_block(21));
        blocks.insert(0, sample_block(0));
        assert_eq!(visible_texts(&mut pane, &blocks), before);
        let block_id = blocks[3].id;
        pane.reveal_block(&sample_content(&blocks), block_id);
        assert!(visible_texts(&mut pane, &blocks).contains(&"3.0".to_owned()));
    }

    #[test]
    fn few_blocks_and_none_are_no_obstacle() {
        let mut pane = ConversationPane::default();
        assert!(visible_texts(&mut pane, &[]).is_empty());
        pane.scroll_by(&sample_content(&[]), -3);
        pane.scroll_by(&sample_content(&[]), 3);
        pane.reveal_block(&sample_content(&[]), sample_block(1).id);
        let one = [sample_block(1)];
        assert_eq!(visible_texts(&mut pane, &one), ["1.0", "1.1"]);
    }

    #[test]
    fn ten_thousand_blocks_cost_a_screenful() {
        let blocks: Vec<Block> = (0..10_000).map(sample_block).collect();
        let mut pane = ConversationPane::default();
        visible_texts(&mut pane, &blocks);
        assert!(pane.cache.paint_count() < 20, "{}", pane.cache.paint_count());
        for _ in 0..100 {
            pane.scroll_by(&sample_content(&blocks), -20);
            visible_texts(&mut pane, &blocks);
        }
        assert!(pane.cache.paint_count() < 1_000, "{}", pane.cache.paint_count());
    }
}
