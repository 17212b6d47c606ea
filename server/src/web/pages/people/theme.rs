//! Light, dark, or as the system has it.

use axum::{
    Form,
    extract::State,
    http::{HeaderMap, Uri, header},
    response::Redirect,
};
use serde::Deserialize;

use crate::{
    actions,
    error::Result,
    state::Board,
    web::{Rejection, SignedIn},
};

/// The choice.
#[derive(Debug, Deserialize)]
pub struct ThemeForm {
    theme: String,
}

/// `POST /account/theme`: back to the page it came from.
pub async fn choose(
    State(board): State<Board>,
    caller: SignedIn,
    headers: HeaderMap,
    Form(choice): Form<ThemeForm>,
) -> Result<Redirect, Rejection> {
    let operator = &caller.operator;
    actions::accounts::update_profile(&board, &operator.id, &operator.name, &choice.theme).await?;
    Ok(Redirect::to(&back(&headers)))
}

/// The path of the page that was left; only the path, so that it is on this Board.
fn back(headers: &HeaderMap) -> String {
    let left = headers.get(header::REFERER).and_then(|value| value.to_str().ok()?.parse::<Uri>().ok());
    let path = left.as_ref().and_then(Uri::path_and_query).map(|path| path.as_str());
    path.filter(|path| path.starts_with('/') && !path.starts_with("//")).unwrap_or("/").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_comes_back_to_this_board_only() {
        let from = |referer: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::REFERER, referer.parse().expect("a header"));
            back(&headers)
        };
        assert_eq!(from("https://board.example/t/home?x=1"), "/t/home?x=1");
        assert_eq!(from("https://board.example//evil.example"), "/");
        assert_eq!(from("javascript:alert(1)"), "/");
    }
}
