//! The encodings of a value that the redactor searches for: plain, hex and base64.
//!
//! The base64 form of a value depends on the number of bytes before it, modulo three. The search uses only
//! the characters that the value alone determines. The character at each end that also encodes bits of a
//! neighbouring byte is left out.

const STANDARD_ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const URL_SAFE_ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Returns each encoding once, starting with the value itself.
pub(crate) fn encodings(value: &str) -> Vec<String> {
    let mut all = vec![
        value.to_owned(),
        hex_encode(value, b"0123456789abcdef"),
        hex_encode(value, b"0123456789ABCDEF"),
    ];
    for offset in 0..3 {
        all.extend(
            [STANDARD_ALPHABET, URL_SAFE_ALPHABET]
                .map(|letters| base64_core(value.as_bytes(), offset, letters)),
        );
    }
    let mut once: Vec<String> = Vec::with_capacity(all.len());
    for text in all {
        if !once.contains(&text) {
            once.push(text);
        }
    }
    once
}

fn hex_encode(value: &str, digits: &[u8; 16]) -> String {
    let digit = |at: u8| char::from(digits[usize::from(at & 15)]);
    value.bytes().flat_map(|byte| [digit(byte >> 4), digit(byte)]).collect()
}

/// Returns the base64 characters whose six bits all belong to the value when `offset` bytes precede it in its
/// group of three.
fn base64_core(value: &[u8], offset: usize, letters: &[u8; 64]) -> String {
    let bit =
        |at: usize| at.checked_sub(offset * 8).and_then(|at| Some(value.get(at / 8)? >> (7 - at % 8) & 1));
    let (first, end) = ((offset * 8).div_ceil(6), (offset + value.len()) * 8 / 6);
    let letter = |index: usize| {
        let bits = (index * 6..index * 6 + 6).map(|at| bit(at).unwrap_or_default());
        char::from(letters[usize::from(bits.fold(0_u8, |code, bit| code << 1 | bit))])
    };
    (first..end).map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_other_programs() {
        // Output of `printf 'sk-a?b>c' | base64`, with an empty prefix, `1` and `12`.
        assert_eq!(base64_core(b"sk-a?b>c", 0, STANDARD_ALPHABET), "c2stYT9iPm");
        assert_eq!(base64_core(b"sk-a?b>c", 1, STANDARD_ALPHABET), "NrLWE/Yj5j");
        assert_eq!(base64_core(b"sk-a?b>c", 2, URL_SAFE_ALPHABET), "zay1hP2I-Y");
        assert_eq!(hex_encode("sk-a", b"0123456789abcdef"), "736b2d61");
    }
}
