//! Markdown at three widths, and growing text: the same lines at a cost proportional to its length.

use minke_tui::paint::{MarkdownStream, StyleRole, Theme, ThemeName};
use ratatui::style::{Color, Modifier};
use ratatui::text::Line;

use crate::support::{DiceRng, assert_golden, lines_text};

fn markdown_lines(source: &str, width: u16, theme: Theme) -> Vec<Line<'static>> {
    let mut stream = MarkdownStream::new(width, theme);
    stream.push_text(source);
    stream.all_lines(false).to_vec()
}

fn markdown_text(said: &str, width: u16) -> String {
    lines_text(&markdown_lines(said, width, Theme::default()))
}

const PAGE: &str = include_str!("page.md");

#[test]
fn a_page_at_three_widths() {
    for width in [120, 80, 40] {
        assert_golden(&format!("markdown-{width}"), &markdown_text(PAGE, width));
    }
}

#[test]
fn a_page_for_people_who_listen() {
    assert_golden("markdown-plain", &lines_text(&markdown_lines(PAGE, 80, Theme::screen_reader())));
}

#[test]
fn without_colours_nothing_is_coloured() {
    for line in markdown_lines(PAGE, 80, Theme::new(ThemeName::None)) {
        for span in line.spans {
            assert_eq!((span.style.fg, span.style.bg), (None, None), "{span:?}");
        }
    }
}

#[test]
fn the_default_theme_has_only_the_sixteen_colours() {
    let mut coloured = 0;
    for line in markdown_lines(PAGE, 80, Theme::default()) {
        for span in line.spans {
            for colour in [span.style.fg, span.style.bg].into_iter().flatten() {
                coloured += 1;
                assert!(!matches!(colour, Color::Rgb(..) | Color::Indexed(_)), "{span:?}");
            }
        }
    }
    assert!(coloured > 10, "{coloured}");
}

#[test]
fn emphasis_and_code_have_their_styles() {
    let theme = Theme::default();
    let all = markdown_lines("a **b** *c* ~~d~~ `e` [f](https://g.example)", 80, theme);
    let style = |source: &str| {
        all[0]
            .spans
            .iter()
            .find(|span| span.content.contains(source))
            .map(|span| span.style)
            .expect("it is there")
    };
    assert!(style("b").add_modifier.contains(Modifier::BOLD));
    assert!(style("c").add_modifier.contains(Modifier::ITALIC));
    assert!(style("d").add_modifier.contains(Modifier::CROSSED_OUT));
    assert_eq!(style("e").fg, theme.role_style(StyleRole::Code).fg);
    assert_eq!(style("f").fg, theme.role_style(StyleRole::Link).fg);
    assert_eq!(lines_text(&all), "a b c d e f (https://g.example)\n");
}

#[test]
fn code_has_colours_and_no_decoration() {
    let theme = Theme::default();
    let all = markdown_lines("```rust\nfn main() {\n    let x = \"s\"; // c\n}\n```\n", 80, theme);
    assert_eq!(lines_text(&all), "┄┄ rust\nfn main() {\n    let x = \"s\"; // c\n}\n┄┄\n");
    let style = |source: &str| {
        all.iter()
            .flat_map(|line| &line.spans)
            .find(|span| span.content.trim() == source)
            .map(|span| span.style)
    };
    assert_eq!(style("fn"), Some(theme.role_style(StyleRole::Keyword)));
    assert_eq!(style("main"), Some(theme.role_style(StyleRole::Function)));
    assert_eq!(style("// c"), Some(theme.role_style(StyleRole::Comment)));
}

#[test]
fn code_without_end_is_shown_without_colours() {
    let long = format!("```rust\n{}```\n", "let x = 1;\n".repeat(20_000));
    let all = markdown_lines(&long, 80, Theme::default());
    assert_eq!(all.len(), 20_002);
    assert!(all[1].spans.len() > 1);
    assert_eq!(all[19_000].spans.len(), 1);
}

#[test]
fn a_link_cannot_say_one_place_and_mean_another() {
    assert_eq!(
        markdown_text("[https://good.example](https://bad.example)", 80),
        "https://good.example (https://bad.example)\n"
    );
    assert_eq!(markdown_text("<https://good.example>", 80), "https://good.example\n");
    assert_eq!(markdown_text("[x](<a\u{202e}b>)", 80), "x (ab)\n");
    assert_eq!(markdown_text("[x](a&#x202e;b)", 80), "x (a<U+202E>b)\n");
}

#[test]
fn what_the_parser_decodes_is_cleaned_too() {
    assert_eq!(markdown_text("a&#27;[31mb&#x9b;2Jc&#7;", 80), "a[31mb2Jc\n");
    assert_eq!(markdown_text("`x`&#x202e;y", 80), "xy\n");
}

#[test]
fn a_narrow_table_is_told_as_records() {
    let table = "| name | what it is for | since |\n|---|---|---|\n| alpha | the first of all | 1 |\n| beta | second | 2 |\n";
    assert_golden("table-60", &markdown_text(table, 60));
    assert_golden("table-24", &markdown_text(table, 24));
    assert_golden("table-12", &markdown_text(table, 12));
}

#[test]
fn while_it_comes_nothing_jumps() {
    let mut stream = MarkdownStream::new(80, Theme::default());
    stream.push_text("Some words\n-");
    assert_eq!(lines_text(stream.all_lines(true)), "Some words\n");
    assert_eq!(lines_text(&markdown_lines("Some words\n-", 80, Theme::default())), "## Some words\n");
    stream.push_text(" item\n\n```ru");
    assert_eq!(lines_text(stream.all_lines(true)), "Some words\n\n• item\n\n┄┄ ru\n┄┄\n");
    stream.push_text("st\nlet a");
    assert_eq!(lines_text(stream.all_lines(true)), "Some words\n\n• item\n\n┄┄ rust\nlet a\n");
    stream.push_text(" = 1;\n``");
    assert_eq!(lines_text(stream.all_lines(true)), "Some words\n\n• item\n\n┄┄ rust\nlet a = 1;\n");
    stream.push_text("`\n");
    assert_eq!(lines_text(stream.all_lines(true)), "Some words\n\n• item\n\n┄┄ rust\nlet a = 1;\n┄┄\n");
}

/// Random Markdown with valid and invalid parts.
fn random_markdown(dice: &mut DiceRng) -> String {
    const PARTS: [&str; 34] = [
        "word ",
        "words and words ",
        "\n",
        "\n\n",
        "\n\n\n",
        "# ",
        "- ",
        "1. ",
        "  - ",
        "    ",
        "> ",
        "```\n",
        "```rust\n",
        "~~~\n",
        "`code`",
        "**bold** ",
        "*x",
        "| a | b |\n|---|---|\n",
        "| c | d |\n",
        "[l](http://x) ",
        "[r]: http://y\n",
        "[^1]",
        "\n[^1]: note\n",
        "---\n",
        "===\n",
        "<!-- ",
        "-->",
        "<pre>\n",
        "</pre>\n",
        "- [x] done\n",
        "\r\n",
        "\t",
        "漢字👩‍💻",
        "\u{1b}[31m",
    ];
    (0..dice.next_below(40)).map(|_| dice.choose_from(&PARTS)).collect()
}

#[test]
fn pieces_do_not_matter() {
    for seed in 0..800 {
        let mut dice = DiceRng::new(seed);
        let source = random_markdown(&mut dice);
        let width = u16::try_from(10 + dice.next_below(80)).unwrap();
        let whole = markdown_lines(&source, width, Theme::default());
        let mut stream = MarkdownStream::new(width, Theme::default());
        let mut rest = source.as_str();
        while !rest.is_empty() {
            let at = (1 + dice.next_below(12)).min(rest.len());
            let at = (at..=rest.len()).find(|at| rest.is_char_boundary(*at)).unwrap();
            let (piece, left) = rest.split_at(at);
            stream.push_text(piece);
            if dice.next_below(3) == 0 {
                stream.all_lines(true);
            }
            rest = left;
        }
        assert_eq!(lines_text(stream.all_lines(false)), lines_text(&whole), "seed {seed}: {source:?}");
        assert_eq!(stream.all_lines(false), whole, "seed {seed}: {source:?}");
    }
}

#[test]
fn new_words_cost_about_themselves() {
    let part = "Some words of a paragraph, and a few more of them.\n\n```rust\nlet x = 1;\nlet y = 2;\n```\n\n- a\n- b\n\n";
    let source = part.repeat(200);
    let mut stream = MarkdownStream::new(80, Theme::default());
    let mut pieces = 0;
    for piece in source.as_bytes().chunks(16) {
        stream.push_text(std::str::from_utf8(piece).unwrap());
        stream.all_lines(true);
        pieces += 1;
    }
    let whole = source.len() as u64;
    // Each piece only parses its own stretch again: the longest stretch here has 60 bytes.
    let most = whole + pieces * 80;
    assert!(
        stream.parsed_bytes() < most,
        "{} bytes were read for {whole} in {pieces} pieces",
        stream.parsed_bytes()
    );
}

#[test]
fn a_list_without_end_is_not_read_from_its_beginning_each_time() {
    let source = "- an item of a list that does not end\n\n".repeat(4000);
    let mut stream = MarkdownStream::new(80, Theme::default());
    for (at, piece) in source.as_bytes().chunks(40).enumerate() {
        stream.push_text(std::str::from_utf8(piece).unwrap());
        if at % 10 == 0 {
            stream.all_lines(true);
        }
    }
    let most = (source.len() / 400 * 17 * 1024 + source.len()) as u64;
    assert!(stream.parsed_bytes() < most, "{}", stream.parsed_bytes());
}

#[test]
fn a_grammar_that_takes_too_long_is_given_up() {
    let took = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        u128::try_from(now.tv_sec).unwrap() * 1000 + u128::try_from(now.tv_nsec).unwrap() / 1_000_000
    };
    let line = "((a".repeat(99);
    let source = format!("```sv\n{}```\n", format!("{line}\n").repeat(100));
    let begin = took();
    let first = markdown_lines(&source, 80, Theme::default());
    let second = markdown_lines(&source, 80, Theme::default());
    let ms = took() - begin;
    println!("{ms} ms of the processor");
    assert!(ms < 5_000, "{ms} ms for code that was made to take long");
    assert_eq!(lines_text(&first), lines_text(&second));
    assert_eq!(lines_text(&first).matches('a').count(), 9900);
}

#[test]
fn a_table_does_not_grow_by_what_nobody_wrote() {
    let table = format!("{}|\n{}|\n{}", "|a".repeat(300), "|-".repeat(300), "|x|\n".repeat(300));
    assert_eq!(markdown_lines(&table, 80, Theme::default()).len(), 599);
}
