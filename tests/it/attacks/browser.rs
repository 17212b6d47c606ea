//! A hostile page in an operator's browser: from another site, and from another port of the same one.

mod forms;
mod origins;
mod pages;
mod sockets;

use board_tests::{Browser, Person, hostile_site::HostileSite};

/// The name of the other site.
const HOSTILE_HOST: &str = "evil.test";
/// Hosts under which the evil page is served: another site, and the same site on another port, where cookies ride along.
const HOSTS: [&str; 2] = [HOSTILE_HOST, "127.0.0.1"];

/// A browser with an operator signed in, which knows where evil lies.
async fn victim(hostile_site: &HostileSite, person: &Person) -> Browser {
    let far = format!("127.0.0.1:{}", hostile_site.port);
    let browser = Browser::open_where(&[(HOSTILE_HOST, &far), ("board.test.evil.test", &far)]).await;
    browser.sign_in(person).await;
    browser
}
