//! What people type about accounts and teams: names, e-mail addresses and slugs, and when they are refused.

/// Longest name of a person or thing, characters.
const MAX_NAME_CHARS: usize = 80;
/// Longest e-mail address, bytes (RFC 5321).
const MAX_EMAIL_BYTES: usize = 254;
/// Longest slug of a team, characters.
const MAX_SLUG_CHARS: usize = 40;

/// Why a typed value is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidInput {
    /// Stable, for programs.
    pub code: &'static str,
    pub message: &'static str,
}

/// A name of a person or thing: 1 to 80 characters on one line.
pub fn check_name(name: &str) -> Result<String, InvalidInput> {
    let name = name.trim();
    if name.is_empty() || name.chars().count() > MAX_NAME_CHARS || name.chars().any(char::is_control) {
        return Err(InvalidInput { code: "bad_name", message: "A name has 1 to 80 characters, on one line." });
    }
    Ok(name.to_owned())
}

/// An e-mail address in the form that is compared.
pub fn fold_email(email: &str) -> String {
    email.trim().to_lowercase()
}

/// The folded address. Only impossible addresses are refused: the rest could only be found out by sending a letter.
pub fn check_email(email: &str) -> Result<String, InvalidInput> {
    let email = fold_email(email);
    let good = email.len() <= MAX_EMAIL_BYTES
        && email.split_once('@').is_some_and(|(local, domain)| !local.is_empty() && !domain.is_empty())
        && !email.chars().any(|c| c.is_control() || c.is_whitespace());
    if good { Ok(email) } else { Err(InvalidInput { code: "bad_email", message: "That is not an e-mail address." }) }
}

/// Whether a text can be a team's slug: lower-case letters, digits and inner hyphens.
pub fn is_slug(text: &str) -> bool {
    let good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    let hyphen_outside = text.starts_with('-') || text.ends_with('-');
    (1..=MAX_SLUG_CHARS).contains(&text.len()) && text.bytes().all(good) && !hyphen_outside
}

/// Refuses a text that cannot be a team's slug.
pub fn check_slug(slug: &str) -> Result<(), InvalidInput> {
    if is_slug(slug) {
        return Ok(());
    }
    let message = "The address of a team consists of a-z, 0-9 and inner hyphens, at most 40 of them.";
    Err(InvalidInput { code: "bad_slug", message })
}

/// The slug that a name asks for, if it has any letter or digit in it.
pub fn slug_of(name: &str) -> Option<String> {
    let mut slug = String::new();
    for c in name.to_lowercase().chars() {
        match c {
            'a'..='z' | '0'..='9' => slug.push(c),
            'à'..='å' => slug.push('a'),
            'è'..='ë' => slug.push('e'),
            'ì'..='ï' => slug.push('i'),
            'ò'..='ö' | 'ø' => slug.push('o'),
            'ù'..='ü' => slug.push('u'),
            'ç' => slug.push('c'),
            'ñ' => slug.push('n'),
            'ß' => slug.push_str("ss"),
            _ if slug.ends_with('-') => {}
            _ => slug.push('-'),
        }
    }
    slug.truncate(MAX_SLUG_CHARS);
    let slug = slug.trim_matches('-').to_owned();
    (!slug.is_empty()).then_some(slug)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_slugs() {
        assert_eq!(slug_of("Fernworks").as_deref(), Some("fernworks"));
        assert_eq!(slug_of("  Ærø & Sons, Ltd. ").as_deref(), Some("ro-sons-ltd"));
        assert_eq!(slug_of("Müller/Söhne").as_deref(), Some("muller-sohne"));
        assert_eq!(slug_of("日本"), None);
        assert!(slug_of(&"x-".repeat(60)).is_some_and(|slug| is_slug(&slug)));
        for bad in ["", "-a", "a-", "A", "a/b", "..", "a b", &"a".repeat(41)] {
            assert!(!is_slug(bad), "{bad}");
        }
    }
}
