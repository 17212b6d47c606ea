//! A table of every route and the role that it requires. It has no effect at run time, where extractors decide. One
//! test compares it with the routes that exist, and another calls every route as every kind of caller.

use Access::{Admin, Anyone, MetricsToken, Operator, Owner, SignedIn, Token, Viber, Viewer};

/// The least that a caller must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Nobody in particular; what needs a secret of its own (a setup code, an invitation, a join token) checks that.
    Anyone,
    /// The administrator's own token, or the other listener.
    MetricsToken,
    /// A viber with its credential.
    Viber,
    /// An operator with a login, in whatever teams.
    SignedIn,
    /// A program with an API token, of whatever role, and nobody with a login: what it may do, its role says later.
    Token,
    /// Each of these is a role in the team, by login or by API token; it includes the ones before.
    Viewer,
    Operator,
    Admin,
    Owner,
}

/// One method of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Route {
    pub method: &'static str,
    pub path: &'static str,
    pub who: Access,
}

const fn r(method: &'static str, path: &'static str, who: Access) -> Route {
    Route { method, path, who }
}

/// Every route of the main listener.
pub const ROUTES: &[Route] = &[
    r("GET", "/", SignedIn),
    r("GET", "/s/{id}", SignedIn),
    r("GET", "/healthz", Anyone),
    r("GET", "/readyz", Anyone),
    r("GET", "/metrics", MetricsToken),
    r("GET", "/install.sh", Anyone),
    r("GET", "/download/daemon-agent", Anyone),
    r("GET", "/download/daemon-agent.sha256", Anyone),
    r("GET", "/static/{hash}/{name}", Anyone),
    r("GET", "/setup/{code}", Anyone),
    r("POST", "/setup/{code}", Anyone),
    r("GET", "/login", Anyone),
    r("POST", "/login", Anyone),
    r("POST", "/logout", Anyone),
    r("GET", "/invite/{code}", Anyone),
    r("POST", "/invite/{code}", Anyone),
    r("GET", "/account", SignedIn),
    r("POST", "/account", SignedIn),
    r("POST", "/account/theme", SignedIn),
    r("POST", "/account/password", SignedIn),
    r("POST", "/account/devices/others", SignedIn),
    r("POST", "/account/devices/{id}/end", SignedIn),
    // A team's pages.
    r("GET", "/t/{team}", Viewer),
    r("GET", "/t/{team}/live", Viewer),
    r("GET", "/t/{team}/palette", Viewer),
    r("GET", "/t/{team}/preflight", Viewer),
    r("POST", "/t/{team}/tasks", Operator),
    r("POST", "/t/{team}/tasks/{id}/stop", Operator),
    r("POST", "/t/{team}/tasks/{id}/retry", Operator),
    r("POST", "/t/{team}/tasks/{id}/pause", Operator),
    r("POST", "/t/{team}/tasks/{id}/resume", Operator),
    r("POST", "/t/{team}/tasks/{id}/messages/{message}", Operator),
    r("POST", "/t/{team}/approvals/{id}", Operator),
    r("POST", "/t/{team}/sessions/{id}/approvals", Operator),
    r("GET", "/t/{team}/search", Viewer),
    r("GET", "/t/{team}/sessions", Viewer),
    r("POST", "/t/{team}/sessions/read", Viewer),
    r("POST", "/t/{team}/sessions", Operator),
    r("GET", "/t/{team}/sessions/{id}", Viewer),
    r("POST", "/t/{team}/sessions/{id}/messages", Operator),
    r("POST", "/t/{team}/sessions/{id}/message-mode", Operator),
    r("GET", "/t/{team}/sessions/{id}/messages/{seq}/calls/{call}", Viewer),
    r("GET", "/t/{team}/sessions/{id}/messages/{seq}/parts/{part}", Viewer),
    r("GET", "/t/{team}/sessions/{id}/transcript.md", Viewer),
    r("POST", "/t/{team}/sessions/{id}/rename", Operator),
    r("POST", "/t/{team}/sessions/{id}/archive", Operator),
    r("POST", "/t/{team}/sessions/{id}/unarchive", Operator),
    r("POST", "/t/{team}/sessions/{id}/pin", Operator),
    r("POST", "/t/{team}/sessions/{id}/unpin", Operator),
    r("POST", "/t/{team}/sessions/{id}/pins", Operator),
    r("POST", "/t/{team}/sessions/{id}/compact", Operator),
    r("POST", "/t/{team}/sessions/{id}/uncompact", Operator),
    r("POST", "/t/{team}/sessions/{id}/flush", Operator),
    r("POST", "/t/{team}/sessions/{id}/reset", Operator),
    r("POST", "/t/{team}/sessions/{id}/policies", Operator),
    r("POST", "/t/{team}/sessions/{id}/plan", Operator),
    r("POST", "/t/{team}/sessions/{id}/plan/steps", Operator),
    r("POST", "/t/{team}/sessions/{id}/plan/restore", Operator),
    r("POST", "/t/{team}/sessions/{id}/plan/conflict", Operator),
    r("POST", "/t/{team}/sessions/{id}/plan/proposals/{proposal}", Operator),
    r("POST", "/t/{team}/sessions/{id}/memory/proposals/{proposal}", Operator),
    r("POST", "/t/{team}/sessions/{id}/seen", Viewer),
    r("GET", "/t/{team}/sessions/{id}/pane", Viewer),
    r("POST", "/t/{team}/sessions/{id}/pane", Viewer),
    r("POST", "/t/{team}/sessions/{id}/writing", Operator),
    r("GET", "/t/{team}/sessions/{id}/delete", Operator),
    r("POST", "/t/{team}/sessions/{id}/delete", Operator),
    r("POST", "/t/{team}/sessions/{id}/attachments", Operator),
    r("GET", "/t/{team}/sessions/{id}/comments", Operator),
    r("POST", "/t/{team}/sessions/{id}/comments", Operator),
    r("POST", "/t/{team}/sessions/{id}/comments/withdraw", Operator),
    r("POST", "/t/{team}/sessions/{id}/comments/send", Operator),
    r("GET", "/t/{team}/artifacts/{id}", Viewer),
    r("GET", "/t/{team}/artifacts/{id}/card", Viewer),
    r("GET", "/t/{team}/artifacts/{id}/download", Viewer),
    r("GET", "/t/{team}/artifacts/{id}/view", Viewer),
    r("GET", "/t/{team}/artifacts/{id}/sandbox", Viewer),
    r("POST", "/t/{team}/artifacts/{id}/withdraw", Operator),
    r("GET", "/t/{team}/vibers", Viewer),
    r("POST", "/t/{team}/vibers/join", Operator),
    r("GET", "/t/{team}/vibers/{id}", Viewer),
    r("POST", "/t/{team}/vibers/{id}/rename", Admin),
    r("POST", "/t/{team}/vibers/{id}/drain", Admin),
    r("POST", "/t/{team}/vibers/{id}/undrain", Admin),
    r("POST", "/t/{team}/vibers/{id}/stop", Operator),
    r("POST", "/t/{team}/vibers/{id}/test", Operator),
    // Whoever sets a key decides whose account pays, and who at the provider reads what the agents of that machine send.
    r("POST", "/t/{team}/vibers/{id}/key", Admin),
    r("POST", "/t/{team}/vibers/{id}/key/remove", Admin),
    r("GET", "/t/{team}/vibers/{id}/revoke", Admin),
    r("POST", "/t/{team}/vibers/{id}/revoke", Admin),
    r("GET", "/t/{team}/vibers/{id}/live", Viewer),
    r("GET", "/t/{team}/vibers/{id}/bus", Viewer),
    r("GET", "/t/{team}/vibers/{id}/memory", Viewer),
    r("GET", "/t/{team}/vibers/{id}/sessions", Viewer),
    r("GET", "/t/{team}/vibers/{id}/sessions/{session}", Viewer),
    r("POST", "/t/{team}/vibers/{id}/sessions/{session}/import", Operator),
    r("GET", "/t/{team}/vibers/{id}/files", Viewer),
    r("GET", "/t/{team}/vibers/{id}/files/{*path}", Viewer),
    r("POST", "/t/{team}/vibers/{id}/files/{*path}", Operator),
    r("GET", "/t/{team}/vibers/{id}/spaces/{space}", Viewer),
    r("GET", "/t/{team}/vibers/{id}/spaces/{space}/diff", Viewer),
    r("GET", "/t/{team}/vibers/{id}/spaces/{space}/log", Viewer),
    r("GET", "/t/{team}/vibers/{id}/spaces/{space}/files", Viewer),
    r("GET", "/t/{team}/vibers/{id}/edits/{edit}", Viewer),
    r("POST", "/t/{team}/vibers/{id}/edits/{edit}", Operator),
    // What comes into a team's agents, an admin decides.
    r("POST", "/t/{team}/vibers/{id}/skills", Admin),
    r("POST", "/t/{team}/vibers/{id}/mcp", Admin),
    r("POST", "/t/{team}/vibers/{id}/agents", Admin),
    r("POST", "/t/{team}/vibers/{id}/mcp/test", Operator),
    r("GET", "/t/{team}/skills", Viewer),
    r("POST", "/t/{team}/skills", Admin),
    r("POST", "/t/{team}/skills/take", Admin),
    r("POST", "/t/{team}/skills/fetch", Admin),
    r("GET", "/t/{team}/skills/{id}", Viewer),
    r("POST", "/t/{team}/skills/{id}/review", Admin),
    r("POST", "/t/{team}/skills/{id}/install", Admin),
    r("POST", "/t/{team}/skills/{id}/rollout", Admin),
    r("POST", "/t/{team}/skill-rollouts/{id}/stop", Admin),
    r("GET", "/t/{team}/vibers/{id}/skills/{name}", Admin),
    r("GET", "/t/{team}/skills/{id}/delete", Admin),
    r("POST", "/t/{team}/skills/{id}/delete", Admin),
    // Whoever may give work starts runs; who decides about gates, the team's settings say.
    r("GET", "/t/{team}/playbooks", Viewer),
    r("GET", "/t/{team}/vibers/{id}/playbooks/{name}", Viewer),
    r("POST", "/t/{team}/vibers/{id}/playbooks/{name}", Operator),
    r("GET", "/t/{team}/playbook-runs", Viewer),
    r("GET", "/t/{team}/playbook-runs/{id}", Viewer),
    r("GET", "/t/{team}/playbook-runs/{id}/stop", Operator),
    r("POST", "/t/{team}/playbook-runs/{id}/stop", Operator),
    r("POST", "/t/{team}/playbook-runs/{id}/pause", Operator),
    r("POST", "/t/{team}/playbook-runs/{id}/resume", Operator),
    r("POST", "/t/{team}/playbook-runs/{id}/steps/{label}/retry", Operator),
    r("POST", "/t/{team}/playbook-runs/{id}/steps/{label}/skip", Operator),
    r("POST", "/t/{team}/playbook-runs/{id}/steps/{label}/allow", Operator),
    r("POST", "/t/{team}/playbook-runs/{id}/steps/{label}/deny", Operator),
    // A team's settings.
    r("GET", "/t/{team}/welcome", Admin),
    r("GET", "/t/{team}/settings", Viewer),
    r("POST", "/t/{team}/settings", Owner),
    r("POST", "/t/{team}/settings/artifacts", Owner),
    r("POST", "/t/{team}/settings/context", Owner),
    r("POST", "/t/{team}/settings/leave", Viewer),
    r("GET", "/t/{team}/settings/members", Viewer),
    r("POST", "/t/{team}/settings/members/{id}/role", Admin),
    r("POST", "/t/{team}/settings/members/{id}/remove", Admin),
    r("GET", "/t/{team}/settings/invitations", Admin),
    r("POST", "/t/{team}/settings/invitations", Admin),
    r("POST", "/t/{team}/settings/invitations/{id}/revoke", Admin),
    r("GET", "/t/{team}/settings/tokens", Admin),
    r("POST", "/t/{team}/settings/tokens", Admin),
    r("POST", "/t/{team}/settings/tokens/{id}/revoke", Admin),
    r("GET", "/t/{team}/settings/connect", Viewer),
    r("POST", "/t/{team}/settings/connect", Admin),
    r("GET", "/t/{team}/settings/approvals", Viewer),
    r("POST", "/t/{team}/settings/approvals", Admin),
    r("GET", "/t/{team}/settings/prices", Viewer),
    r("POST", "/t/{team}/settings/prices", Admin),
    r("GET", "/t/{team}/settings/mesh", Viewer),
    r("POST", "/t/{team}/settings/mesh", Admin),
    r("GET", "/t/{team}/settings/audit", Admin),
    // The daemons' endpoints.
    r("GET", "/ws/daemon", Viber),
    r("POST", "/api/daemon/join", Anyone),
    r("DELETE", "/api/daemon/enrolment", Viber),
    r("GET", "/api/daemon/tasks/{id}/{attempt}", Viber),
    r("GET", "/api/daemon/edits/{id}", Viber),
    r("GET", "/api/daemon/skills/{digest}", Viber),
    r("POST", "/api/daemon/playbook-runs", Viber),
    r("PUT", "/api/daemon/blobs/{id}", Viber),
    r("GET", "/api/daemon/blobs/{id}", Viber),
    // Tools of other programs.
    r("POST", "/mcp", Token),
    // The API.
    r("GET", "/api/v1/openapi.json", Anyone),
    r("GET", "/api/v1/vibers", Viewer),
    r("GET", "/api/v1/vibers/{id}", Viewer),
    r("PATCH", "/api/v1/vibers/{id}", Admin),
    r("DELETE", "/api/v1/vibers/{id}", Admin),
    r("POST", "/api/v1/vibers/{id}/stop", Operator),
    // It widens what may be done on that machine.
    r("POST", "/api/v1/vibers/{id}/agents", Admin),
    r("POST", "/api/v1/vibers/{id}/interrupt", Operator),
    r("POST", "/api/v1/join-tokens", Operator),
    r("GET", "/api/v1/vibers/{id}/bus", Viewer),
    r("GET", "/api/v1/vibers/{id}/memory", Viewer),
    r("GET", "/api/v1/vibers/{id}/sessions", Viewer),
    r("POST", "/api/v1/vibers/{id}/sessions/{session}/import", Operator),
    r("GET", "/api/v1/vibers/{id}/workspace", Viewer),
    r("GET", "/api/v1/vibers/{id}/workspace/{*path}", Viewer),
    r("PUT", "/api/v1/vibers/{id}/workspace/{*path}", Operator),
    r("PATCH", "/api/v1/vibers/{id}/workspace/{*path}", Operator),
    r("DELETE", "/api/v1/vibers/{id}/workspace/{*path}", Operator),
    r("GET", "/api/v1/vibers/{id}/search", Viewer),
    r("GET", "/api/v1/vibers/{id}/spaces", Viewer),
    r("GET", "/api/v1/vibers/{id}/spaces/{space}/status", Viewer),
    r("GET", "/api/v1/vibers/{id}/spaces/{space}/diff", Viewer),
    r("GET", "/api/v1/vibers/{id}/spaces/{space}/log", Viewer),
    r("GET", "/api/v1/vibers/{id}/spaces/{space}/tree", Viewer),
    r("GET", "/api/v1/vibers/{id}/spaces/{space}/file", Viewer),
    // What comes into a team's agents, an admin decides.
    r("GET", "/api/v1/skills", Viewer),
    r("POST", "/api/v1/skills", Admin),
    r("GET", "/api/v1/skills/{id}", Viewer),
    r("DELETE", "/api/v1/skills/{id}", Admin),
    r("POST", "/api/v1/skills/{id}/review", Admin),
    r("GET", "/api/v1/skills/{id}/files/{*path}", Viewer),
    r("GET", "/api/v1/skills/{id}/diff", Viewer),
    r("GET", "/api/v1/skill-rollouts", Viewer),
    r("POST", "/api/v1/skill-rollouts", Admin),
    r("GET", "/api/v1/skill-rollouts/{id}", Viewer),
    r("POST", "/api/v1/skill-rollouts/{id}/stop", Admin),
    r("GET", "/api/v1/vibers/{id}/mcp", Viewer),
    r("POST", "/api/v1/vibers/{id}/mcp/{name}/allow", Admin),
    r("POST", "/api/v1/vibers/{id}/mcp/{name}/test", Operator),
    r("GET", "/api/v1/vibers/{id}/skills", Viewer),
    r("POST", "/api/v1/vibers/{id}/skills", Admin),
    r("PATCH", "/api/v1/vibers/{id}/skills/{name}", Admin),
    r("DELETE", "/api/v1/vibers/{id}/skills/{name}", Admin),
    r("POST", "/api/v1/vibers/{id}/skills/{name}/accept", Admin),
    r("POST", "/api/v1/vibers/{id}/skills/{name}/restore", Admin),
    r("POST", "/api/v1/vibers/{id}/skills/{name}/check", Operator),
    r("GET", "/api/v1/search", Viewer),
    r("GET", "/api/v1/sessions", Viewer),
    r("POST", "/api/v1/sessions", Operator),
    r("GET", "/api/v1/sessions/{id}", Viewer),
    r("PATCH", "/api/v1/sessions/{id}", Operator),
    r("DELETE", "/api/v1/sessions/{id}", Operator),
    r("GET", "/api/v1/sessions/{id}/messages", Viewer),
    r("GET", "/api/v1/sessions/{id}/context", Viewer),
    r("GET", "/api/v1/sessions/{id}/pins", Viewer),
    r("POST", "/api/v1/sessions/{id}/pins", Operator),
    r("POST", "/api/v1/sessions/{id}/compact", Operator),
    r("POST", "/api/v1/sessions/{id}/uncompact", Operator),
    r("POST", "/api/v1/sessions/{id}/flush", Operator),
    r("POST", "/api/v1/sessions/{id}/reset", Operator),
    r("GET", "/api/v1/sessions/{id}/artifacts", Viewer),
    r("POST", "/api/v1/sessions/{id}/artifacts", Operator),
    r("POST", "/api/v1/sessions/{id}/uploads", Operator),
    r("POST", "/api/v1/sessions/{id}/uploads/{upload}", Operator),
    r("GET", "/api/v1/artifacts/{id}", Viewer),
    r("DELETE", "/api/v1/artifacts/{id}", Operator),
    r("GET", "/api/v1/artifacts/{id}/content", Viewer),
    r("GET", "/api/v1/tasks", Viewer),
    r("POST", "/api/v1/tasks", Operator),
    r("GET", "/api/v1/tasks/{id}", Viewer),
    r("GET", "/api/v1/tasks/{id}/events", Viewer),
    r("GET", "/api/v1/tasks/{id}/tree", Viewer),
    r("GET", "/api/v1/vibers/{id}/playbooks", Viewer),
    r("GET", "/api/v1/playbook-runs", Viewer),
    r("POST", "/api/v1/playbook-runs", Operator),
    r("GET", "/api/v1/playbook-runs/{id}", Viewer),
    r("POST", "/api/v1/playbook-runs/{id}/stop", Operator),
    r("POST", "/api/v1/playbook-runs/{id}/pause", Operator),
    r("POST", "/api/v1/playbook-runs/{id}/resume", Operator),
    r("POST", "/api/v1/playbook-runs/{id}/steps/{n}", Operator),
    r("POST", "/api/v1/tasks/{id}/stop", Operator),
    r("POST", "/api/v1/tasks/{id}/retry", Operator),
    r("POST", "/api/v1/tasks/{id}/pause", Operator),
    r("POST", "/api/v1/tasks/{id}/resume", Operator),
    r("GET", "/api/v1/tasks/{id}/messages", Viewer),
    r("POST", "/api/v1/tasks/{id}/messages", Operator),
    r("PATCH", "/api/v1/tasks/{id}/messages/{message}", Operator),
    r("DELETE", "/api/v1/tasks/{id}/messages/{message}", Operator),
    r("POST", "/api/v1/sessions/{id}/messages", Operator),
    r("GET", "/api/v1/sessions/{id}/plan", Viewer),
    r("PUT", "/api/v1/sessions/{id}/plan", Operator),
    r("GET", "/api/v1/sessions/{id}/plan/proposals", Viewer),
    r("POST", "/api/v1/sessions/{id}/plan/proposals/{proposal}", Operator),
    r("GET", "/api/v1/sessions/{id}/memory/proposals", Viewer),
    r("POST", "/api/v1/sessions/{id}/memory/proposals/{proposal}", Operator),
    r("GET", "/api/v1/approvals", Viewer),
    r("GET", "/api/v1/approvals/{id}", Viewer),
    r("POST", "/api/v1/approvals/{id}", Operator),
    r("GET", "/api/v1/approval-rules", Viewer),
    r("PUT", "/api/v1/approval-rules", Admin),
    r("GET", "/api/v1/prices", Viewer),
    r("PUT", "/api/v1/prices", Admin),
    r("GET", "/api/v1/mesh", Viewer),
    r("PATCH", "/api/v1/mesh", Admin),
    r("GET", "/api/daemon/mesh", Viber),
    r("GET", "/api/v1/members", Viewer),
    r("GET", "/api/v1/quota", Viewer),
    r("POST", "/api/v1/members", Admin),
    r("PATCH", "/api/v1/members/{id}", Admin),
    r("DELETE", "/api/v1/members/{id}", Admin),
    r("GET", "/api/v1/invitations", Admin),
    r("POST", "/api/v1/invitations", Admin),
    r("DELETE", "/api/v1/invitations/{id}", Admin),
    r("GET", "/api/v1/tokens", Admin),
    r("POST", "/api/v1/tokens", Admin),
    r("DELETE", "/api/v1/tokens/{id}", Admin),
    r("GET", "/api/v1/audit", Admin),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::{clock::Clock, config::Config, db::Db, guard::Keys, state::Board, web};

    /// The routes that axum really has, read from its own description of itself: it has no other list.
    fn registered(description: &str) -> BTreeSet<(String, String)> {
        let main = description.split("fallback_router:").next().unwrap_or("");
        let (routes, paths) = main.split_once("node: Node").expect("axum describes its paths");
        let mut found = BTreeSet::new();
        for entry in paths.split("RouteId(").skip(1) {
            let (id, rest) = entry.split_once(')').expect("an id");
            let path = rest.split('"').nth(1).expect("a path");
            let handler = routes.split(&format!("RouteId({id}): ")).nth(1).expect("a handler");
            let handler = handler.split("fallback:").next().unwrap_or("");
            for method in ["get", "delete", "patch", "post", "put"] {
                let field = handler.split(&format!(" {method}: ")).nth(1).expect("a method");
                if !field.starts_with("None") {
                    found.insert((method.to_uppercase(), path.to_owned()));
                }
            }
        }
        found
    }

    #[tokio::test]
    async fn every_route_is_in_the_table_and_nothing_else() {
        let folder = tempfile::tempdir().expect("a folder");
        let db = Db::open(&format!("sqlite://{}/board.db", folder.path().display())).await.expect("a database");
        let keys = Keys::kept(&folder.path().join("keys"), 1).expect("keys");
        let board = Board::new(Config::local(folder.path().to_owned()), db, keys, Clock::default());
        let there = registered(&format!("{:?}", web::router(board)));
        let table: BTreeSet<_> = ROUTES.iter().map(|r| (r.method.to_owned(), r.path.to_owned())).collect();
        assert_eq!(table.len(), ROUTES.len(), "a route stands twice in the table");
        let missing: Vec<_> = there.difference(&table).collect();
        assert!(missing.is_empty(), "say in the table who may call {missing:#?}");
        let gone: Vec<_> = table.difference(&there).collect();
        assert!(gone.is_empty(), "these routes do not exist: {gone:#?}");
    }
}
