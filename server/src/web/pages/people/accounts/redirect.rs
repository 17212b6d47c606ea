//! The target of the redirect after signing in: only a path of this Board, never another site.

/// `next` if it is a path of this Board, else the front page.
pub fn local_path(next: &str) -> &str {
    let local = next.starts_with('/') && !next.starts_with("//") && !next.starts_with("/\\");
    // Browsers drop tabs and line ends from addresses, and read `\` as `/`.
    let plain = next.len() <= 2000 && next.bytes().all(|b| (0x21..0x7f).contains(&b) && b != b'\\');
    if local && plain { next } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::local_path;

    #[test]
    fn only_paths_of_our_own() {
        for good in ["/", "/t/home", "/t/home/sessions?q=a%20b", "/invite/vbi_x"] {
            assert_eq!(local_path(good), good);
        }
        for bad in [
            "",
            "//evil.test",
            "/\\evil.test",
            "https:evil.test",
            "https://evil.test",
            "javascript:alert(1)",
            "/\r\nSet-Cookie: a=b",
            "/\t/evil.test",
            "t/home",
            "/a b",
            "/\u{e9}",
            "/a\\b",
        ] {
            assert_eq!(local_path(bad), "/", "{bad:?}");
        }
    }
}
