//! Tasks that name a model instead of their agent's own.

use protocol::{ErrorCode, EventBody};
use serde_json::json;

use super::Fixture;

#[tokio::test]
async fn a_task_may_name_a_model_that_this_machine_offers_and_no_other() {
    let mut fixture = Fixture::new().welcomed(&[]).await;
    let chosen = fixture.submit_to("echo", "say hi", json!({"model": "demo/tour"})).await;
    let started = fixture.until(&chosen, |body| matches!(body, EventBody::Started { .. })).await;
    let EventBody::Started { model, engine, .. } = started.body else { panic!("{started:?}") };
    assert_eq!((model.as_str(), engine.as_str()), ("demo/tour", "builtin"));
    for unknown in ["demo/other", "acme/x", "", "echo/2"] {
        let refused = fixture.submit_to("echo", "say hi", json!({"model": unknown})).await;
        let EventBody::Error { error } = fixture.ending(&refused).await else { panic!("{unknown} ran") };
        assert_eq!(error.code, ErrorCode::NotFound);
        assert!(error.message.contains("does not offer") && error.message.contains("demo/tour"), "{}", error.message);
    }
}
