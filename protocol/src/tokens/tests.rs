//! The estimate beside real tokenizers, and the bounds of what is cut by it.

use proptest::prelude::*;

use super::*;

/// Tokens of the samples as `gpt-tokenizer` 4.0 counts them with `o200k_base`, and how far off the estimate may be, percent.
const COUNTED: &[(&str, &str, u64, u64)] = &[
    ("base64", include_str!("samples/base64.txt"), 993, 15),
    ("chinese", include_str!("samples/chinese.txt"), 553, 15),
    ("english", include_str!("samples/english.txt"), 455, 15),
    ("javascript", include_str!("samples/javascript.txt"), 676, 15),
    ("json", include_str!("samples/json.txt"), 692, 15),
    ("log", include_str!("samples/log.txt"), 669, 15),
    ("markdown", include_str!("samples/markdown.txt"), 395, 15),
    ("python", include_str!("samples/python.txt"), 698, 15),
    ("russian", include_str!("samples/russian.txt"), 249, 25),
    ("rust", include_str!("samples/rust.txt"), 729, 15),
];

#[test]
fn the_estimate_is_near_what_a_tokenizer_counts() {
    let off = |(name, sample, counted, percent): &(&str, &str, u64, u64)| {
        let estimated = estimate(sample);
        let is_near = estimated.abs_diff(*counted) * 100 <= counted * percent;
        (!is_near).then(|| format!("{name}: {estimated} instead of {counted}"))
    };
    let off: Vec<_> = COUNTED.iter().filter_map(off).collect();
    assert!(off.is_empty(), "{off:#?}");
}

#[test]
fn an_empty_text_costs_nothing_and_a_short_one_something() {
    let costs = ["", "a", "word", "two words", "12345678", "\n", "    ", "日本", "é", "\u{1f600}"].map(estimate);
    assert_eq!(costs, [0, 1, 1, 2, 3, 1, 1, 2, 1, 2]);
}

#[test]
fn what_was_left_out_is_said() {
    let cut = head_and_tail(&"line of text\n".repeat(1_000), 100);
    assert!(cut.starts_with("line of text\n") && cut.ends_with("line of text\n"), "{cut}");
    assert!(cut.contains("\n[truncated, 3977 tokens omitted]\n"), "{cut}");
}

#[test]
fn what_is_cut_again_says_how_much_of_the_whole_is_missing() {
    for (name, sample, ..) in COUNTED {
        let whole = sample.repeat(12);
        let once = head_and_tail(&whole, 150);
        assert!(once.contains(" tokens omitted]\n"), "{name}");
        assert_eq!(head_and_tail(&head_and_tail(&whole, 600), 150), once, "{name}");
        let thrice = head_and_tail(&head_and_tail(&head_and_tail(&whole, 1_500), 700), 150);
        assert_eq!(thrice, once, "{name}");
        assert_eq!(head_and_tail(&once, 150), once, "{name}: the same bound");
    }
}

/// How many tokens a text that was cut says that it left out.
fn said(cut: &str) -> u64 {
    let (_, rest) = cut.split_once("\n[truncated, ").expect("it is cut");
    rest.split_once(' ').and_then(|(number, _)| number.parse().ok()).expect("a number")
}

#[test]
fn what_was_left_out_by_bytes_is_counted_too() {
    for (name, sample, ..) in COUNTED {
        let (whole, end) = (sample.repeat(60), sample.repeat(6));
        let left_out = (whole.len() - 2 * end.len()) as u64;
        let by_bytes = format!("{end}{}{end}", omission(&end, &end, left_out));
        let (cut, of_whole) = (head_and_tail(&by_bytes, 200), said(&head_and_tail(&whole, 200)));
        assert_eq!(cut.matches("omitted]").count(), 1, "{name}: {cut}");
        assert!(said(&cut).abs_diff(of_whole) * 50 <= of_whole, "{name}: {} of {of_whole}", said(&cut));
    }
    assert_eq!(omission("", "", 900), "\n[truncated, 225 tokens omitted]\n");
    assert_eq!(said(&omission("a", "b", u64::MAX)), MAX_OMITTED_TOKENS);
}

#[test]
fn what_only_looks_like_a_cut_counts_as_text() {
    let text = |mark: &str| format!("{}{mark}{}", "before it\n".repeat(200), "after it\n".repeat(200));
    let number = |text: &str| said(&head_and_tail(text, 60));
    let plain = number(&text(""));
    assert!(number(&text("\n[truncated, 5000 tokens omitted]\n")).abs_diff(plain + 5_000) <= 2);
    let strange = [
        "\n[truncated, many tokens omitted]\n",
        "\n[truncated, 5000 tokens",
        "\n[truncated, 9999999999999 tokens omitted]\n",
    ];
    for strange in strange {
        assert!(number(&text(strange)) < plain + 40, "{strange}");
    }
}

#[test]
fn one_endless_run_is_cut_inside() {
    for run in ["a", "A", "7", " ", "\n", "=", "é", "д", "日", "→", "\u{1f600}"] {
        let text = run.repeat(60_000);
        let cut = head_and_tail(&text, 100);
        assert!(estimate(&cut) <= 100 && cut.starts_with(run) && cut.ends_with(run), "{run}: {cut}");
    }
}

/// Texts whose runs meet in every way.
fn mixed() -> impl Strategy<Value = String> {
    proptest::collection::vec(
        "[a-c]{1,5}|[A-C]{1,3}|[0-9]{1,4}|[ \n\t]{1,4}|[.,_+/-]{1,3}|[éšдй日本→…\u{1f600}]{1,3}",
        1..40,
    )
    .prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn a_cut_text_keeps_its_bound_and_is_cut_once(text in prop_oneof![any::<String>(), mixed()], repeats in 1usize..40, max in 16u64..200) {
        let cut = head_and_tail(&text.repeat(repeats), max);
        prop_assert!(estimate(&cut) <= max, "{} of {max}: {cut:?}", estimate(&cut));
        prop_assert_eq!(&head_and_tail(&cut, max), &cut);
    }

    #[test]
    fn more_text_never_costs_less(text in mixed(), more in mixed()) {
        let whole = format!("{text}{more}");
        prop_assert!(estimate(&whole) >= estimate(&text));
        prop_assert!(estimate(&whole) <= estimate(&text) + estimate(&more) + 2);
    }
}
