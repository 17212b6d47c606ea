//! What an agent waits with: calls of one answer, a question, a budget, a check-in; and a task that is held.

use board_tests::{
    Engine, Fixture,
    board::HOME,
    fake_daemon::{accepted, progress, started, text},
    tasks::id,
};
use protocol::{Capability, EventBody};
use serde_json::{Value, json};

use super::{Purpose, Shots};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn questions_have_their_pictures() {
    visit_asks(&Purpose::Pictures(super::folder())).await;
}

const DIFF: &str = "--- .github/workflows/e2e.yml\n+++ .github/workflows/e2e.yml\n@@ -20,4 +20,5 @@\n       - uses: pnpm/action-setup@v4\n\
     \x20      - run: pnpm install --frozen-lockfile\n-      - run: pnpm playwright test --retries=2\n\
     +      - run: pnpm playwright test --repeat-each=3\n+        timeout-minutes: 12\n";

/// A question as a viber reports it.
pub fn asked(n: u32, kind: &str, rest: Value) -> EventBody {
    let mut event = json!({ "type": "approval-required", "approvalId": format!("apr_0198c0de000070008000{n:012}"),
        "kind": kind, "digest": format!("{n:064x}"), "tool": kind, "args": {}, "cwd": "/home/dev/code/webshop",
        "expiresAt": "2099-01-01T00:00:00.000Z" });
    let fields = event.as_object_mut().expect("an object");
    fields.extend(rest.as_object().expect("an object").clone());
    progress(&event)
}

/// What the task waits for.
pub fn waits(cause: &str, rest: Value) -> EventBody {
    let mut waiting = json!({ "for": cause });
    waiting.as_object_mut().expect("an object").extend(rest.as_object().expect("an object").clone());
    progress(&json!({ "type": "state-change", "state": "waiting", "waiting": waiting }))
}

/// The call of a tool, before its result.
pub fn called(n: u32, tool: &str, args: &Value) -> EventBody {
    progress(&json!({ "type": "tool-call", "callId": format!("call_{n}"), "tool": tool, "args": args }))
}

/// Sessions whose agents ask.
pub async fn visit_asks(purpose: &Purpose) {
    let mut fixture = Fixture::on(Engine::Sqlite).owner().with_fake().await;
    fixture.viber.cut();
    fixture.viber.capabilities = vec![Capability::Steer, Capability::Queue, Capability::Approve, Capability::Pause];
    fixture.viber.connect().await;
    let viber = fixture.viber_id.clone();
    let upload = "aws s3 cp traces/ s3://fernworks-eu-arch\u{200b}ive/traces/2026-06-19/ \\\n  --recursive --exclude \"*\" \
        --include \"run-\u{202e}piz.*\" \\\n  --metadata \"task=task_01,branch=fix/voucher-race\"";
    let calls = [
        (
            json!({ "command": upload }),
            "shell",
            json!({ "preview": upload, "risk": "It sends files to another machine.",
            "reason": "The rule ask: shell(aws **) of agents/coder.yaml asks." }),
        ),
        (
            json!({ "path": ".github/workflows/e2e.yml" }),
            "edit_file",
            json!({ "preview": DIFF,
            "risk": "It changes what runs elsewhere.", "reason": "viber_decides asks before such files are written.",
            "rule": "edit_file(.github/workflows/e2e.yml)",
            "files": [{ "path": "/home/dev/code/webshop/.github/workflows/e2e.yml", "hash": "ab".repeat(32) }] }),
        ),
        (
            json!({ "command": "git push origin fix/voucher-race" }),
            "shell",
            json!({
            "preview": "git push origin fix/voucher-race", "risk": "It leaves this machine.",
            "rule": "shell(git push **)", "reason": "always_ask" }),
        ),
    ];
    let question = json!({ "tool": "ask_operator", "question": {
        "text": "What should the kiosk app do when settled() says no?",
        "options": [{ "label": "Go back to the cart", "tradeOff": "As the web shop does. One more tap for about 1 customer in 900." },
            { "label": "Try once more, then go back", "tradeOff": "Hides short outages; the customer waits up to 4 s and does not know why." },
            { "label": "Charge the estimate and correct it later", "tradeOff": "No wait, but refunds by hand: 31 last month." }],
        "recommended": 0, "onTimeout": "it goes back to the cart" } });
    let van = "mcp__logistics__book_van";
    let form = json!({ "tool": van, "callId": "call_14", "question": {
        "text": "The MCP server logistics asks: Which van should be booked, and who drives it?\n\nSize of the van (1 of 3)",
        "options": [{ "label": "Small, 3 m³", "tradeOff": "" }, { "label": "Large, 14 m³", "tradeOff": "" }],
        "onTimeout": "The server is told that nobody answered." } });
    let budget = json!({ "tool": "budget", "limit": { "name": "costUsd", "allowed": 2.0, "used": 2.03 } });
    let leash = json!({ "tool": "shell", "limit": { "name": "leash", "allowed": 5.0, "used": 5.0 } });
    let next =
        json!({ "next": { "callId": "call_9", "tool": "shell", "args": { "command": "pnpm playwright test kiosk" } } });

    let (mut pages, mut asking) = (Vec::new(), None);
    for (name, goal) in [
        ("calls", "Make the voucher specs hold"),
        ("question", "Let the kiosk pay"),
        ("form", "Book a van for Friday"),
        ("budget", "Measure the cart"),
        ("leash", "Tidy the kiosk"),
        ("held", "Read the traces"),
    ] {
        let task = fixture.operator.submit(&viber, goal).await;
        let submit = fixture.viber.submitted().await;
        let mut events = vec![accepted(), started(), text("The draft is open; before I go on I need your word.\n\n")];
        match name {
            "calls" => {
                for (n, (args, tool, rest)) in (1..).zip(&calls) {
                    let mut rest = rest.clone();
                    let fields = rest.as_object_mut().expect("an object");
                    fields.extend([
                        ("tool".to_owned(), json!(tool)),
                        ("args".to_owned(), args.clone()),
                        ("callId".to_owned(), json!(format!("call_{n}"))),
                    ]);
                    events.extend([called(n, tool, args), asked(n, "tool", rest)]);
                }
                events.push(waits("approval", json!({})));
            }
            "question" => events.extend([asked(11, "question", question.clone()), waits("input", json!({}))]),
            "form" => events.extend([
                called(14, van, &json!({ "day": "Friday", "stops": [{ "at": "Depot North" }] })),
                asked(14, "question", form.clone()),
                waits("input", json!({})),
            ]),
            "budget" => events.extend([asked(12, "budget", budget.clone()), waits("budget", json!({}))]),
            "leash" => events.extend([asked(13, "budget", leash.clone()), waits("budget", json!({}))]),
            _ => events.push(waits("paused", next.clone())),
        }
        fixture.viber.report(&submit.task_id, 1, 1, events).await;
        if name == "calls" {
            asking = Some(submit.task_id);
        }
        pages.push((name, format!("{}/t/{HOME}/sessions/{}", fixture.board.url, id(&task, "sessionId"))));
    }
    let screens = Shots::on_each_screen(purpose).await;
    for shots in &screens {
        shots.browser.sign_in(fixture.owner()).await;
        for (name, page) in &pages {
            shots.browser.go(page).await;
            let place = if *name == "held" { "#task-state[data-waiting=paused]" } else { "#asks > article" };
            shots.browser.find(place).await;
            shots.take(&format!("session-asks-{name}")).await;
        }
    }
    // What was decided stands in the rows, with what the calls then did.
    for (n, decision) in [(1, "allow"), (2, "deny"), (3, "allow")] {
        let body = json!({ "decision": decision, "digest": format!("{n:064x}"), "note": "Only this branch, please." });
        let path = format!("/api/v1/approvals/apr_0198c0de000070008000{n:012}");
        fixture.owner().post(&path, &body).await.expect(200);
    }
    let result = |n: u32, ok: bool, said: &str| {
        let result = json!({ "output": said, "exitCode": i32::from(!ok) });
        progress(&json!({ "type": "tool-result", "callId": format!("call_{n}"), "tool": "shell", "ok": ok,
            "durationMs": 900, "result": result }))
    };
    let results = vec![
        result(1, true, "upload: 12 files\n"),
        result(2, false, "Not run: `edit_file` was not allowed by owner: Only this branch, please."),
        result(3, false, "! [rejected] fix/voucher-race\n"),
    ];
    fixture.viber.report(&asking.expect("a task"), 1, 11, results).await;
    for shots in &screens {
        shots.browser.go(&pages[0].1).await;
        shots.browser.find(".decided").await;
        shots.take("session-asks-decided").await;
    }
}
