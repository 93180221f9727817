//! Read: results for every kind of path.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use minke_files::{FilesConfig, ScopedFiles};
use minke_record::{Class, Scope};
use minke_tool::{CommandEventSink, Tool, ToolContext, ToolError, ToolInvocation, ToolOutput};
use tempfile::TempDir;

fn read_tool(cwd: &Path) -> Arc<dyn Tool> {
    let config = FilesConfig { scope: test_place(cwd).scope, ..FilesConfig::default() };
    let files = Arc::new(ScopedFiles::new(config).expect("the scope is valid"));
    minke_tools::file_tools(&files)
        .into_iter()
        .find(|tool| tool.spec().name == "Read")
        .expect("the tool exists")
}

fn test_call(place: ToolContext) -> ToolInvocation {
    ToolInvocation::new("c", place, CommandEventSink::discard())
}

fn test_place(cwd: &Path) -> ToolContext {
    ToolContext { cwd: cwd.to_owned(), scope: Scope::writable(cwd.to_string_lossy()) }
}

async fn run_read(home: &TempDir, arguments: &str) -> Result<ToolOutput, ToolError> {
    let place = test_place(home.path());
    let (tool, arguments) = (read_tool(home.path()), arguments.to_owned());
    if let Err(e) = tool.prepare(&arguments, &place) {
        assert_eq!(
            tool.execute(&arguments, &test_call(place.clone())).await,
            Err(e.clone()),
            "run and prepare return different errors"
        );
        return Err(e);
    }
    tool.execute(&arguments, &test_call(place.clone())).await
}

async fn read_failed(home: &TempDir, arguments: &str) -> String {
    match run_read(home, arguments).await {
        Err(ToolError::ExecutionFailed(text)) => text,
        other => panic!("{arguments}: {other:?}"),
    }
}

async fn read_invalid(home: &TempDir, arguments: &str) -> String {
    match run_read(home, arguments).await {
        Err(ToolError::InvalidArguments(text)) => text,
        other => panic!("{arguments}: {other:?}"),
    }
}

#[tokio::test]
async fn lines_come_with_their_numbers() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("a.txt"), "one\ntwo\r\n\nfour").unwrap();
    let got = run_read(&home, r#"{"file_path":"a.txt"}"#).await.unwrap();
    assert_eq!(got.content.unwrap(), "     1\tone\n     2\ttwo\n     3\t\n     4\tfour\n");
    assert!(got.summary.ends_with("a.txt: lines 1 to 4 of 4; 1 of 3 lines end in CRLF"), "{}", got.summary);
    let got = run_read(&home, r#"{"file_path":"a.txt","offset":2,"limit":1}"#).await.unwrap();
    let content = got.content.unwrap();
    assert!(content.starts_with("     2\ttwo\n[lines 2 to 2 of 4 are shown, 5 bytes"), "{content}");
    assert!(content.contains("continue with offset 3"), "{content}");
}

#[tokio::test]
async fn the_action_names_the_absolute_path_and_the_class_is_pure() {
    let home = tempfile::tempdir().unwrap();
    let action =
        read_tool(home.path()).prepare(r#"{"file_path":"./d/a.txt"}"#, &test_place(home.path())).unwrap();
    assert_eq!(action.reads, [home.path().join("d/a.txt").to_string_lossy()]);
    assert!(action.writes.is_empty() && !action.side_effects);
    assert_eq!(read_tool(home.path()).class(), Class::Pure);
}

#[tokio::test]
async fn what_is_not_a_text_file_is_refused_with_its_kind() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    fs::create_dir(at("dir")).unwrap();
    fs::write(at("pic"), b"\x89PNG\r\n\x1a\n....").unwrap();
    fs::write(at("pdf"), b"%PDF-1.7\n").unwrap();
    fs::write(at("data"), b"abc\0def").unwrap();
    let made = std::process::Command::new("mkfifo").arg(at("fifo")).status().unwrap();
    assert!(made.success());
    let _listener = std::os::unix::net::UnixListener::bind(at("sock")).unwrap();
    let cases = [
        ("dir", "is a directory"),
        ("none", "there is no such file"),
        ("pic", "image is damaged or too large"),
        ("pdf", "not text but a PDF document, 9 bytes"),
        ("data", "binary data of an unknown kind, 7 bytes"),
        ("fifo", "is a FIFO"),
        ("sock", "is a socket"),
        ("/dev/null", "outside of the scope"),
        ("pic/x", "not a directory"),
    ];
    for (name, why) in cases {
        let text = read_failed(&home, &format!(r#"{{"file_path":"{name}"}}"#)).await;
        assert!(text.contains(why) && text.contains(name), "{name}: {text}");
    }
}

#[tokio::test]
async fn bad_arguments_are_quoted() {
    let home = tempfile::tempdir().unwrap();
    let cases = [
        (r#"{"file_path":"a","ofset":1}"#, "`ofset`"),
        (r#"{}"#, "`file_path`"),
        (r#"{"file_path":"a","offset":-1}"#, "-1"),
        (r#"{"file_path":"a","offset":0}"#, "`offset` is 0"),
        (r#"{"file_path":"a","limit":0}"#, "`limit` is 0"),
        (r#"{"file_path":""}"#, "`file_path`"),
        (r#"{"file_path":"a/../../b"}"#, "`..`"),
        (r#"{"file_path":"a\u0000b"}"#, "not a path"),
        (r#"{"file_path":"a""#, "EOF"),
    ];
    for (arguments, why) in cases {
        let text = read_invalid(&home, arguments).await;
        assert!(text.contains(why), "{arguments}: {text}");
    }
}

#[tokio::test]
async fn a_long_file_is_cut_and_says_so() {
    let home = tempfile::tempdir().unwrap();
    let lines: String = (1..=5_000).map(|n| format!("line {n} äöü {}\n", "x".repeat(40))).collect();
    fs::write(home.path().join("long"), &lines).unwrap();
    let mut offset = 1;
    let mut seen = String::new();
    loop {
        let got = run_read(&home, &format!(r#"{{"file_path":"long","offset":{offset}}}"#)).await.unwrap();
        let content = got.content.unwrap();
        assert!(content.len() <= 64 * 1024, "{}", content.len());
        assert!(got.summary.len() <= 200);
        for line in content.lines().filter(|line| !line.starts_with('[')) {
            seen.push_str(line.split_once('\t').unwrap().1);
            seen.push('\n');
        }
        let Some((_, rest)) = content.split_once("continue with offset ") else { break };
        let left: usize =
            content.split_once("are shown, ").unwrap().1.split(' ').next().unwrap().parse().unwrap();
        assert_eq!(left, lines.len() - seen.len());
        offset = rest.trim_end_matches("]\n").parse().unwrap();
    }
    assert!(seen == lines, "every line was shown once, in order");
}

#[tokio::test]
async fn one_endless_line_is_cut_on_a_character() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("line"), "ä".repeat(200_000)).unwrap();
    let content = run_read(&home, r#"{"file_path":"line"}"#).await.unwrap().content.unwrap();
    assert!(content.len() <= 64 * 1024 && content.contains("[line 1 is cut; "), "{}", content.len());
    assert!(!content.contains('\u{fffd}'));
}

#[tokio::test]
async fn an_empty_file_and_an_offset_past_the_end_are_told() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("empty"), "").unwrap();
    fs::write(home.path().join("two"), "1\n2\n").unwrap();
    let got = run_read(&home, r#"{"file_path":"empty"}"#).await.unwrap();
    assert!(got.summary.ends_with("empty is empty") && got.content.is_none());
    let text = read_failed(&home, r#"{"file_path":"two","offset":3}"#).await;
    assert!(text.contains("it has 2 lines"), "{text}");
}

#[tokio::test]
async fn text_that_is_not_utf8_is_shown_and_said() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("latin"), b"caf\xe9\n").unwrap();
    let got = run_read(&home, r#"{"file_path":"latin"}"#).await.unwrap();
    assert!(got.summary.contains("not UTF-8"), "{}", got.summary);
    assert_eq!(got.content.unwrap(), "     1\tcafé\n");
}

#[tokio::test]
async fn a_huge_sparse_file_ends_soon() {
    let home = tempfile::tempdir().unwrap();
    let file = fs::File::create(home.path().join("sparse")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &[b'a'; 9_000], 0).unwrap();
    file.set_len(1 << 40).unwrap();
    let content = run_read(&home, r#"{"file_path":"sparse"}"#).await.unwrap().content.unwrap();
    assert!(content.len() <= 64 * 1024 && content.contains("of at least 1 are shown"), "{}", content.len());
}

#[tokio::test]
async fn every_encoding_that_is_known_is_shown_as_text() {
    let home = tempfile::tempdir().unwrap();
    let utf16 = |text: &str| -> Vec<u8> { text.encode_utf16().flat_map(u16::to_le_bytes).collect() };
    for (name, bytes, said) in [
        ("mark", b"\xef\xbb\xbfa\xc3\xa4\nb\n".to_vec(), "byte order mark"),
        ("wide", utf16("\u{feff}aä\nb\n"), "UTF-16LE"),
        ("crlf", b"a\xc3\xa4\r\nb\r\n".to_vec(), "CRLF line ends"),
        ("cr", b"a\xc3\xa4\rb\r".to_vec(), "CR line ends"),
        ("plain", b"a\xc3\xa4\nb\n".to_vec(), "of 2"),
    ] {
        fs::write(home.path().join(name), bytes).unwrap();
        let got = run_read(&home, &format!(r#"{{"file_path":"{name}"}}"#)).await.unwrap();
        assert_eq!(got.content.unwrap(), "     1\taä\n     2\tb\n", "{name}");
        assert!(got.summary.ends_with(said), "{name}: {}", got.summary);
    }
    fs::write(home.path().join("stray"), b"\xc3\xa4 \xc3\xb6 \xff\n").unwrap();
    let got = run_read(&home, r#"{"file_path":"stray"}"#).await.unwrap();
    assert_eq!(got.content.unwrap(), "     1\tä ö \u{fffd}\n");
    assert!(got.summary.contains("undecodable bytes are shown as"), "{}", got.summary);
}

fn sample_image(width: u32, height: u32, format: image::ImageFormat) -> Vec<u8> {
    let mut bytes = Vec::new();
    let noise = image::RgbImage::from_fn(width, height, |x, y| {
        let n = x.wrapping_mul(2_654_435_761).wrapping_add(y.wrapping_mul(40_503));
        image::Rgb([n as u8, (n >> 8) as u8, (n >> 16) as u8])
    });
    let picture = image::DynamicImage::from(noise);
    picture.write_to(&mut std::io::Cursor::new(&mut bytes), format).expect("writing to memory cannot fail");
    bytes
}

#[tokio::test]
async fn an_image_is_shown_in_a_size_that_a_model_takes() {
    use image::ImageFormat::{Gif, Jpeg, Png, WebP};
    let home = tempfile::tempdir().unwrap();
    for (format, media_type) in
        [(Png, "image/png"), (Jpeg, "image/jpeg"), (Gif, "image/gif"), (WebP, "image/webp")]
    {
        let bytes = sample_image(40, 30, format);
        // The content determines the format, not the name.
        fs::write(home.path().join("p.txt"), &bytes).unwrap();
        let got = run_read(&home, r#"{"file_path":"p.txt"}"#).await.unwrap();
        assert!(got.summary.contains("40 × 30 pixels") && got.content.is_none(), "{}", got.summary);
        assert_eq!(got.images.len(), 1);
        assert_eq!((got.images[0].media_type.as_str(), &got.images[0].bytes), (media_type, &bytes));
        // A model would reject half an image, and then the whole conversation.
        fs::write(home.path().join("half"), &bytes[..bytes.len() / 2]).unwrap();
        match run_read(&home, r#"{"file_path":"half"}"#).await {
            Err(ToolError::ExecutionFailed(text)) => assert!(text.contains("damaged"), "{format:?}: {text}"),
            // A partial JPEG can be shown after encoding it again.
            Ok(got) => assert!(format == Jpeg && got.images[0].media_type == "image/png", "{format:?}"),
            Err(other) => panic!("{format:?}: {other:?}"),
        }
    }
    fs::write(home.path().join("wide"), sample_image(3_000, 20, Png)).unwrap();
    let got = run_read(&home, r#"{"file_path":"wide"}"#).await.unwrap();
    assert!(got.summary.contains("3000 × 20 pixels, shown as 1568 × 10"), "{}", got.summary);
    let small = image::load_from_memory(&got.images[0].bytes).unwrap();
    assert_eq!((small.width(), small.height()), (1_568, 10));
    // A few bytes that claim a huge size.
    let mut bomb = sample_image(8, 8, Png);
    bomb[16..24].copy_from_slice(&[0, 0, 0xff, 0xff, 0, 0, 0xff, 0xff]);
    fs::write(home.path().join("bomb"), bomb).unwrap();
    assert!(read_failed(&home, r#"{"file_path":"bomb"}"#).await.contains("damaged or too large"));
}
