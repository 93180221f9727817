//! Decodes file content to text and encodes it again, so that unchanged parts keep their bytes.
//!
//! UTF-8 and UTF-16 are detected by content and byte order mark; other encodings are guessed. Bytes that are
//! not valid UTF-8 are mapped to private characters and written back unchanged.
//! Invariant: `encode(decode(bytes)) == bytes`, or the file is not edited
//! (`what_is_decoded_is_written_back`).

use std::borrow::Cow;

use encoding_rs::{Encoding, UTF_16BE, UTF_16LE};

/// The part of a file that decides whether it is text.
const SNIFF_BYTES: usize = 8 * 1024;
/// The part of a file for guessing its encoding.
const GUESS_BYTES: usize = 256 * 1024;
/// The first of 256 private characters to which invalid bytes are mapped.
const CARRIED_BASE: u32 = 0x10_FE00;

/// The encoding of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextCoding {
    Utf8,
    /// UTF-8 with some invalid bytes.
    Utf8AndBytes,
    Utf16Le,
    Utf16Be,
    /// A guessed encoding.
    Other(&'static Encoding),
}

/// The line ending of most lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LineEnding {
    Lf,
    CrLf,
    Cr,
}

impl LineEnding {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            LineEnding::Lf => "\n",
            LineEnding::CrLf => "\r\n",
            LineEnding::Cr => "\r",
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            LineEnding::Lf => "LF",
            LineEnding::CrLf => "CRLF",
            LineEnding::Cr => "CR",
        }
    }

    /// Returns the line ending of most lines. CR counts only in a file without LF; otherwise it is an
    /// ordinary character.
    pub(crate) fn detect(text: &str) -> LineEnding {
        let bytes = text.as_bytes();
        let lf = memchr::memchr_iter(b'\n', bytes).count();
        if lf == 0 {
            return if memchr::memchr(b'\r', bytes).is_some() { LineEnding::Cr } else { LineEnding::Lf };
        }
        let crlf = memchr::memmem::find_iter(bytes, "\r\n").count();
        if crlf * 2 > lf { LineEnding::CrLf } else { LineEnding::Lf }
    }
}

/// The text of a file with its encoding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FileText {
    /// Without the byte order mark, with the original line endings.
    pub(crate) text: String,
    pub(crate) form: TextForm,
    /// Encoding the text returns the original bytes.
    pub(crate) is_exact: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TextForm {
    pub(crate) coding: TextCoding,
    pub(crate) has_bom: bool,
    pub(crate) ending: LineEnding,
}

impl TextForm {
    pub(crate) const NEW: TextForm =
        TextForm { coding: TextCoding::Utf8, has_bom: false, ending: LineEnding::Lf };

    /// Returns remarks about the encoding and line endings; empty for plain UTF-8 with LF.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        match self.coding {
            TextCoding::Utf8 => {}
            TextCoding::Utf8AndBytes => {
                remarks.push("not all UTF-8, undecodable bytes are shown as \u{fffd}".to_owned());
            }
            TextCoding::Utf16Le => remarks.push("UTF-16LE".to_owned()),
            TextCoding::Utf16Be => remarks.push("UTF-16BE".to_owned()),
            TextCoding::Other(encoding) => {
                remarks.push(format!("not UTF-8, assumed to be {}", encoding.name()))
            }
        }
        if self.has_bom && self.coding == TextCoding::Utf8 {
            remarks.push("byte order mark".to_owned());
        }
        if self.ending != LineEnding::Lf {
            remarks.push(format!("{} line ends", self.ending.name()));
        }
        remarks
    }
}

impl FileText {
    pub(crate) fn decode(bytes: &[u8]) -> FileText {
        let (mark, body) = match bytes {
            [0xEF, 0xBB, 0xBF, body @ ..] => (Some(TextCoding::Utf8), body),
            [0xFF, 0xFE, body @ ..] => (Some(TextCoding::Utf16Le), body),
            [0xFE, 0xFF, body @ ..] => (Some(TextCoding::Utf16Be), body),
            body => (None, body),
        };
        let (text, coding) = match mark {
            Some(TextCoding::Utf16Le) => {
                (UTF_16LE.decode_without_bom_handling(body).0.into_owned(), TextCoding::Utf16Le)
            }
            Some(TextCoding::Utf16Be) => {
                (UTF_16BE.decode_without_bom_handling(body).0.into_owned(), TextCoding::Utf16Be)
            }
            _ => decode_bytes(body),
        };
        let form = TextForm { coding, has_bom: mark.is_some(), ending: LineEnding::detect(&text) };
        let is_exact = match coding {
            // Exact by construction: valid text, or bytes mapped one by one.
            TextCoding::Utf8 | TextCoding::Utf8AndBytes => true,
            _ => encode_text(&text, form).is_ok_and(|again| again == bytes),
        };
        FileText { text, form, is_exact }
    }
}

/// Encodes a text. The error is the first character that the encoding lacks.
pub(crate) fn encode_text(text: &str, form: TextForm) -> Result<Vec<u8>, char> {
    let mark = if form.has_bom { "\u{feff}" } else { "" };
    match form.coding {
        TextCoding::Utf8 => Ok([mark.as_bytes(), text.as_bytes()].concat()),
        TextCoding::Utf8AndBytes => {
            let mut bytes = mark.as_bytes().to_vec();
            let mut buffer = [0; 4];
            for c in text.chars() {
                match carried_byte(c) {
                    Some(byte) => bytes.push(byte),
                    None => bytes.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes()),
                }
            }
            Ok(bytes)
        }
        TextCoding::Utf16Le => {
            Ok(mark.encode_utf16().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect())
        }
        TextCoding::Utf16Be => {
            Ok(mark.encode_utf16().chain(text.encode_utf16()).flat_map(u16::to_be_bytes).collect())
        }
        TextCoding::Other(encoding) => {
            let (bytes, _, unmappable) = encoding.encode(text);
            if !unmappable {
                return Ok(bytes.into_owned());
            }
            let lacks = |c: &char| encoding.encode(c.encode_utf8(&mut [0; 4])).2;
            Err(text.chars().find(lacks).unwrap_or('\u{fffd}'))
        }
    }
}

/// Returns a text for display, with replacement characters for undecodable bytes.
pub(crate) fn displayable_text(text: &str, coding: TextCoding) -> Cow<'_, str> {
    if coding != TextCoding::Utf8AndBytes {
        return text.into();
    }
    text.chars().map(|c| if carried_byte(c).is_some() { '\u{fffd}' } else { c }).collect::<String>().into()
}

fn carried_byte(c: char) -> Option<u8> {
    u32::from(c).checked_sub(CARRIED_BASE).and_then(|byte| u8::try_from(byte).ok())
}

fn decode_bytes(bytes: &[u8]) -> (String, TextCoding) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return (text.to_owned(), TextCoding::Utf8);
    }
    let (text, wide, stray) = carry_stray_bytes(bytes);
    // Random bytes rarely form valid UTF-8 sequences: if there are about as many sequences as invalid bytes,
    // it is UTF-8 with some other bytes.
    if wide * 3 >= stray {
        return (text, TextCoding::Utf8AndBytes);
    }
    let mut detector = chardetng::EncodingDetector::new(chardetng::Iso2022JpDetection::Deny);
    detector.feed(bytes.get(..GUESS_BYTES).unwrap_or(bytes), bytes.len() <= GUESS_BYTES);
    let encoding = detector.guess(None, chardetng::Utf8Detection::Deny);
    let (guessed, wrong) = encoding.decode_without_bom_handling(bytes);
    // A guess that does not round-trip would change unrelated parts of the file.
    let same = !wrong && encoding.encode(&guessed).0 == bytes;
    if same { (guessed.into_owned(), TextCoding::Other(encoding)) } else { (text, TextCoding::Utf8AndBytes) }
}

/// Decodes bytes; returns the text with mapped bytes, and the number of non-ASCII characters and of invalid
/// bytes.
fn carry_stray_bytes(bytes: &[u8]) -> (String, usize, usize) {
    let mut text = String::with_capacity(bytes.len());
    let (mut wide, mut stray) = (0, 0);
    let mut push = |text: &mut String, byte: u8| {
        stray += 1;
        text.extend(char::from_u32(CARRIED_BASE + u32::from(byte)));
    };
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            // A private character from our range in the file would be ambiguous, so map its bytes.
            if carried_byte(c).is_some() {
                c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| push(&mut text, byte));
            } else {
                wide += usize::from(!c.is_ascii());
                text.push(c);
            }
        }
        chunk.invalid().iter().for_each(|byte| push(&mut text, *byte));
    }
    (text, wide, stray)
}

/// Returns the kind of binary content, or `None` for text; decided by the first bytes.
pub(crate) fn binary_kind(bytes: &[u8]) -> Option<&'static str> {
    const MAGIC_NUMBERS: &[(&[u8], &str)] = &[
        (b"\x89PNG\r\n\x1a\n", "a PNG image"),
        (b"\xff\xd8\xff", "a JPEG image"),
        (b"GIF87a", "a GIF image"),
        (b"GIF89a", "a GIF image"),
        (b"%PDF-", "a PDF document"),
        (b"\x7fELF", "an ELF program"),
        (b"PK\x03\x04", "a ZIP archive"),
        (b"\x1f\x8b", "gzip data"),
        (b"\x28\xb5\x2f\xfd", "zstd data"),
        (b"\xfd7zXZ\0", "xz data"),
        (b"BZh", "bzip2 data"),
        (b"\xca\xfe\xba\xbe", "a Java class or a macOS program"),
        (b"\xcf\xfa\xed\xfe", "a macOS program"),
        (b"\0asm", "a WebAssembly module"),
        (b"SQLite format 3\0", "an SQLite database"),
    ];
    let head = bytes.get(..SNIFF_BYTES).unwrap_or(bytes);
    if let Some((_, kind)) = MAGIC_NUMBERS.iter().find(|(magic, _)| head.starts_with(magic)) {
        // Text may begin with these letters, but it contains no zero bytes.
        let letters = kind.starts_with("bzip2") || kind.starts_with("a GIF");
        if !letters || memchr::memchr(0, head).is_some() || std::str::from_utf8(head).is_err() {
            return Some(kind);
        }
    }
    if head.starts_with(b"RIFF") && head.get(8..12) == Some(b"WEBP") {
        return Some("a WebP image");
    }
    if head.starts_with(&[0xFF, 0xFE]) || head.starts_with(&[0xFE, 0xFF]) {
        return None;
    }
    memchr::memchr(0, head).is_some().then_some("binary data of an unknown kind")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn detect_coding(bytes: &[u8]) -> TextCoding {
        let text = FileText::decode(bytes);
        assert!(text.is_exact);
        assert_eq!(encode_text(&text.text, text.form).unwrap(), bytes);
        text.form.coding
    }

    #[test]
    fn what_is_decoded_is_written_back() {
        assert_eq!(detect_coding(b""), TextCoding::Utf8);
        assert_eq!(detect_coding("aä€😀\r\n".as_bytes()), TextCoding::Utf8);
        assert_eq!(detect_coding(b"\xef\xbb\xbfmark"), TextCoding::Utf8);
        assert_eq!(detect_coding(b"\xff\xfea\0\x3d\xd8\x00\xde"), TextCoding::Utf16Le);
        assert_eq!(detect_coding(b"\xfe\xff\0a\xd8\x3d\xde\x00"), TextCoding::Utf16Be);
        assert_eq!(
            detect_coding("ä ö ü".as_bytes().iter().chain(b"\xff").copied().collect::<Vec<_>>().as_slice()),
            TextCoding::Utf8AndBytes
        );
        // A private character from our own range.
        assert_eq!(detect_coding("\u{10fe41}".as_bytes()), TextCoding::Utf8);
        assert_eq!(
            detect_coding(
                "ä\u{10fe41}\u{10feff}ääääääääää"
                    .as_bytes()
                    .iter()
                    .chain(b"\x80")
                    .copied()
                    .collect::<Vec<_>>()
                    .as_slice()
            ),
            TextCoding::Utf8AndBytes
        );
        let latin = b"Gr\xfc\xdfe aus K\xf6ln, sch\xf6n hier. Die Stra\xdfe war m\xfcde.";
        assert!(matches!(detect_coding(latin), TextCoding::Other(_)));
        assert!(FileText::decode(latin).text.contains("Grüße aus Köln"));
        let shift_jis = encoding_rs::SHIFT_JIS.encode("これは日本語のテキストです。漢字とかな。").0;
        assert_eq!(detect_coding(&shift_jis), TextCoding::Other(encoding_rs::SHIFT_JIS));
        // Not valid UTF-16: half a unit, half a pair.
        assert!(!FileText::decode(b"\xff\xfea").is_exact && !FileText::decode(b"\xff\xfe\x00\xd8").is_exact);
    }

    #[test]
    fn random_bytes_are_written_back_or_known_not_to_be() {
        let mut state = 0x1234_5678_u64;
        let mut next = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        };
        for length in 0..2_000 {
            let bytes: Vec<u8> = (0..length % 97).map(|_| next()).collect();
            let text = FileText::decode(&bytes);
            assert_eq!(
                text.is_exact,
                encode_text(&text.text, text.form).is_ok_and(|again| again == bytes),
                "{bytes:?}"
            );
            assert!(text.is_exact || text.form.has_bom, "only invalid UTF-16 is not exact: {bytes:?}");
        }
    }

    #[test]
    fn line_ends_are_those_of_most_lines() {
        for (text, ending) in [
            ("", LineEnding::Lf),
            ("a", LineEnding::Lf),
            ("a\nb\n", LineEnding::Lf),
            ("a\r\nb\r\n", LineEnding::CrLf),
            ("a\r\nb\r\nc\n", LineEnding::CrLf),
            ("a\r\nb\n", LineEnding::Lf),
            ("a\rb\r", LineEnding::Cr),
            ("10%\r20%\r\n", LineEnding::CrLf),
            ("10%\r20%\n", LineEnding::Lf),
        ] {
            assert_eq!(LineEnding::detect(text), ending, "{text:?}");
        }
    }

    #[test]
    fn what_an_encoding_lacks_is_named() {
        let form = TextForm {
            coding: TextCoding::Other(encoding_rs::WINDOWS_1252),
            has_bom: false,
            ending: LineEnding::Lf,
        };
        assert_eq!(encode_text("ab日", form), Err('日'));
        assert_eq!(encode_text("é", form), Ok(vec![0xe9]));
    }
}
