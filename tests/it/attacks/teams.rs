//! Teams and roles under attack (A31–A44): nobody reaches another team, widens their role or stays after they were put out.

mod binding;
mod crawl;
mod roles;
mod shut_out;

use board_tests::{Person, tasks::id};
use serde_json::Value;

/// The slug of the team next door.
const ELSEWHERE: &str = "elsewhere";

/// The id of a member, as an owner sees it.
async fn member(owner: &Person, email: &str) -> String {
    let members = owner.get("/api/v1/members").await.expect(200).json();
    let all = members["items"].as_array().expect("members");
    let found = all.iter().find(|member| member["email"] == email).unwrap_or_else(|| panic!("{email} in {members:#}"));
    id(found, "id").to_owned()
}

/// All audit rows of the admin's team, the newest first.
async fn audit(admin: &Person) -> Vec<Value> {
    let (mut rows, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = admin.get(&format!("/api/v1/audit?limit=200{cursor}")).await.expect(200).json();
        rows.extend(page["items"].as_array().expect("rows").iter().cloned());
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return rows,
        }
    }
}

/// A form's answer that lets nothing happen: refused, or sent to the sign-in page.
fn turned_away(status: u16, location: &str) -> bool {
    matches!(status, 401 | 403) || (status == 303 && location.starts_with("/login"))
}
