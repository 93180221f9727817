//! Brace expansion: `{a,b}` and `{1..3}`.

/// Whether bash might expand braces in the word: an unquoted `{`, a separator in it, and its end.
pub(super) fn expands(text: &[(char, bool)]) -> bool {
    let mut open = 0_usize;
    let mut parted = false;
    let mut dot = false;
    for (c, quoted) in text {
        let c = if *quoted { 'x' } else { *c };
        match c {
            '{' => open += 1,
            ',' if open > 0 => parted = true,
            '.' if open > 0 && dot => parted = true,
            '}' if open > 0 => {
                if parted {
                    return true;
                }
                open -= 1;
            }
            _ => {}
        }
        dot = c == '.';
    }
    false
}
