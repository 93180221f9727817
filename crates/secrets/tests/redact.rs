//! Compares the redactor with a plain restatement of its rule, with cuts at every position.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

use minke_secrets::{MIN_SECRET_BYTES, Redactor, Secret};
use proptest::collection::vec;
use proptest::prelude::*;

fn redactor_for(values: &[&str]) -> Redactor {
    let secret = |value: &str| Secret::new(value.to_owned()).unwrap();
    Redactor::new(values.iter().enumerate().map(|(n, value)| (format!("KEY_{n}"), secret(value))))
}

/// Decodes a JSON text into characters, each with its end in the source.
fn decode_chars(text: &str) -> Vec<(usize, usize, char)> {
    let all: Vec<char> = text.chars().collect();
    let mut read = Vec::new();
    let (mut index, mut at) = (0, 0);
    while index < all.len() {
        let hex: String = all.iter().skip(index + 2).take(4).collect();
        let simple = "\"\"\\\\//b\u{8}f\u{c}n\nr\rt\t".chars().collect::<Vec<_>>();
        let (count, letter) = match (all[index], all.get(index + 1)) {
            ('\\', Some('u')) if hex.len() == 4 && hex.chars().all(|c| c.is_ascii_hexdigit()) => {
                (6, char::from_u32(u32::from_str_radix(&hex, 16).unwrap()).unwrap_or('\u{fffd}'))
            }
            ('\\', Some(kind)) => match simple.chunks(2).find(|pair| pair[0] == *kind) {
                Some(pair) => (2, pair[1]),
                None => (1, '\\'),
            },
            (letter, _) => (1, letter),
        };
        let end = at + all.iter().skip(index).take(count).map(|c| c.len_utf8()).sum::<usize>();
        read.push((at, end, letter));
        (index, at) = (index + count, end);
    }
    read
}

/// The rule: every character of an occurrence of a value is masked, literal or escaped. Overlapping
/// occurrences become one mask, named after the first occurrence, or the longest of those with the same
/// start.
fn redact_by_rule(values: &[String], text: &str) -> String {
    let bytes = text.as_bytes();
    let read = decode_chars(text);
    let mut found: Vec<(usize, usize, usize)> = Vec::new();
    for (name, value) in values.iter().enumerate() {
        let here = (0..bytes.len()).filter(|at| bytes[*at..].starts_with(value.as_bytes()));
        found.extend(here.map(|at| (at, at + value.len(), name)));
        let wanted: Vec<char> = value.chars().collect();
        for place in read.windows(wanted.len()) {
            if place.iter().map(|(_, _, letter)| letter).eq(&wanted) {
                found.push((place[0].0, place[wanted.len() - 1].1, name));
            }
        }
    }
    found.sort_by_key(|(start, end, name)| (*start, std::cmp::Reverse(*end), *name));
    let mut out = Vec::new();
    let mut shown = 0;
    for (start, end, name) in found {
        if start >= shown {
            out.extend_from_slice(&bytes[shown..start]);
            out.extend_from_slice(format!("[secret KEY_{name}]").as_bytes());
        }
        shown = shown.max(end);
    }
    out.extend_from_slice(&bytes[shown..]);
    String::from_utf8(out).unwrap()
}

/// Values with common parts, so that shared prefixes, overlaps and nesting are frequent. Some look like
/// escapes.
fn secret_values() -> impl Strategy<Value = Vec<String>> {
    vec(r"[ab]{8,12}|(ab){4,6}|a{8,11}|ä[aß]{6,9}|[\\u06]{8,10}|(0061){2,3}|b(\\u006){2,3}1", 1..4)
}

/// Writes some characters of a text as escapes.
fn escape_some_chars(text: &str, which: u32) -> String {
    let write = |(n, c): (usize, char)| match which >> (n % 32) & 1 {
        1 => c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")).collect(),
        _ => c.to_string(),
    };
    text.chars().enumerate().map(write).collect()
}

/// Text made of pieces of the values and other text.
fn text_around(values: Vec<String>) -> impl Strategy<Value = (Vec<String>, String)> {
    let escapes = prop_oneof![Just(0), Just(u32::MAX), any::<u32>()];
    let piece = (0..values.len(), 0usize..13, 0usize..13, r"[abäß ]{0,3}|\\u0|\\", escapes);
    (Just(values), vec(piece, 0..8)).prop_map(|(values, pieces)| {
        let mut text = String::new();
        for (which, from, to, other, escapes) in pieces {
            text.extend(values[which].chars().skip(from.min(to)).take(from.max(to) - from.min(to)));
            text.push_str(&other);
            text.push_str(&escape_some_chars(&values[which], escapes));
        }
        (values, text)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_split_gives_the_same_and_shows_nothing(
        (values, text) in secret_values().prop_flat_map(text_around),
        cuts in vec(0usize..600, 0..60),
    ) {
        let redactor = redactor_for(&values.iter().map(String::as_str).collect::<Vec<_>>());
        let whole = redact_by_rule(&values, &text);
        prop_assert_eq!(redactor.redact_text(&text).into_owned(), whole.clone());
        prop_assert_eq!(redactor.redact_bytes(text.as_bytes()).into_owned(), whole.as_bytes());

        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(text.len())).collect();
        cuts.extend([0, text.len()]);
        cuts.sort_unstable();
        let mut stream = redactor.byte_stream();
        let mut out = Vec::new();
        for pair in cuts.windows(2) {
            out.extend(stream.push(&text.as_bytes()[pair[0]..pair[1]]));
            // The output so far is a prefix of the complete output.
            prop_assert!(whole.as_bytes().starts_with(&out));
        }
        out.extend(stream.finish());
        prop_assert_eq!(String::from_utf8(out).unwrap(), whole.clone());
        prop_assert_eq!(stream.has_redacted(), whole != text);

        let mut stream = redactor.text_stream();
        let mut shown = String::new();
        for letter in text.chars() {
            shown += &stream.push(letter.encode_utf8(&mut [0; 4]));
            prop_assert!(whole.starts_with(&shown));
        }
        shown += &stream.finish();
        prop_assert_eq!(shown, whole);
    }

    #[test]
    fn text_without_a_value_is_untouched_and_comes_out_whole(pieces in vec("[ -~äß]{0,20}", 0..20)) {
        let redactor = redactor_for(&["sk-ant-planted-0123456789"]);
        let mut stream = redactor.text_stream();
        let mut out: String = pieces.iter().map(|piece| stream.push(piece)).collect();
        out += &stream.finish();
        prop_assert_eq!(out, pieces.concat());
        prop_assert!(!stream.has_redacted());
    }
}

#[test]
fn ordinary_text_is_not_held_back() {
    let mut stream = redactor_for(&["sk-ant-planted-0123456789"]).text_stream();
    assert_eq!(stream.push("I will read the file."), "I will read the file.");
    // Only a possible start of a value stays pending.
    assert_eq!(stream.push(" It says: sk-"), " It says: ");
    assert_eq!(stream.push("ant-planted-01"), "");
    assert_eq!(stream.push("x"), "sk-ant-planted-01x");
    assert_eq!(stream.push("sk-ant-planted-0123456789"), "[secret KEY_0]");
    assert!(stream.has_redacted());
}

#[test]
fn an_escape_waits_until_it_is_whole_and_no_longer() {
    let mut stream = redactor_for(&["sk-ant-planted-0123456789"]).text_stream();
    assert_eq!(stream.push("a line\\"), "a line");
    assert_eq!(stream.push("n"), "\\n");
    assert_eq!(stream.push("\\u00"), "");
    assert_eq!(stream.push("7"), "");
    assert_eq!(stream.push("3k"), "");
    assert_eq!(stream.push(" it was not"), "\\u0073k it was not");
    assert_eq!(stream.push("C:\\x\\"), "C:\\x");
    assert_eq!(stream.finish(), "\\");
}

#[test]
fn a_run_without_end_does_not_fill_the_memory() {
    let mut stream = redactor_for(&["abababab"]).byte_stream();
    let mut shown = Vec::new();
    for _ in 0..10_000 {
        shown.extend(stream.push(b"ab"));
    }
    shown.extend(stream.push(b"!"));
    assert_eq!(shown, b"[secret KEY_0]!");
}

#[test]
fn a_value_is_found_however_json_and_addresses_write_it() {
    let redactor = redactor_for(&[r#"a/b+c="d\e"#]);
    for written in [
        r#"a/b+c="d\e"#,
        r#"a/b+c=\"d\\e"#,
        r#"a\/b+c=\"d\\e"#,
        r#"\u0061\u002Fb\u002bc=\u0022d\u005Ce"#,
        "a%2Fb%2Bc%3D%22d%5Ce",
        "a%2fb%2bc%3d%22d%5ce",
    ] {
        assert_eq!(redactor.redact_text(&format!("<{written}>")), "<[secret KEY_0]>", "{written}");
    }
}

#[test]
fn a_short_value_is_not_looked_for_and_that_is_said() {
    let redactor = redactor_for(&["1234567", "12345678"]);
    assert_eq!("1234567".len(), MIN_SECRET_BYTES - 1);
    assert_eq!(redactor.too_short(), ["KEY_0"]);
    assert_eq!(redactor.redact_text("1234567 12345678"), "1234567 [secret KEY_1]");
    assert!(!redactor.is_empty());
    assert!(Redactor::default().is_empty());
}

#[test]
fn a_name_cannot_break_the_text_in_which_it_stands() {
    let secret = Secret::new("planted-value".into()).unwrap();
    let redactor = Redactor::new([("/home/me/\"key\"\n".to_owned(), secret)]);
    assert_eq!(
        redactor.redact_text(r#"{"error":"planted-value"}"#),
        r#"{"error":"[secret /home/me/_key__]"}"#
    );
    assert!(!format!("{redactor:?}").contains("planted"), "{redactor:?}");
}

#[test]
fn values_and_what_stands_for_them_are_told_by_name() {
    let one = ("env A_KEY".to_owned(), Secret::new("planted-one-123".to_owned()).unwrap());
    let two = ("store/two".to_owned(), Secret::new("planted-\"two\"-456".to_owned()).unwrap());
    let redactor = Redactor::new([one, two]);
    let text = r#"{"a":"planted-\"two\"-456","b":"\u0070lanted-one-123 planted-one-123"}"#;
    assert_eq!(redactor.names_in(text.as_bytes()), ["store/two", "env_A_KEY"]);
    assert_eq!(redactor.names_in(b"planted-one-12"), Vec::<String>::new());
    let masked = redactor.redact_text(text);
    assert_eq!(redactor.names_in(masked.as_bytes()), Vec::<String>::new());
    assert_eq!(redactor.masks_in(&masked), ["env_A_KEY", "store/two"]);
    assert_eq!(redactor.masks_in("[secret other] [secret env_A_KEY"), Vec::<String>::new());
    assert_eq!(Redactor::default().masks_in(&masked), Vec::<String>::new());
}
