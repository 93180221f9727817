//! Text: from a file's bytes to characters and back, so that what a change does not touch keeps its bytes.
//!
//! UTF-8 and UTF-16 with their byte order marks are known by sight; other encodings are guessed. Bytes that are no
//! characters of UTF-8 are carried through as private characters and written back as they were.
//! Invariant: `encode(decode(bytes)) == bytes`, or the file is not edited (`what_is_decoded_is_written_back`).

use std::borrow::Cow;

use encoding_rs::{Encoding, UTF_16BE, UTF_16LE};

/// Where a file shows whether it is text.
const HEAD_BYTES: usize = 8 * 1024;
/// How much of a file the guess of its encoding looks at.
const GUESS_BYTES: usize = 256 * 1024;
/// Where bytes that are no characters are carried: this and the 255 after it, which are nobody's.
const CARRIED: u32 = 0x10_FE00;

/// How a file's characters are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Utf8,
    /// UTF-8 with some bytes in it that are no characters.
    Utf8AndBytes,
    Utf16Le,
    Utf16Be,
    /// Guessed.
    Other(&'static Encoding),
}

/// How lines end in most of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Lf,
    CrLf,
    Cr,
}

impl Ending {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Ending::Lf => "\n",
            Ending::CrLf => "\r\n",
            Ending::Cr => "\r",
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Ending::Lf => "LF",
            Ending::CrLf => "CRLF",
            Ending::Cr => "CR",
        }
    }

    /// What most lines of a text end in. A lone CR counts only in a file that has no LF at all: elsewhere it is a
    /// character like others.
    pub(crate) fn of(text: &str) -> Ending {
        let bytes = text.as_bytes();
        let lf = memchr::memchr_iter(b'\n', bytes).count();
        if lf == 0 {
            return if memchr::memchr(b'\r', bytes).is_some() { Ending::Cr } else { Ending::Lf };
        }
        let crlf = memchr::memmem::find_iter(bytes, "\r\n").count();
        if crlf * 2 > lf { Ending::CrLf } else { Ending::Lf }
    }
}

/// A file's text and how it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Text {
    /// Without the byte order mark, line ends as they are.
    pub(crate) text: String,
    pub(crate) form: Form,
    /// Written back it gives the same bytes.
    pub(crate) exact: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) coding: Coding,
    pub(crate) mark: bool,
    pub(crate) ending: Ending,
}

impl Form {
    pub(crate) const NEW: Form = Form { coding: Coding::Utf8, mark: false, ending: Ending::Lf };

    /// What a reader should know about how the file is written; empty for plain UTF-8 with LF.
    pub(crate) fn remarks(&self) -> Vec<String> {
        let mut remarks = Vec::new();
        match self.coding {
            Coding::Utf8 => {}
            Coding::Utf8AndBytes => {
                remarks.push("not all UTF-8, bytes that are no characters are shown as \u{fffd}".to_owned());
            }
            Coding::Utf16Le => remarks.push("UTF-16LE".to_owned()),
            Coding::Utf16Be => remarks.push("UTF-16BE".to_owned()),
            Coding::Other(encoding) => remarks.push(format!("not UTF-8, taken for {}", encoding.name())),
        }
        if self.mark && self.coding == Coding::Utf8 {
            remarks.push("byte order mark".to_owned());
        }
        if self.ending != Ending::Lf {
            remarks.push(format!("{} line ends", self.ending.name()));
        }
        remarks
    }
}

impl Text {
    pub(crate) fn decode(bytes: &[u8]) -> Text {
        let (mark, body) = match bytes {
            [0xEF, 0xBB, 0xBF, body @ ..] => (Some(Coding::Utf8), body),
            [0xFF, 0xFE, body @ ..] => (Some(Coding::Utf16Le), body),
            [0xFE, 0xFF, body @ ..] => (Some(Coding::Utf16Be), body),
            body => (None, body),
        };
        let (text, coding) = match mark {
            Some(Coding::Utf16Le) => {
                (UTF_16LE.decode_without_bom_handling(body).0.into_owned(), Coding::Utf16Le)
            }
            Some(Coding::Utf16Be) => {
                (UTF_16BE.decode_without_bom_handling(body).0.into_owned(), Coding::Utf16Be)
            }
            _ => decode_bytes(body),
        };
        let form = Form { coding, mark: mark.is_some(), ending: Ending::of(&text) };
        let exact = match coding {
            // By construction: the same bytes, or carried one by one.
            Coding::Utf8 | Coding::Utf8AndBytes => true,
            _ => encode(&text, form).is_ok_and(|again| again == bytes),
        };
        Text { text, form, exact }
    }
}

/// Writes characters as a form says; the first character that it has no room for is the error.
pub(crate) fn encode(text: &str, form: Form) -> Result<Vec<u8>, char> {
    let mark = if form.mark { "\u{feff}" } else { "" };
    match form.coding {
        Coding::Utf8 => Ok([mark.as_bytes(), text.as_bytes()].concat()),
        Coding::Utf8AndBytes => {
            let mut bytes = mark.as_bytes().to_vec();
            let mut buffer = [0; 4];
            for c in text.chars() {
                match carried(c) {
                    Some(byte) => bytes.push(byte),
                    None => bytes.extend_from_slice(c.encode_utf8(&mut buffer).as_bytes()),
                }
            }
            Ok(bytes)
        }
        Coding::Utf16Le => {
            Ok(mark.encode_utf16().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect())
        }
        Coding::Utf16Be => {
            Ok(mark.encode_utf16().chain(text.encode_utf16()).flat_map(u16::to_be_bytes).collect())
        }
        Coding::Other(encoding) => {
            let (bytes, _, unmappable) = encoding.encode(text);
            if !unmappable {
                return Ok(bytes.into_owned());
            }
            let lacks = |c: &char| encoding.encode(c.encode_utf8(&mut [0; 4])).2;
            Err(text.chars().find(lacks).unwrap_or('\u{fffd}'))
        }
    }
}

/// For showing: what is carried through is no character.
pub(crate) fn shown(text: &str, coding: Coding) -> Cow<'_, str> {
    if coding != Coding::Utf8AndBytes {
        return text.into();
    }
    text.chars().map(|c| if carried(c).is_some() { '\u{fffd}' } else { c }).collect::<String>().into()
}

fn carried(c: char) -> Option<u8> {
    u32::from(c).checked_sub(CARRIED).and_then(|byte| u8::try_from(byte).ok())
}

fn decode_bytes(bytes: &[u8]) -> (String, Coding) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return (text.to_owned(), Coding::Utf8);
    }
    let (text, wide, stray) = carry(bytes);
    // Characters of UTF-8 are seldom accidents: if there are about as many as bytes that are none, it is UTF-8 with
    // something else in it.
    if wide * 3 >= stray {
        return (text, Coding::Utf8AndBytes);
    }
    let mut detector = chardetng::EncodingDetector::new(chardetng::Iso2022JpDetection::Deny);
    detector.feed(bytes.get(..GUESS_BYTES).unwrap_or(bytes), bytes.len() <= GUESS_BYTES);
    let encoding = detector.guess(None, chardetng::Utf8Detection::Deny);
    let (guessed, wrong) = encoding.decode_without_bom_handling(bytes);
    // A guess that does not give the same bytes back would change what nobody touched.
    let same = !wrong && encoding.encode(&guessed).0 == bytes;
    if same { (guessed.into_owned(), Coding::Other(encoding)) } else { (text, Coding::Utf8AndBytes) }
}

/// The text with its stray bytes carried, how many wide characters it has, and how many stray bytes.
fn carry(bytes: &[u8]) -> (String, usize, usize) {
    let mut text = String::with_capacity(bytes.len());
    let (mut wide, mut stray) = (0, 0);
    let mut push = |text: &mut String, byte: u8| {
        stray += 1;
        text.extend(char::from_u32(CARRIED + u32::from(byte)));
    };
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            // Somebody's own private character there would be mistaken: it is carried byte by byte.
            if carried(c).is_some() {
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

/// What kind of content this is, if it is not text; decided by its beginning.
pub(crate) fn binary(bytes: &[u8]) -> Option<&'static str> {
    const KINDS: &[(&[u8], &str)] = &[
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
    let head = bytes.get(..HEAD_BYTES).unwrap_or(bytes);
    if let Some((_, kind)) = KINDS.iter().find(|(magic, _)| head.starts_with(magic)) {
        // Text may begin with these letters; only what goes on with zeros does not.
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

    fn coding(bytes: &[u8]) -> Coding {
        let text = Text::decode(bytes);
        assert!(text.exact);
        assert_eq!(encode(&text.text, text.form).unwrap(), bytes);
        text.form.coding
    }

    #[test]
    fn what_is_decoded_is_written_back() {
        assert_eq!(coding(b""), Coding::Utf8);
        assert_eq!(coding("aä€😀\r\n".as_bytes()), Coding::Utf8);
        assert_eq!(coding(b"\xef\xbb\xbfmark"), Coding::Utf8);
        assert_eq!(coding(b"\xff\xfea\0\x3d\xd8\x00\xde"), Coding::Utf16Le);
        assert_eq!(coding(b"\xfe\xff\0a\xd8\x3d\xde\x00"), Coding::Utf16Be);
        assert_eq!(
            coding("ä ö ü".as_bytes().iter().chain(b"\xff").copied().collect::<Vec<_>>().as_slice()),
            Coding::Utf8AndBytes
        );
        // A private character that we use ourselves.
        assert_eq!(coding("\u{10fe41}".as_bytes()), Coding::Utf8);
        assert_eq!(
            coding(
                "ä\u{10fe41}\u{10feff}ääääääääää"
                    .as_bytes()
                    .iter()
                    .chain(b"\x80")
                    .copied()
                    .collect::<Vec<_>>()
                    .as_slice()
            ),
            Coding::Utf8AndBytes
        );
        let latin = b"Gr\xfc\xdfe aus K\xf6ln, sch\xf6n hier. Die Stra\xdfe war m\xfcde.";
        assert!(matches!(coding(latin), Coding::Other(_)));
        assert!(Text::decode(latin).text.contains("Grüße aus Köln"));
        let shift_jis = encoding_rs::SHIFT_JIS.encode("これは日本語のテキストです。漢字とかな。").0;
        assert_eq!(coding(&shift_jis), Coding::Other(encoding_rs::SHIFT_JIS));
        // Not UTF-16 after all: half a unit, half a pair.
        assert!(!Text::decode(b"\xff\xfea").exact && !Text::decode(b"\xff\xfe\x00\xd8").exact);
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
            let text = Text::decode(&bytes);
            assert_eq!(
                text.exact,
                encode(&text.text, text.form).is_ok_and(|again| again == bytes),
                "{bytes:?}"
            );
            assert!(text.exact || text.form.mark, "only half a UTF-16 is not exact: {bytes:?}");
        }
    }

    #[test]
    fn line_ends_are_those_of_most_lines() {
        for (text, ending) in [
            ("", Ending::Lf),
            ("a", Ending::Lf),
            ("a\nb\n", Ending::Lf),
            ("a\r\nb\r\n", Ending::CrLf),
            ("a\r\nb\r\nc\n", Ending::CrLf),
            ("a\r\nb\n", Ending::Lf),
            ("a\rb\r", Ending::Cr),
            ("10%\r20%\r\n", Ending::CrLf),
            ("10%\r20%\n", Ending::Lf),
        ] {
            assert_eq!(Ending::of(text), ending, "{text:?}");
        }
    }

    #[test]
    fn what_an_encoding_lacks_is_named() {
        let form = Form { coding: Coding::Other(encoding_rs::WINDOWS_1252), mark: false, ending: Ending::Lf };
        assert_eq!(encode("ab日", form), Err('日'));
        assert_eq!(encode("é", form), Ok(vec![0xe9]));
    }
}
