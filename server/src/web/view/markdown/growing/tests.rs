//! Texts that come in pieces look as they would at once.

use super::*;

/// Small numbers that look random and are the same each time.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap_or(0) % n
    }
}

/// What a page has of the text: it is changed only as a growth says.
#[derive(Debug, Default, PartialEq)]
struct Page {
    finished: String,
    open: String,
}

impl Page {
    fn of(text: &GrowingText) -> Self {
        Self { finished: text.blocks(0..text.finished()), open: text.open().to_owned() }
    }
}

const PIECES: &[&str] = &[
    "word ",
    "two words",
    " and",
    ".",
    ", ",
    "\n",
    "\n",
    "\n\n",
    "- item",
    "  - deep",
    "1. one",
    "# Title",
    "## Next ",
    "> quote",
    "**",
    "*",
    "_",
    "`",
    "```",
    "```rust\n",
    "~~~\n",
    "let a = 1;\n",
    "    code",
    "| a | b |\n",
    "|---|---|\n",
    "| 1 | 2 |\n",
    "---",
    "[link](https://x.y/z)",
    "[",
    "](",
    "<b>",
    "</b>",
    "&amp;",
    "&",
    "\\",
    "www.",
    "x.org",
    "a@b.cd ",
    "https://",
    "~~",
    "- [ ] ",
    "===",
    "ünïcode ",
    "\t",
    "\r\n",
    "\r",
    "!",
    "![i](u)",
    "[x]: /u\n",
    "  ",
    " ",
    "0",
    "$",
    "<!-- ",
    "-->",
    "\u{a0}",
    "\"q\"",
    "+ ",
    ")",
    "(",
    "#",
    "<memory_suggestion>\n",
    "<memory_suggestion>",
    "\n</memory_suggestion>\n",
    "</memory_suggestion>",
    "```artifact_deltas\n",
    "[]\n",
    "[^1",
    "$x^2",
    "$$\n",
];

#[test]
fn a_text_in_pieces_is_the_same_as_at_once() {
    for seed in 0..120 {
        let mut dice = Dice(seed);
        let (mut text, mut page) = (GrowingText::default(), Page::default());
        for _ in 0..40 {
            let piece = PIECES[dice.below(PIECES.len())];
            let cut = piece.char_indices().map(|(at, _)| at).nth(dice.below(4)).unwrap_or(0);
            for more in [&piece[..cut], &piece[cut..]] {
                if let Growth::Blocks(new) = text.push(more) {
                    page.finished.push_str(&text.blocks(new));
                }
                page.open = text.open().to_owned();
                let whole = GrowingText::new(text.written().to_owned());
                assert_eq!(page, Page::of(&whole), "{seed}: {:?}", text.written());
            }
        }
    }
}

#[test]
fn a_suggestion_is_never_shown_as_it_was_written() {
    let written = "Done, *so far*. <memory_suggestion>\nUse **tabs**.\n\n```\n</memory_suggestion>\n```\n</memory_suggestion> Next.";
    let (mut text, mut finished) = (GrowingText::default(), String::new());
    for c in written.chars() {
        if let Growth::Blocks(new) = text.push(&c.to_string()) {
            finished.push_str(&text.blocks(new));
        }
        let page = format!("{finished}{}", text.open());
        assert!(!page.contains("memory_s") && !page.contains("tabs") && !page.contains("&lt;"), "{page}");
    }
    assert_eq!(format!("{finished}{}", text.open()), *super::super::answer(written).trim_end());
    assert!(finished.ends_with("Review</a></span></p>") && text.open() == "<p>Next.</p>", "{finished} {}", text.open());
    // What is thought is no answer.
    assert!(GrowingText::verbatim("<memory_suggestion>".to_owned()).open().contains("&lt;memory_suggestion&gt;"));
}

#[test]
fn plain_words_and_code_are_only_added() {
    let long = "A paragraph that is long enough to be a piece by itself, and no less than that.\n\n";
    let mut text = GrowingText::new(format!("{long}- none\n- one"));
    assert_eq!(text.finished(), 1);
    assert_eq!(text.push(" more word "), Growth::Words(" more word".to_owned()));
    assert_eq!(text.push("here"), Growth::Words(" here".to_owned()));
    assert!(text.open().contains("one more word here</li>"), "{}", text.open());
    assert_eq!(text.push("\n\n```rust\nlet"), Growth::Blocks(1..1), "the list is too short to be a piece");
    let mut text = GrowingText::new(format!("{long}```rust\nlet"));
    assert_eq!(text.push(" a = 1 < 2;\nlet b"), Growth::Words(" a = 1 < 2;\nlet b".to_owned()));
    assert!(text.open().contains("let a = 1 &lt; 2;\nlet b</code>"), "{}", text.open());
    assert_eq!(text.push(&format!("\n// {long}```")), Growth::Blocks(1..1), "the line is not complete");
    assert_eq!(text.push("\n"), Growth::Blocks(1..1), "more of it may follow");
    assert_eq!(text.push("Done"), Growth::Blocks(1..2));
}

#[test]
fn what_a_hostile_text_costs_is_bounded() {
    let texts = [
        "*a `b` ".repeat(37_000),
        "`a` `` b `` ".repeat(20_000),
        "[a](b ".repeat(40_000),
        "a\n\n".repeat(80_000),
        "> ".repeat(30) + &"x ".repeat(100_000),
        "- a\n".repeat(60_000),
        "|a".repeat(100_000),
        "`".repeat(200_000),
        "ü**".repeat(60_000),
        "</memory_suggestion>".repeat(10_000),
        "<".repeat(200_000),
        "$a^ ".repeat(4_000),
        "a$$ $".repeat(3_000),
        "[^1".repeat(5_000),
    ];
    for source in texts {
        let began = std::time::Instant::now();
        let mut text = GrowingText::new(source.clone());
        for _ in 0..10 {
            text.push("*b* ");
        }
        assert!(began.elapsed().as_secs() < 5, "{:?}: {:?}", &source[..12], began.elapsed());
        assert!(text.finished() <= source.len() / super::super::pieces::MIN_PIECE_BYTES);
    }
}

#[test]
fn what_is_open_is_closed() {
    for (source, part) in [
        ("This is **bold", "<strong>bold</strong>"),
        ("This is **bold*", "<strong>bold</strong>"),
        ("This is **", "<p>This is</p>"),
        ("An *em", "<em>em</em>"),
        ("Run `cargo te", "<code>cargo te</code>"),
        ("See [the docs](https://exam", "<p>See the docs</p>"),
        ("- a **b\n- c", "c</li>"),
        ("2 * 3 is", "2 * 3 is"),
        ("snake_case_name", "snake_case_name"),
        ("| a | b |\n|---|---|\n| 1", "<td>1</td>"),
        ("| a | b", "<th>b</th>"),
        ("| a | **b", "<th><strong>b</strong></th>"),
        ("Text.\n\n| a | b |\n|:-", "<th>b</th>"),
        ("a | b", "<p>a | b</p>"),
        ("so $x^2 + y", "<p>so <code>x^2 + y</code></p>"),
        ("**so $\\frac{a}{", "<strong>so <code>\\frac{a}{</code></strong>"),
        ("$$\n\\frac{a}{b}\n$", "<code>\\frac{a}{b}\n</code>"),
        ("from $5 to $10 a d", "<p>from $5 to $10 a d</p>"),
        ("set $HOME/b", "<p>set $HOME/b</p>"),
        ("Fast[^1", "<p>Fast<sup>1</sup></p>"),
        ("Fast[^", "<p>Fast</p>"),
        ("the class [^a-z", "<p>the class [^a-z</p>"),
        ("```\nlet **a", "let **a</code>"),
    ] {
        let html = GrowingText::new(source.to_owned()).open;
        assert!(html.contains(part), "{source:?}: {html}");
    }
}

#[test]
fn a_long_text_costs_little() {
    let began = std::time::Instant::now();
    let mut text = GrowingText::default();
    for n in 0..4_000 {
        text.push(if n % 50 == 0 { "\n\nA new paragraph" } else { " of some words" });
    }
    assert!(text.finished() > 70, "{}", text.finished());
    assert!(began.elapsed().as_secs() < 5, "{:?}", began.elapsed());
    assert!(text.last_within(1_000) > 70 && text.last_within(usize::MAX) == 0);
}
