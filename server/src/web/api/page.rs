//! Pagination: `?cursor=&limit=`. A cursor is opaque and names only a position in a list: a forged one gives access to
//! nothing.

use std::str::FromStr;

use axum::{extract::FromRequestParts, http::request::Parts};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::Deserialize;
use utoipa::IntoParams;

use super::{query::StrictQuery, shapes::List};
use crate::{
    error::{Error, Result},
    web::Rejection,
};

/// Default number of items on a page.
const DEFAULT_LIMIT: u32 = 50;
/// Largest number of items on a page; the descriptions of the queries repeat it.
const MAX_LIMIT: u32 = 200;
/// Longest cursor, bytes.
const MAX_CURSOR_BYTES: usize = 512;

/// Which page of a list.
#[derive(Debug)]
pub struct Page {
    cursor: Option<String>,
    /// 1 to 200.
    pub limit: u32,
}

/// A page as the address asks for it.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct PageQuery {
    /// The `next` of the previous page.
    #[param(max_length = 512)]
    cursor: Option<String>,
    /// Items of a page, 1 to 200; 50 when absent.
    #[param(value_type = Option<u32>, minimum = 1, maximum = 200)]
    limit: Option<String>,
}

impl<S: Send + Sync> FromRequestParts<S> for Page {
    type Rejection = Rejection;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Rejection> {
        let StrictQuery(asked) = StrictQuery::<PageQuery>::from_request_parts(parts, state).await?;
        Ok(Self::read(asked.cursor, asked.limit.as_deref())?)
    }
}

impl Page {
    /// A page as its two parameters ask for it.
    pub fn read(cursor: Option<String>, limit: Option<&str>) -> Result<Self> {
        Ok(Self { cursor: cursor.filter(|cursor| !cursor.is_empty()), limit: limit_of(limit)? })
    }

    /// Where the page starts in the list `kind`, as `cursor` wrote it.
    pub fn after(&self, kind: &str) -> Result<Option<Vec<String>>> {
        self.cursor.as_deref().map(|cursor| decode(kind, cursor)).transpose()
    }

    /// The same for a list whose places are single values.
    pub fn after_id<T: FromStr>(&self, kind: &str) -> Result<Option<T>> {
        let Some(place) = self.after(kind)? else { return Ok(None) };
        match place.as_slice() {
            [id] => id.parse().map(Some).map_err(|_| bad_cursor()),
            _ => Err(bad_cursor()),
        }
    }

    /// One more than the page: the extra row says that there is a next page.
    pub fn fetch(&self) -> u64 {
        u64::from(self.limit) + 1
    }

    /// Turns up to `fetch` rows into the page; `place` names a row's place.
    pub fn list<R, T>(&self, kind: &str, mut rows: Vec<R>, place: impl Fn(&R) -> Vec<String>) -> List<T>
    where
        T: From<R>,
    {
        let more = rows.len() > self.limit as usize;
        rows.truncate(self.limit as usize);
        let next = rows.last().filter(|_| more).map(|last| cursor(kind, &place(last)));
        List { items: rows.into_iter().map(T::from).collect(), next }
    }
}

/// A limit of items: 50 when absent. More than 200 is refused, not reduced silently.
pub fn limit_of(text: Option<&str>) -> Result<u32> {
    let Some(text) = text else { return Ok(DEFAULT_LIMIT) };
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    let limit = text.parse::<u32>().ok().filter(|limit| digits && (1..=MAX_LIMIT).contains(limit));
    limit.ok_or_else(|| Error::unacceptable("bad_limit", "limit is a number from 1 to 200"))
}

/// The cursor of a list that a viber answers: a number; from the start when absent or empty.
pub fn number_of(cursor: Option<&str>) -> Result<u64> {
    match cursor {
        None | Some("") => Ok(0),
        Some(text) => number(text).ok_or_else(bad_cursor),
    }
}

/// A number as it is written, without a sign.
pub fn number(text: &str) -> Option<u64> {
    let digits = text.len() <= 20 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

/// Separates the fields of a cursor; it occurs in no id, number or word.
const SEPARATOR: char = '\u{1f}';

/// The cursor of a place in the list `kind`.
pub fn cursor(kind: &str, place: &[String]) -> String {
    let fields: Vec<&str> = std::iter::once(kind).chain(place.iter().map(String::as_str)).collect();
    BASE64_URL_SAFE_NO_PAD.encode(fields.join(&SEPARATOR.to_string()))
}

/// The cursor was not made by this list.
pub fn bad_cursor() -> Error {
    Error::unacceptable("bad_cursor", "the cursor does not belong to this list")
}

fn decode(kind: &str, cursor: &str) -> Result<Vec<String>> {
    let bad = bad_cursor;
    if cursor.len() > MAX_CURSOR_BYTES {
        return Err(bad());
    }
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(cursor).map_err(|_| bad())?;
    let text = String::from_utf8(bytes).map_err(|_| bad())?;
    if text.contains('\0') {
        return Err(bad());
    }
    let mut fields = text.split(SEPARATOR).map(str::to_owned);
    if fields.next().as_deref() != Some(kind) {
        return Err(bad());
    }
    Ok(fields.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(cursor: Option<String>, limit: Option<&str>) -> Page {
        Page::read(cursor, limit).expect("a page")
    }

    #[test]
    fn a_page_ends_where_the_next_one_starts() {
        let rows: Vec<u64> = (1..=4).collect();
        let first: List<u64> = page(None, Some("3")).list("seqs", rows.clone(), |n| vec![n.to_string()]);
        assert_eq!(first.items, [1, 2, 3]);
        let next = page(first.next, Some("3"));
        assert_eq!(next.after("seqs").expect("its own cursor"), Some(vec!["3".to_owned()]));
        let last: List<u64> = next.list("seqs", vec![4_u64], |n| vec![n.to_string()]);
        assert_eq!(last.next, None);
    }

    #[test]
    fn a_changed_or_foreign_cursor_is_refused() {
        let cursor = super::cursor("seqs", &["3".to_owned()]);
        let mut changed = cursor.clone();
        changed.replace_range(0..1, if cursor.starts_with('A') { "B" } else { "A" });
        let nul = BASE64_URL_SAFE_NO_PAD.encode("seqs\u{1f}\0");
        for cursor in
            [changed, "§".into(), "=".into(), "x".repeat(600), nul, super::cursor("others", &["3".to_owned()])]
        {
            assert!(matches!(
                page(Some(cursor), None).after("seqs"),
                Err(Error::Unacceptable { code: "bad_cursor", .. })
            ));
        }
        assert_eq!(page(Some(String::new()), None).after("seqs").expect("no cursor"), None);
    }

    #[test]
    fn a_place_is_a_number_without_a_sign() {
        for (text, place) in [(None, 0), (Some(""), 0), (Some("0"), 0), (Some("42"), 42)] {
            assert_eq!(number_of(text).expect("a place"), place);
        }
        for nonsense in ["+5", "-1", "1.0", " 1", "x", "99999999999999999999", "000000000000000000000"] {
            assert!(number_of(Some(nonsense)).is_err(), "{nonsense:?}");
        }
    }

    #[test]
    fn a_limit_is_a_number_up_to_200() {
        assert_eq!(limit_of(None).expect("the usual"), 50);
        assert_eq!(limit_of(Some("1")).expect("one"), 1);
        assert_eq!(limit_of(Some("200")).expect("the most"), 200);
        for nonsense in
            ["201", "1000000000", "99999999999999999999", "", "0", "000", "-1", "+5", "1.5", "ten", "1e3", " 1"]
        {
            assert!(limit_of(Some(nonsense)).is_err(), "{nonsense:?}");
        }
    }
}
