//! The conversation's pane: which lines of which blocks are seen, and scrolling through them.
//!
//! Only blocks that come into view are laid out, and what was laid out is kept (`paint::Drawn`), so that ten thousand of
//! them cost no more than a screenful. Where the pane stands is a block and a line in it: nothing needs to know the height
//! of everything.
//! Invariant: scrolling up and down again comes back to the same lines (`scrolling_up_and_down_comes_back`).

use minke_view::{Block, BlockId, Body};
use ratatui::text::Line;

use crate::paint::{Drawn, Theme, spaced};

/// Where the pane stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Scroll {
    /// At the end, whatever comes.
    #[default]
    Follow,
    /// This line of this block is the topmost.
    At { block: BlockId, line: usize },
}

#[derive(Default)]
pub(crate) struct Pane {
    pub(crate) scroll: Scroll,
    /// The block whose beginning stands above what is seen.
    pub(crate) cut: Option<BlockId>,
    /// Whether something stands below what was seen last.
    pub(crate) more: bool,
    drawn: Drawn,
    width: u16,
    height: u16,
    /// Blocks that are seen and whose text lies in a blob, with its name.
    pub(crate) lacking: Vec<(BlockId, String)>,
    /// There was room for more lines than there are.
    pub(crate) short: bool,
}

/// One line that is seen.
pub(crate) struct Seen {
    pub(crate) block: BlockId,
    pub(crate) line: Line<'static>,
}

/// The conversation and how it looks.
pub(crate) struct Shown<'a> {
    pub(crate) blocks: &'a [Block],
    pub(crate) theme: &'a Theme,
    pub(crate) open: &'a dyn Fn(&Block) -> bool,
}

impl Pane {
    /// The lines that are seen on so many rows.
    pub(crate) fn window(&mut self, shown: &Shown<'_>, width: u16, height: u16) -> Vec<Seen> {
        (self.width, self.height) = (width, height);
        let (mut at, mut line) = self.top(shown);
        let blank = usize::from(gap(shown.blocks, at));
        self.cut = shown.blocks.get(at).filter(|_| line > blank).map(|block| block.id);
        let mut seen = Vec::with_capacity(usize::from(height));
        let mut cut = false;
        self.lacking.clear();
        while seen.len() < usize::from(height)
            && let Some(block) = shown.blocks.get(at)
        {
            let room = usize::from(height) - seen.len();
            self.lacking.extend(named(block));
            let mut lines = self.lines(shown, at).skip(line);
            seen.extend(lines.by_ref().take(room).map(|line| Seen { block: block.id, line }));
            cut = lines.next().is_some();
            (at, line) = (at + 1, 0);
        }
        self.more = cut || at < shown.blocks.len();
        self.short = seen.len() < usize::from(height);
        seen
    }

    /// The lines of a block, with the empty one above it.
    fn lines<'a>(&'a mut self, shown: &Shown<'_>, at: usize) -> impl Iterator<Item = Line<'static>> + 'a {
        let gap = gap(shown.blocks, at).then(Line::default);
        let lines = match shown.blocks.get(at) {
            Some(block) => self.drawn.lines(block, self.width, shown.theme, (shown.open)(block)),
            None => &[],
        };
        gap.into_iter().chain(lines.iter().cloned())
    }

    fn height_of(&mut self, shown: &Shown<'_>, at: usize) -> usize {
        let Some(block) = shown.blocks.get(at) else { return 0 };
        let lines = self.drawn.lines(block, self.width, shown.theme, (shown.open)(block)).len();
        lines + usize::from(gap(shown.blocks, at))
    }

    /// The first block and line that are seen.
    fn top(&mut self, shown: &Shown<'_>) -> (usize, usize) {
        match self.scroll {
            Scroll::Follow => self.last_screen(shown),
            Scroll::At { block, line } => {
                let at = place_of(shown.blocks, block);
                let many = self.height_of(shown, at);
                (at, line.min(many.saturating_sub(1)))
            }
        }
    }

    /// Where the pane stands at the end.
    fn last_screen(&mut self, shown: &Shown<'_>) -> (usize, usize) {
        let mut left = usize::from(self.height);
        let mut at = shown.blocks.len();
        while at > 0 && left > 0 {
            at -= 1;
            let many = self.height_of(shown, at);
            if many >= left {
                return (at, many - left);
            }
            left -= many;
        }
        (at, 0)
    }

    /// Scrolls by lines; up is negative. Says whether the beginning was reached.
    pub(crate) fn by(&mut self, shown: &Shown<'_>, lines: i64) -> bool {
        let (mut at, mut line) = self.top(shown);
        let mut left = usize::try_from(lines.unsigned_abs()).unwrap_or(usize::MAX);
        if lines < 0 {
            while left > line && at > 0 {
                left -= line;
                at -= 1;
                line = self.height_of(shown, at);
            }
            line = line.saturating_sub(left);
        } else {
            let mut many = self.height_of(shown, at);
            while line + left >= many && at + 1 < shown.blocks.len() {
                left -= many.saturating_sub(line);
                (at, line) = (at + 1, 0);
                many = self.height_of(shown, at);
            }
            line = (line + left).min(many.saturating_sub(1));
        }
        self.stand(shown, at, line);
        (at, line) == (0, 0)
    }

    /// A pane whose last line is seen follows.
    fn stand(&mut self, shown: &Shown<'_>, at: usize, line: usize) {
        let end = self.last_screen(shown);
        self.scroll = match shown.blocks.get(at) {
            Some(block) if (at, line) < end => Scroll::At { block: block.id, line },
            _ => Scroll::Follow,
        };
    }

    pub(crate) fn go_to_top(&mut self, shown: &Shown<'_>) {
        self.stand(shown, 0, 0);
    }

    /// Brings a block into view, if it is not.
    pub(crate) fn reveal(&mut self, shown: &Shown<'_>, block: BlockId) {
        let wanted = place_of(shown.blocks, block);
        let (top, line) = self.top(shown);
        if (wanted, 0) < (top, line) {
            self.stand(shown, wanted, 0);
            return;
        }
        let mut rows = 0;
        for at in top..=wanted {
            rows += self.height_of(shown, at);
        }
        let below = rows.saturating_sub(line + usize::from(self.height));
        if below > 0 {
            // A block that is higher than the pane is seen from its beginning.
            let most = rows.saturating_sub(line + self.height_of(shown, wanted));
            self.by(shown, i64::try_from(below.min(most)).unwrap_or(0));
        }
    }

    pub(crate) fn height(&self) -> u16 {
        self.height
    }
}

/// A text that is known by the name of its blob alone.
fn named(block: &Block) -> Option<(BlockId, String)> {
    let (Body::Reply(words) | Body::Thinking(words)) = &block.body else { return None };
    let blob = words.blob.clone().filter(|_| words.text.is_empty())?;
    Some((block.id, blob))
}

/// Whether an empty line stands above a block.
fn gap(blocks: &[Block], at: usize) -> bool {
    let above = at.checked_sub(1).and_then(|above| blocks.get(above));
    above.zip(blocks.get(at)).is_some_and(|(above, block)| spaced(&above.body, &block.body))
}

/// Where a block stands; one that has gone, the next that is there.
fn place_of(blocks: &[Block], wanted: BlockId) -> usize {
    let found = blocks.iter().position(|block| block.id == wanted);
    found.unwrap_or_else(|| {
        let next = blocks.iter().position(|block| block.id.seq >= wanted.seq);
        next.unwrap_or(blocks.len().saturating_sub(1))
    })
}

#[cfg(test)]
mod tests {
    use minke_view::Words;

    use super::*;

    /// Each block has as many lines as its number says, from one to four, and an empty one above it.
    fn block(seq: u64) -> Block {
        let lines: Vec<String> = (0..=seq % 4).map(|line| format!("- {seq}.{line}")).collect();
        let body = Body::Reply(Words { text: lines.join("\n"), ..Words::default() });
        Block { id: BlockId { seq, part: 0, live: false }, version: 0, ts: 0, body }
    }

    fn shown(blocks: &[Block]) -> Shown<'_> {
        static THEME: std::sync::LazyLock<Theme> = std::sync::LazyLock::new(Theme::default);
        Shown { blocks, theme: &THEME, open: &|_| false }
    }

    fn seen(pane: &mut Pane, blocks: &[Block]) -> Vec<String> {
        let line =
            |seen: &Seen| seen.line.to_string().trim_start_matches(|c: char| !c.is_ascii_digit()).to_owned();
        pane.window(&shown(blocks), 40, 7).iter().map(line).collect()
    }

    #[test]
    fn scrolling_up_and_down_comes_back() {
        let blocks: Vec<Block> = (0..50).map(block).collect();
        let mut pane = Pane::default();
        let end = seen(&mut pane, &blocks);
        assert_eq!(end.last().unwrap(), "49.1");
        assert_eq!(end.len(), 7);
        let mut pictures = vec![end.clone()];
        for _ in 0..60 {
            pane.by(&shown(&blocks), -3);
            pictures.push(seen(&mut pane, &blocks));
        }
        assert_eq!(pictures.last().unwrap().first().unwrap(), "0.0");
        assert!(pane.by(&shown(&blocks), -1), "the beginning is reached");
        pane.by(&shown(&blocks), 1_000);
        assert_eq!(pane.scroll, Scroll::Follow);
        for picture in pictures.iter().take(20) {
            assert_eq!(seen(&mut pane, &blocks), *picture);
            pane.by(&shown(&blocks), -3);
        }
        for picture in pictures.iter().take(20).rev() {
            pane.by(&shown(&blocks), 3);
            assert_eq!(seen(&mut pane, &blocks), *picture);
        }
        assert_eq!(pane.scroll, Scroll::Follow);
    }

    #[test]
    fn a_pane_that_follows_shows_what_comes_and_another_stays() {
        let mut blocks: Vec<Block> = (1..20).map(block).collect();
        let mut pane = Pane::default();
        seen(&mut pane, &blocks);
        blocks.push(block(20));
        assert_eq!(seen(&mut pane, &blocks).last().unwrap(), "20.0");
        pane.by(&shown(&blocks), -5);
        let before = seen(&mut pane, &blocks);
        blocks.push(block(21));
        blocks.insert(0, block(0));
        assert_eq!(seen(&mut pane, &blocks), before);
        let wanted = blocks[3].id;
        pane.reveal(&shown(&blocks), wanted);
        assert!(seen(&mut pane, &blocks).contains(&"3.0".to_owned()));
    }

    #[test]
    fn few_blocks_and_none_are_no_obstacle() {
        let mut pane = Pane::default();
        assert!(seen(&mut pane, &[]).is_empty());
        pane.by(&shown(&[]), -3);
        pane.by(&shown(&[]), 3);
        pane.reveal(&shown(&[]), block(1).id);
        let one = [block(1)];
        assert_eq!(seen(&mut pane, &one), ["1.0", "1.1"]);
    }

    #[test]
    fn ten_thousand_blocks_cost_a_screenful() {
        let blocks: Vec<Block> = (0..10_000).map(block).collect();
        let mut pane = Pane::default();
        seen(&mut pane, &blocks);
        assert!(pane.drawn.painted() < 20, "{}", pane.drawn.painted());
        for _ in 0..100 {
            pane.by(&shown(&blocks), -20);
            seen(&mut pane, &blocks);
        }
        assert!(pane.drawn.painted() < 1_000, "{}", pane.drawn.painted());
    }
}
