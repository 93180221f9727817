//! Markdown: how it looks at three widths, and that a text which grows looks the same and costs about itself.

use minke_tui::paint::{Role, Stream, Theme, ThemeName};
use ratatui::style::{Color, Modifier};
use ratatui::text::Line;

use crate::support::{Dice, golden, text};

fn lines(said: &str, width: u16, theme: Theme) -> Vec<Line<'static>> {
    let mut stream = Stream::new(width, theme);
    stream.push(said);
    stream.lines(false).to_vec()
}

fn shown(said: &str, width: u16) -> String {
    text(&lines(said, width, Theme::default()))
}

const PAGE: &str = include_str!("page.md");

#[test]
fn a_page_at_three_widths() {
    for width in [120, 80, 40] {
        golden(&format!("markdown-{width}"), &shown(PAGE, width));
    }
}

#[test]
fn a_page_for_people_who_listen() {
    golden("markdown-plain", &text(&lines(PAGE, 80, Theme::plain())));
}

#[test]
fn without_colours_nothing_is_coloured() {
    for line in lines(PAGE, 80, Theme::new(ThemeName::None)) {
        for span in line.spans {
            assert_eq!((span.style.fg, span.style.bg), (None, None), "{span:?}");
        }
    }
}

#[test]
fn the_default_theme_has_only_the_sixteen_colours() {
    let mut coloured = 0;
    for line in lines(PAGE, 80, Theme::default()) {
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
    let all = lines("a **b** *c* ~~d~~ `e` [f](https://g.example)", 80, theme);
    let style = |said: &str| {
        all[0]
            .spans
            .iter()
            .find(|span| span.content.contains(said))
            .map(|span| span.style)
            .expect("it is there")
    };
    assert!(style("b").add_modifier.contains(Modifier::BOLD));
    assert!(style("c").add_modifier.contains(Modifier::ITALIC));
    assert!(style("d").add_modifier.contains(Modifier::CROSSED_OUT));
    assert_eq!(style("e").fg, theme.style(Role::Code).fg);
    assert_eq!(style("f").fg, theme.style(Role::Link).fg);
    assert_eq!(text(&all), "a b c d e f (https://g.example)\n");
}

#[test]
fn code_has_colours_and_no_decoration() {
    let theme = Theme::default();
    let all = lines("```rust\nfn main() {\n    let x = \"s\"; // c\n}\n```\n", 80, theme);
    assert_eq!(text(&all), "┄┄ rust\nfn main() {\n    let x = \"s\"; // c\n}\n┄┄\n");
    let style = |said: &str| {
        all.iter()
            .flat_map(|line| &line.spans)
            .find(|span| span.content.trim() == said)
            .map(|span| span.style)
    };
    assert_eq!(style("fn"), Some(theme.style(Role::Keyword)));
    assert_eq!(style("main"), Some(theme.style(Role::Function)));
    assert_eq!(style("// c"), Some(theme.style(Role::Comment)));
}

#[test]
fn code_without_end_is_shown_without_colours() {
    let long = format!("```rust\n{}```\n", "let x = 1;\n".repeat(20_000));
    let all = lines(&long, 80, Theme::default());
    assert_eq!(all.len(), 20_002);
    assert!(all[1].spans.len() > 1);
    assert_eq!(all[19_000].spans.len(), 1);
}

#[test]
fn a_link_cannot_say_one_place_and_mean_another() {
    assert_eq!(
        shown("[https://good.example](https://bad.example)", 80),
        "https://good.example (https://bad.example)\n"
    );
    assert_eq!(shown("<https://good.example>", 80), "https://good.example\n");
    assert_eq!(shown("[x](<a\u{202e}b>)", 80), "x (ab)\n");
    assert_eq!(shown("[x](a&#x202e;b)", 80), "x (a<U+202E>b)\n");
}

#[test]
fn what_the_parser_decodes_is_cleaned_too() {
    assert_eq!(shown("a&#27;[31mb&#x9b;2Jc&#7;", 80), "a[31mb2Jc\n");
    assert_eq!(shown("`x`&#x202e;y", 80), "xy\n");
}

#[test]
fn a_narrow_table_is_told_as_records() {
    let table = "| name | what it is for | since |\n|---|---|---|\n| alpha | the first of all | 1 |\n| beta | second | 2 |\n";
    golden("table-60", &shown(table, 60));
    golden("table-24", &shown(table, 24));
    golden("table-12", &shown(table, 12));
}

#[test]
fn while_it_comes_nothing_jumps() {
    let mut stream = Stream::new(80, Theme::default());
    stream.push("Some words\n-");
    assert_eq!(text(stream.lines(true)), "Some words\n");
    assert_eq!(text(&lines("Some words\n-", 80, Theme::default())), "## Some words\n");
    stream.push(" item\n\n```ru");
    assert_eq!(text(stream.lines(true)), "Some words\n\n• item\n\n┄┄ ru\n┄┄\n");
    stream.push("st\nlet a");
    assert_eq!(text(stream.lines(true)), "Some words\n\n• item\n\n┄┄ rust\nlet a\n");
    stream.push(" = 1;\n``");
    assert_eq!(text(stream.lines(true)), "Some words\n\n• item\n\n┄┄ rust\nlet a = 1;\n");
    stream.push("`\n");
    assert_eq!(text(stream.lines(true)), "Some words\n\n• item\n\n┄┄ rust\nlet a = 1;\n┄┄\n");
}

/// Markdown by dice: everything a page can hold, and things it should not.
fn thrown(dice: &mut Dice) -> String {
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
    (0..dice.below(40)).map(|_| dice.of(&PARTS)).collect()
}

#[test]
fn pieces_do_not_matter() {
    for seed in 0..800 {
        let mut dice = Dice::new(seed);
        let said = thrown(&mut dice);
        let width = u16::try_from(10 + dice.below(80)).unwrap();
        let whole = lines(&said, width, Theme::default());
        let mut stream = Stream::new(width, Theme::default());
        let mut rest = said.as_str();
        while !rest.is_empty() {
            let at = (1 + dice.below(12)).min(rest.len());
            let at = (at..=rest.len()).find(|at| rest.is_char_boundary(*at)).unwrap();
            let (piece, left) = rest.split_at(at);
            stream.push(piece);
            if dice.below(3) == 0 {
                stream.lines(true);
            }
            rest = left;
        }
        assert_eq!(text(stream.lines(false)), text(&whole), "seed {seed}: {said:?}");
        assert_eq!(stream.lines(false), whole, "seed {seed}: {said:?}");
    }
}

#[test]
fn new_words_cost_about_themselves() {
    let part = "Some words of a paragraph, and a few more of them.\n\n```rust\nlet x = 1;\nlet y = 2;\n```\n\n- a\n- b\n\n";
    let said = part.repeat(200);
    let mut stream = Stream::new(80, Theme::default());
    let mut pieces = 0;
    for piece in said.as_bytes().chunks(16) {
        stream.push(std::str::from_utf8(piece).unwrap());
        stream.lines(true);
        pieces += 1;
    }
    let whole = said.len() as u64;
    // Each piece reads its own stretch again, never the finished ones: the longest stretch here is 60 bytes.
    let most = whole + pieces * 80;
    assert!(stream.cost() < most, "{} bytes were read for {whole} in {pieces} pieces", stream.cost());
}

#[test]
fn a_list_without_end_is_not_read_from_its_beginning_each_time() {
    let said = "- an item of a list that does not end\n\n".repeat(4000);
    let mut stream = Stream::new(80, Theme::default());
    for (at, piece) in said.as_bytes().chunks(40).enumerate() {
        stream.push(std::str::from_utf8(piece).unwrap());
        if at % 10 == 0 {
            stream.lines(true);
        }
    }
    let most = (said.len() / 400 * 17 * 1024 + said.len()) as u64;
    assert!(stream.cost() < most, "{}", stream.cost());
}

#[test]
fn a_grammar_that_takes_too_long_is_given_up() {
    let took = || {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        u128::try_from(now.tv_sec).unwrap() * 1000 + u128::try_from(now.tv_nsec).unwrap() / 1_000_000
    };
    let line = "((a".repeat(99);
    let said = format!("```sv\n{}```\n", format!("{line}\n").repeat(100));
    let begin = took();
    let first = lines(&said, 80, Theme::default());
    let second = lines(&said, 80, Theme::default());
    let ms = took() - begin;
    println!("{ms} ms of the processor");
    assert!(ms < 5_000, "{ms} ms for code that was made to take long");
    assert_eq!(text(&first), text(&second));
    assert_eq!(text(&first).matches('a').count(), 9900);
}

#[test]
fn a_table_does_not_grow_by_what_nobody_wrote() {
    let table = format!("{}|\n{}|\n{}", "|a".repeat(300), "|-".repeat(300), "|x|\n".repeat(300));
    assert_eq!(lines(&table, 80, Theme::default()).len(), 599);
}
