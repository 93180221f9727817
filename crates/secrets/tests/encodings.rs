//! Every encoding that docs/guide/secrets.md lists, cut anywhere. The output never contains a part that the
//! value alone determines.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use minke_secrets::{Redactor, Secret};
use proptest::collection::vec;
use proptest::prelude::*;

/// Number of random cases for each property.
fn case_count() -> u32 {
    if std::env::var_os("MINKE_LONG").is_some() { 20_000 } else { 500 }
}

/// Encodes a value. `which` selects letter case, offsets and line breaks.
type EncodeFn = fn(value: &str, which: u64) -> String;

const ENCODINGS: [(&str, EncodeFn); 18] = [
    ("as it is", |value, _| value.to_owned()),
    ("coloured", insert_color_codes),
    ("colours in JSON", |value, which| match value.contains('\\') {
        true => value.to_owned(),
        false => insert_color_codes(value, which).replace('\u{1b}', "\\u001b"),
    }),
    ("base64", |value, which| base64_encode(value, which, b"+/")),
    ("base64 for addresses", |value, which| base64_encode(value, which, b"-_")),
    ("base64 in lines of 76", |value, which| wrap_lines(&base64_lines(value, which), 76, "\n")),
    ("base64 in lines of 64", |value, which| wrap_lines(&base64_lines(value, which), 64, "\r\n")),
    ("base64 in lines, indented", |value, which| wrap_lines(&base64_lines(value, which), 76, "\n    ")),
    ("base64 in lines, in JSON", |value, which| wrap_lines(&base64_lines(value, which), 76, "\\n")),
    ("hex", |value, _| value.bytes().map(|byte| format!("{byte:02x}")).collect()),
    ("capital hex", |value, _| value.bytes().map(|byte| format!("{byte:02X}")).collect()),
    ("every byte in percent", |value, which| percent_encode(value, which, u64::MAX)),
    ("some bytes in percent", |value, which| percent_encode(value, which, which)),
    ("JSON escapes", |value, which| escape_chars(value, which, |c, _| format!("\\u{:04x}", u32::from(c)))),
    ("JSON", |value, _| value.replace('\\', "\\\\").replace('"', "\\\"").replace('/', "\\/")),
    ("bytes of C", |value, which| {
        let some = |(n, byte): (usize, u8)| match which >> (n % 64) & 1 {
            0 if byte != b'\\' => char::from(byte).to_string(),
            _ => format!("\\x{byte:02x}"),
        };
        if value.is_ascii() { value.bytes().enumerate().map(some).collect() } else { value.to_owned() }
    }),
    ("HTML", |value, which| {
        escape_chars(value, which, |c, hex| {
            if hex { format!("&#x{:x};", u32::from(c)) } else { format!("&#{};", u32::from(c)) }
        })
    }),
    ("named HTML", |value, _| {
        let named = value.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        named.replace('"', "&quot;").replace('\'', "&#39;")
    }),
];

fn insert_color_codes(value: &str, which: u64) -> String {
    const CODES: [&str; 6] = [
        "\u{1b}[01;31m\u{1b}[K",
        "\u{1b}[m\u{1b}[K",
        "\u{1b}[38;2;1;2;3m",
        "\u{9b}0m",
        "\u{1b}(B\u{1b}[m",
        "\u{1b}[0K",
    ];
    let before = |(n, c): (usize, char)| match which >> (n % 64) & 1 {
        1 => format!("{}{c}", CODES[n % CODES.len()]),
        _ => c.to_string(),
    };
    value.chars().enumerate().map(before).collect()
}

fn escape_chars(value: &str, which: u64, escape: fn(char, bool) -> String) -> String {
    let some = |(n, c): (usize, char)| match which >> (n % 64) & 1 {
        0 if !matches!(c, '\\' | '&') => c.to_string(),
        _ => escape(c, n % 2 == 0),
    };
    value.chars().enumerate().map(some).collect()
}

fn percent_encode(value: &str, which: u64, bytes: u64) -> String {
    let is_text = value.is_ascii();
    let some = |(n, byte): (usize, u8)| match bytes >> (n % 64) & 1 {
        0 if is_text && byte != b'%' => char::from(byte).to_string(),
        _ if which & 1 == 0 => format!("%{byte:02x}"),
        _ => format!("%{byte:02X}"),
    };
    value.bytes().enumerate().map(some).collect()
}

/// Encodes the value after some other bytes, so that all three offsets occur.
fn base64_encode(value: &str, which: u64, last: &[u8; 2]) -> String {
    let before = usize::try_from(which % 7).unwrap();
    let bytes = [&b"before:"[..before], value.as_bytes(), &b";after"[..before.min(6)]].concat();
    let letters: Vec<u8> = (b'A'..=b'Z').chain(b'a'..=b'z').chain(b'0'..=b'9').chain(*last).collect();
    let mut out = String::new();
    for group in bytes.chunks(3) {
        let code =
            (0..3).fold(0_usize, |code, at| code << 8 | usize::from(group.get(at).copied().unwrap_or(0)));
        for at in 0..4 {
            out.push(if at > group.len() { '=' } else { char::from(letters[code >> (18 - 6 * at) & 63]) });
        }
    }
    out
}

/// Encodes a value with enough text before it that the encoding spans a line break.
fn base64_lines(value: &str, which: u64) -> String {
    base64_encode(&format!("{}{value}", "x".repeat(usize::try_from(40 + which % 60).unwrap())), which, b"+/")
}

fn wrap_lines(text: &str, width: usize, end: &str) -> String {
    text.as_bytes().chunks(width).map(|line| std::str::from_utf8(line).unwrap()).collect::<Vec<_>>().join(end)
}

/// Reverses the encodings of this test and returns the characters that remain.
fn decode_all(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).collect::<String>().to_lowercase()
}

fn secret_values() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[a-zA-Z0-9_-]{12,60}",
        1 => r#"[a-zA-Z0-9 !"\#$%&'()*+,./:;<=>?@\[\\\]^`{|}~]{12,40}"#,
        1 => "[a-zäöß漢0-9]{10,20}",
    ]
    .prop_map(|value| format!("k{}9", value.trim()))
}

fn redactor_for(value: &str) -> Redactor {
    Redactor::new([("KEY".to_owned(), Secret::new(value.to_owned()).unwrap())])
}

fn redact_in_pieces(redactor: &Redactor, text: &str, cuts: &[usize]) -> String {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (text.len() + 1)).chain([0, text.len()]).collect();
    cuts.sort_unstable();
    let mut stream = redactor.byte_stream();
    let mut out = Vec::new();
    for pair in cuts.windows(2) {
        out.extend(stream.push(&text.as_bytes()[pair[0]..pair[1]]));
    }
    out.extend(stream.finish());
    String::from_utf8(out).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: case_count(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_encoding_and_no_split_shows_a_value(
        value in secret_values(),
        which in any::<u64>(),
        encoding in 0..ENCODINGS.len(),
        around in ("[ -~]{0,20}\n?", "\n?[ -~]{0,20}"),
        cuts in vec(any::<usize>(), 0..40),
    ) {
        let (name, encode) = ENCODINGS[encoding];
        let redactor = redactor_for(&value);
        let written = encode(&value, which);
        let text = format!("{} {written} {}", around.0, around.1);
        let masked = redactor.redact_text(&text).into_owned();
        prop_assert!(masked.contains("[secret KEY]"), "{name}: {text:?} gives {masked:?}");
        // One base64 character at each end also encodes bits of a neighbouring byte. Half of the value would
        // be a leak.
        let (left, all) = (decode_all(&masked), decode_all(&written));
        let half = all.len() / 2;
        let halves = all.as_bytes().windows(half.max(1));
        let mut halves = halves.map(|part| std::str::from_utf8(part).unwrap());
        let leaks = half > 4 && halves.any(|part| left.contains(part));
        let other = decode_all(&format!("{}{}", around.0, around.1));
        prop_assert!(name.contains("lines") || !leaks || other.len() > half, "{name}: {text:?} gives {masked:?}");
        prop_assert_eq!(redact_in_pieces(&redactor, &text, &cuts), masked, "{}: {:?}", name, text);
    }
}

/// Tests each encoding character by character: the output stays the same and contains no part of the value.
#[test]
fn each_encoding_is_found_letter_by_letter() {
    let value = "sk-ant-api03-planted/\"0123\"&more<456>";
    let redactor = redactor_for(value);
    for (name, encode) in ENCODINGS {
        for which in [0, 1, 2, 0x5555_5555_5555_5555, u64::MAX] {
            let text = format!("before {} after\n", encode(value, which));
            let masked = redactor.redact_text(&text);
            assert!(masked.contains("[secret KEY]"), "{name} {which}: {text:?} gives {masked:?}");
            let every: Vec<usize> = (0..text.len()).collect();
            assert_eq!(redact_in_pieces(&redactor, &text, &every), masked, "{name} {which}");
            assert_eq!(redactor.names_in(text.as_bytes()), ["KEY"], "{name} {which}");
        }
    }
}

/// The example of attack.md: `grep --color=always sk-ant .env`. The colour before the value stays unchanged.
#[test]
fn colours_hide_no_value() {
    let redactor = redactor_for("sk-ant-planted-0123456789");
    let line = "KEY=\u{1b}[01;31m\u{1b}[Ksk-ant\u{1b}[m\u{1b}[K-planted-0123456789\n";
    assert_eq!(redactor.redact_text(line), "KEY=\u{1b}[01;31m\u{1b}[K[secret KEY]\n");
    let ends = "sk-ant-planted-0123456789\u{1b}[0m and more";
    assert_eq!(redactor.redact_text(ends), "[secret KEY]\u{1b}[0m and more");
}

/// A stream keeps a limited number of bytes pending, whatever separates the characters.
#[test]
fn what_is_held_back_is_bounded() {
    let value = "sk-ant-planted-0123456789";
    for between in ["\u{1b}[0m", "\u{1b}[", "\n", "\\u001b[m", "%", "&", "&#000", "\u{9b}", "\r\n    "] {
        let mut stream = redactor_for(value).byte_stream();
        let (mut given, mut shown) = (0, 0);
        for letter in value.bytes().take(20) {
            given += 1;
            shown += stream.push(&[letter]).len();
            for _ in 0..200 {
                given += between.len();
                shown += stream.push(between.as_bytes()).len();
            }
            assert!(given - shown < 16 * 1024, "{between:?}: {} bytes are pending", given - shown);
        }
    }
}

/// Live output must not wait for a rare encoding: the end of an ordinary line appears with the line.
#[test]
fn the_end_of_an_ordinary_line_is_not_held_back() {
    let mut stream = redactor_for("sk-ant-planted-0123456789").text_stream();
    for line in
        ["listening on port 8080\n", "\u{1b}[32mok\u{1b}[0m 100% & done s\n", "C:\\x\\y\n", "a%b &c; 50%\r"]
    {
        assert_eq!(stream.push(line), line);
    }
}
