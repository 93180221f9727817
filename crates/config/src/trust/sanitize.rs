//! Makes names and lines of files safe to display.
//!
//! Invariant: the output has no control characters and no characters that reorder or hide text
//! (`nothing_that_is_shown_can_move_a_cursor`).

/// Escapes control characters, characters that reorder or hide text, and invalid UTF-8; truncates after
/// `limit` characters.
pub fn sanitize_bytes(bytes: &[u8], limit: usize) -> String {
    let mut text = String::new();
    let mut room = limit;
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if room == 0 {
                text.push('…');
                return text;
            }
            room -= 1;
            if is_invisible(c) { text.extend(c.escape_default()) } else { text.push(c) }
        }
        for byte in chunk.invalid() {
            if room == 0 {
                text.push('…');
                return text;
            }
            room -= 1;
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// Returns whether a character is invisible or looks like another one.
pub(crate) fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_shown_can_move_a_cursor() {
        assert_eq!(sanitize_bytes(b"a\x1b[2Jb\n\xff\x00", 80), "a\\u{1b}[2Jb\\n\\xff\\u{0}");
        assert_eq!(
            sanitize_bytes("rm \u{202e}fdp \u{200b}é漢".as_bytes(), 80),
            "rm \\u{202e}fdp \\u{200b}é漢"
        );
        assert_eq!(sanitize_bytes("éééé".as_bytes(), 2), "éé…");
        assert_eq!(sanitize_bytes(b"\xff\xff\xff", 2), "\\xff\\xff…");
        for code in 0..=0x0010_ffff_u32 {
            let Some(c) = char::from_u32(code) else { continue };
            let text = sanitize_bytes(c.to_string().as_bytes(), 8);
            assert!(!text.chars().any(is_invisible), "{code:x}");
        }
    }
}
