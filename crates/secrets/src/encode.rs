//! The encodings of a value that are looked for letter by letter: as it is, in hex, and in base64.
//!
//! A value in base64 looks different at each of three offsets, depending on how many bytes precede it. Looked for are the
//! letters that the value alone decides; the one at each end that also holds bits of a neighbour is not.

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const ADDRESS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// Each once, the value itself first.
pub(crate) fn encodings(value: &str) -> Vec<String> {
    let mut all = vec![value.to_owned(), hex(value, b"0123456789abcdef"), hex(value, b"0123456789ABCDEF")];
    for offset in 0..3 {
        all.extend([STANDARD, ADDRESS].map(|letters| base64(value.as_bytes(), offset, letters)));
    }
    let mut once: Vec<String> = Vec::with_capacity(all.len());
    for text in all {
        if !once.contains(&text) {
            once.push(text);
        }
    }
    once
}

fn hex(value: &str, digits: &[u8; 16]) -> String {
    let digit = |at: u8| char::from(digits[usize::from(at & 15)]);
    value.bytes().flat_map(|byte| [digit(byte >> 4), digit(byte)]).collect()
}

/// The letters of base64 whose six bits all belong to the value, if `offset` bytes precede it in its group of three.
fn base64(value: &[u8], offset: usize, letters: &[u8; 64]) -> String {
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
        // `printf 'sk-a?b>c' | base64`, with nothing, `1` and `12` before it.
        assert_eq!(base64(b"sk-a?b>c", 0, STANDARD), "c2stYT9iPm");
        assert_eq!(base64(b"sk-a?b>c", 1, STANDARD), "NrLWE/Yj5j");
        assert_eq!(base64(b"sk-a?b>c", 2, ADDRESS), "zay1hP2I-Y");
        assert_eq!(hex("sk-a", b"0123456789abcdef"), "736b2d61");
    }
}
