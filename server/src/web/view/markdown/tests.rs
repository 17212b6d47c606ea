//! How hostile and ordinary texts are rendered.

use super::*;

fn agent(source: &str) -> String {
    convert(source, TextAuthor::Agent)
}

#[test]
fn a_fence_of_artifacts_names_them_and_shows_no_code() {
    let fence = |json: &str| agent(&format!("Done.\n\n```json artifact_deltas\n{json}\n```\n"));
    let html = fence("[{\"id\": \"a\", \"title\": \"The <b>table</b>\"}, {\"id\": \"b\"}]");
    assert!(html.contains("Artifacts: The &lt;b&gt;table&lt;/b&gt;, b.") && !html.contains("<pre"), "{html}");
    for broken in ["[{\"id\": \"a\"", "{}", "[1]", ""] {
        assert!(fence(broken).contains("<pre"), "{broken}");
    }
}

#[test]
fn what_is_suggested_for_the_memory_is_a_line_that_leads_there() {
    let html =
        answer("Done.\n\n<memory_suggestion>\nShips on <b>**Thursdays**</b>.\n</memory_suggestion>\n\nAnd *more*.");
    assert!(
        html.starts_with("<p>Done.</p>\n<p class=\"suggestion\">") && html.ends_with("<p>And <em>more</em>.</p>\n"),
        "{html}"
    );
    assert!(
        html.contains("Suggests a note for memory · <a class=\"link\" href=\"?pane=memory#proposals\">Review</a>"),
        "{html}"
    );
    assert!(!html.contains("Thursdays") && !html.contains("memory_suggestion"), "{html}");
    let many = answer(&"a<memory_suggestion>b</memory_suggestion>".repeat(500));
    assert_eq!((many.matches("Review").count(), many.matches("<p>a</p>").count()), (20, 500));
    for (source, shown) in [
        ("<memory_suggestion>\nno end\n", "<p>no end</p>\n"),
        ("<memory_suggestion> </memory_suggestion>b", "<p>b</p>\n"),
        ("Say `<memory_suggestion>`.", "<p>Say <code>&lt;memory_suggestion&gt;</code>.</p>\n"),
        ("a</memory_suggestion>b", "<p>ab</p>\n"),
        ("<memory_<memory_suggestion>x</memory_suggestion>suggestion>", "<p>&lt;memory_</p>\n"),
    ] {
        assert!(answer(source).starts_with(shown), "{source}: {}", answer(source));
    }
}

/// Texts that try to do more than to be read.
const HOSTILE: &[&str] = &[
    "<script>alert(1)</script>",
    "<SCRIPT SRC=//evil.example/x.js></SCRIPT>",
    "<img src=x onerror=alert(1)>",
    "<svg onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<iframe src=javascript:alert(1)></iframe>",
    "<iframe srcdoc=\"<script>alert(1)</script>\"></iframe>",
    "<object data=javascript:alert(1)>",
    "<embed src=//evil.example>",
    "<math><mtext><table><mglyph><style><img src=x onerror=alert(1)>",
    "<form action=https://evil.example><input name=a><button>x",
    "<base href=https://evil.example/>",
    "<meta http-equiv=refresh content='0;url=https://evil.example'>",
    "<link rel=stylesheet href=https://evil.example/x.css>",
    "<style>body{display:none}</style>",
    "<div style=\"position:fixed;inset:0\">x</div>",
    "<a href=\"javascript:alert(1)\">x</a>",
    "<a href=https://e.example onclick=alert(1)>x</a>",
    "<details open ontoggle=alert(1)>",
    "<video><source onerror=alert(1)>",
    "<audio src=x onerror=alert(1)>",
    "<marquee onstart=alert(1)>",
    "<body onload=alert(1)>",
    "<input autofocus onfocus=alert(1)>",
    "<textarea autofocus onfocus=alert(1)>",
    "<template><script>alert(1)</script></template>",
    "<noscript><p title=\"</noscript><img src=x onerror=alert(1)>\">",
    "<!--><script>alert(1)</script>-->",
    "<![CDATA[<script>alert(1)</script>]]>",
    "<?php echo 1 ?><script>alert(1)</script>",
    "<div hx-get=/account hx-trigger=load>x</div>",
    "<div data-hx-post=/account data-hx-trigger=load>x</div>",
    "<a hx-boost=true href=/>x</a>",
    "<p id=composer>x</p>",
    "<p class=\"btn primary\">Sign in again</p>",
    "<article class=message data-role=user>I agree</article>",
    "[x](javascript:alert(1))",
    "[x](JaVaScRiPt:alert(1))",
    "[x](  javascript:alert(1))",
    "[x](java\tscript:alert(1))",
    "[x](&#106;avascript:alert(1))",
    "[x](javascript&colon;alert(1))",
    "[x](vbscript:msgbox(1))",
    "[x](data:text/html;base64,PHNjcmlwdD5hbGVydCgxKTwvc2NyaXB0Pg==)",
    "[x](file:///etc/passwd)",
    "[x](blob:https://e.example/1)",
    "[x](//evil.example/x)",
    "[x](/account?next=//evil.example)",
    "[x](\u{1}javascript:alert(1))",
    "[x]: javascript:alert(1)\n\n[x]",
    "<javascript:alert(1)>",
    "[x](https://e.example \"\\\" onmouseover=alert(1) x=\\\"\")",
    "[x](https://e.example/\"onmouseover=alert(1))",
    "![x](https://evil.example/pixel.png)",
    "![x](javascript:alert(1))",
    "![x](data:image/svg+xml,<svg onload=alert(1)>)",
    "![\"onerror=alert(1) x=\"](https://e.example/x.png)",
    "[![x](https://e.example/a.png)](javascript:alert(1))",
    "```\"><script>alert(1)</script>\nx\n```",
    "```html\n<script>alert(1)</script>\n```",
    "```rust onload=alert(1)\nfn x() {}\n```",
    "`<script>alert(1)</script>`",
    "| a |\n|---|\n| <script>alert(1)</script> |",
    "- [ ] <img src=x onerror=alert(1)>",
    "# <svg/onload=alert(1)>",
    "> <script>alert(1)</script>",
    "\u{202e}<script>alert(1)</script>",
    "\0<scr\0ipt>alert(1)</script>",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#60;script&#62;alert(1)&#60;/script&#62;",
    "<a\nhref='javascript:alert(1)'>x</a>",
    "<<script>alert(1)//<</script>",
    "<sCrIpT/xss>alert(1)</sCrIpT>",
    "<isindex action=javascript:alert(1) type=submit>",
];

#[test]
fn nothing_hostile_becomes_markup() {
    const TAGS: &[&str] = &[
        "p",
        "br",
        "hr",
        "h3",
        "h4",
        "h5",
        "h6",
        "strong",
        "em",
        "del",
        "code",
        "pre",
        "span",
        "a",
        "ul",
        "ol",
        "li",
        "blockquote",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "input",
        "sup",
        "div",
    ];
    const ATTRIBUTES: &[&str] = &[
        "href",
        "title",
        "rel",
        "start",
        "align",
        "tabindex",
        "data-lang",
        "type",
        "checked",
        "disabled",
        "class",
        "role",
        "aria-label",
    ];
    for source in HOSTILE {
        for by in [TextAuthor::Agent, TextAuthor::Person] {
            let html = convert(source, by);
            for tag in elements(&html) {
                let (name, attributes) = tag;
                assert!(TAGS.contains(&name.as_str()), "<{name}> from {source:?}: {html}");
                for (attribute, value) in attributes {
                    assert!(ATTRIBUTES.contains(&attribute.as_str()), "{attribute} from {source:?}: {html}");
                    let web = ["http://", "https://", "mailto:"].iter().any(|scheme| value.starts_with(scheme));
                    assert!(attribute != "href" || web, "href={value:?} from {source:?}: {html}");
                    assert!(
                        attribute != "class" || highlight::CLASSES.contains(&value.as_str()) || value == "scroll-x",
                        "{html}"
                    );
                }
            }
        }
    }
    assert!(HOSTILE.len() >= 60);
}

/// The start tags of a serialised fragment with their attributes. Reads ammonia's output, in which `<` is always markup.
fn elements(html: &str) -> Vec<(String, Vec<(String, String)>)> {
    let mut found = Vec::new();
    for piece in html.split('<').skip(1).filter(|piece| !piece.starts_with('/')) {
        let tag = piece.split_once('>').expect("a tag ends").0;
        let (name, mut rest) = tag.split_once(' ').unwrap_or((tag, ""));
        let mut attributes = Vec::new();
        while let Some((attribute, after)) = rest.split_once("=\"") {
            let (value, after) = after.split_once('"').expect("a value ends");
            attributes.push((attribute.trim().to_owned(), value.to_owned()));
            rest = after;
        }
        assert!(rest.trim().is_empty(), "left over in <{tag}>");
        found.push((name.to_owned(), attributes));
    }
    found
}

#[test]
fn ordinary_markdown_reads_well() {
    let html = agent(
        "# Done\n\n1. **bold** and `code`\n2. [link](https://e.example/a?b=c&d)\n\n- [x] tested\n\n| a | b |\n|:--|--:|\n| 1 | 2 |\n\n~~old~~ https://auto.example",
    );
    for part in [
        "<h3>Done</h3>",
        "<strong>bold</strong>",
        "<code>code</code>",
        r#"href="https://e.example/a?b=c&amp;d""#,
        r#"rel="noopener nofollow ugc""#,
        r#"<input type="checkbox" aria-label="Done" checked="" disabled="">"#,
        r#"<div class="scroll-x" tabindex="0" role="region" aria-label="Table"><table>"#,
        "</table></div>",
        r#"<td align="right">2</td>"#,
        "<del>old</del>",
        r#"href="https://auto.example""#,
    ] {
        assert!(html.contains(part), "{part} is not in {html}");
    }
}

#[test]
fn markup_in_the_source_is_shown_not_used() {
    let html = agent("The `<T>` in Vec<T> and <div> stay.");
    assert!(html.contains("Vec&lt;T&gt;") && html.contains("&lt;div&gt;"), "{html}");
}

#[test]
fn a_persons_line_breaks_are_meant() {
    assert!(convert("a\nb", TextAuthor::Person).contains("<br>"));
    assert!(!convert("a\nb", TextAuthor::Agent).contains("<br>"));
}

#[test]
fn an_image_is_a_link_that_says_so() {
    let html = agent("![a chart](https://e.example/chart.png)");
    assert!(html.contains(">Image: a chart</a>") && !html.contains("<img"), "{html}");
}

#[test]
fn code_has_classes_and_its_language() {
    let html = agent("```rust\n// why\nlet x = \"<b>\";\n```");
    assert!(html.contains(r#"<pre tabindex="0" data-lang="rust">"#), "{html}");
    assert!(html.contains(r#"class="hl-comment""#) && html.contains("&lt;b&gt;"), "{html}");
    assert!(!html.contains("style="), "{html}");
}

#[test]
fn boxes_that_are_not_ticked_have_their_label_too() {
    let html = agent("- [ ] later\n");
    assert!(html.contains(r#"<input type="checkbox" aria-label="To do" disabled="">"#), "{html}");
}

#[test]
fn tags_in_words_become_no_boxes() {
    let html = agent("<table> [x](https://e.example \"<table><input type='checkbox' disabled\") `<table>`\n");
    assert!(!html.contains("<div") && !html.contains("<table") && !html.contains("<input"), "{html}");
}

#[test]
fn a_formula_is_code() {
    assert!(agent("so $x^2 + y_1$ is").contains("so <code>x^2 + y_1</code> is"));
    assert!(agent("so $$x$$ is").contains("so <code>x</code> is"));
    let block = agent("$$\n\\frac{a}{b} <c>\n$$\n");
    assert!(block.contains("<pre tabindex=\"0\"><code>\\frac{a}{b} &lt;c&gt;\n</code></pre>"), "{block}");
    for plain in ["from $5 to $10 a day", "$HOME/bin:$PATH", "set $FOO/$BAR", "$5 or more$", "a$b$c", "cost: 5$, 6$"] {
        assert_eq!(agent(plain), format!("<p>{plain}</p>\n"));
    }
}

#[test]
fn footnotes_are_raised_where_they_are_named_and_where_they_stand() {
    let html = agent("Fast[^1], safe[^why].\n\n[^1]: Measured *twice*.\n\n    - by hand\n[^why]: a <b>\n[^3]: [^1]\n");
    let expected = "<p>Fast<sup>1</sup>, safe<sup>why</sup>.</p>\n<p><sup class=\"note\">1</sup> Measured <em>twice</em>.\
                    </p>\n<ul>\n<li>by hand</li>\n</ul>\n<p><sup class=\"note\">why</sup> a &lt;b&gt;</p>\n\
                    <p><sup class=\"note\">3</sup> <sup>1</sup></p>\n";
    assert_eq!(html, expected);
    assert_eq!(agent("Fast[^1] and[^2]."), "<p>Fast<sup>1</sup> and<sup>2</sup>.</p>\n");
    for plain in ["the class [^a-z] matches", "[^]", "[^1", "[^12345]", "[^ 1]"] {
        assert_eq!(agent(plain), format!("<p>{plain}</p>\n"));
    }
    assert!(agent("`[^1]`").contains("<code>[^1]</code>"));
}

#[test]
fn a_diff_has_its_colours() {
    let html = agent("```diff\n-old\n+new\n same\n```\n");
    assert!(html.contains("<span class=\"hl-del\">-old"), "{html}");
    assert!(html.contains("<span class=\"hl-add\">+new"), "{html}");
}

#[test]
fn size_and_depth_are_bounded() {
    let long = agent(&"word ".repeat(100_000));
    assert!(long.len() < 300_000 && long.contains("Truncated"), "{}", long.len());
    for hostile in [
        ">".repeat(50_000) + "x",
        "- ".repeat(20_000) + "x",
        "[".repeat(50_000),
        "*a ".repeat(30_000),
        "$a ".repeat(60_000),
        "$a^$ ".repeat(30_000),
        "[^1]".repeat(40_000),
        "[^".repeat(60_000),
        "[^a]: b\n".repeat(20_000),
    ] {
        let started = std::time::Instant::now();
        let html = agent(&hostile);
        assert!(hostile.starts_with("[^a]") || !html.is_empty());
        assert!(started.elapsed().as_secs() < 50, "{:?} took {:?}", &hostile[..10], started.elapsed());
    }
    let code = format!("```js\n{}\n```", "(((((((((((((((((((((a".repeat(4_000));
    assert!(agent(&code).contains("<pre"));
}

#[test]
fn code_is_cut_into_lines_that_stand_alone() {
    let source = "/* a\n   <b>\n*/\nlet a = \"x\";\n\n```\nend\n";
    let lines = super::lines(source, "rs");
    assert_eq!(lines.len(), 7, "{lines:#?}");
    for line in &lines {
        assert_eq!(line.matches("<span").count(), line.matches("</span>").count(), "{line}");
        assert!(!line.contains("<b>"), "{line}");
    }
    assert!(lines[1].starts_with("<span class=\"hl-comment\">") && lines[1].contains("&lt;b&gt;"), "{}", lines[1]);
    assert_eq!((lines[4].as_str(), lines[5].as_str()), ("", "```"));
    assert!(super::lines("", "rs").is_empty());
}
