//! Orders to stop that name no task: they reach attempts that run and those that wait their turn, also over a kill.

use super::*;

#[tokio::test]
async fn an_interrupt_reaches_those_that_wait_their_turn_and_a_kill_does_not_start_them() {
    for is_killed in [false, true] {
        for (target, hits_others) in [("*", true), ("echo", false)] {
            let mut fixture = Fixture::new().welcomed(&[]).await;
            let [a, b] = [fixture.submit("wait").await, fixture.submit("wait").await];
            fixture.waits(&a).await;
            fixture.waits(&b).await;
            let queued = fixture.submit("hello").await;
            let other = fixture.submit_to("brief", "hello", json!({})).await;
            let order = Command::Interrupt { target_agent_id: target.to_owned(), reason: "enough".to_owned() };
            if is_killed {
                let numbered = NumberedCommand { cmd_seq: fixture.next_cmd, command: order };
                fixture.mesh.journalled(vec![numbered]).await.expect("written");
                fixture = fixture.killed().welcomed(&[]).await;
            } else {
                fixture.command(order).await;
                for attempt in [&a, &b] {
                    assert!(matches!(fixture.ending(attempt).await, EventBody::Stopped { .. }));
                }
            }
            let is_stop = |body: &EventBody| matches!(body, EventBody::Stopped { reason, .. } if reason == "enough");
            assert!(is_stop(&fixture.ending(&queued).await), "{target} {is_killed}");
            assert_eq!(fixture.names(&queued), ["task:accepted", "task:stopped"], "it never began");
            assert_eq!(is_stop(&fixture.ending(&other).await), hits_others, "{target} {is_killed}");
        }
    }
}
