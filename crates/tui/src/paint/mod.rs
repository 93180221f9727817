//! Paint: from blocks to lines of cells, without a terminal: Markdown, code, diffs, cards, colours.
