//! A146 to A155: keys that are exchanged, cookies that are copied, an audit that is cut, and what to do after a break-in.

mod audit;
mod kept;
mod logins;
mod planted_rows;
mod revoked;
mod rotated;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use board_tests::{Board, Person, person::Answer};
use reqwest::{Method, header};
use serde_json::Value;

/// The header of the token in a person's cookie, as the Board wrote it.
fn kid(person: &Person) -> String {
    let cookie = person.cookie().expect("signed in");
    let token = cookie.split_once('=').expect("a value").1;
    let head = URL_SAFE_NO_PAD.decode(token.split('.').next().expect("a header")).expect("base64");
    let head: Value = serde_json::from_slice(&head).expect("JSON");
    head["kid"].as_str().expect("a key id").to_owned()
}

/// What somebody sees who has this cookie and nothing else.
async fn with_cookie(board: &Board, cookie: &str, path: &str) -> Answer {
    let nobody = board.anon();
    let request = nobody.request(Method::GET, path).header(header::COOKIE, cookie);
    nobody.send(request.header(header::ACCEPT, "text/html")).await
}

/// The number of lines of a Board's log that contain a text.
fn logged(board: &Board, text: &str) -> usize {
    board.log().lines().filter(|line| line.contains(text)).count()
}

/// Sends a SIGHUP and waits until the Board has answered it with this word in its log once more.
async fn hang_up(board: &Board, answer: &str) {
    let before = logged(board, answer);
    board.hang_up();
    board_tests::eventually(answer, || async { (logged(board, answer) > before).then_some(()) }).await;
}
