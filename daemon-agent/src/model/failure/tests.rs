//! The error shapes that providers are known to send, each with its meaning.

use ErrorCode::{
    ContentPolicy, ContextOverflow, ProviderAuth, ProviderBadRequest, ProviderRateLimited, ProviderUnavailable,
};

use super::*;

fn origin() -> CallContext {
    CallContext {
        provider: "acme".to_owned(),
        model: "m1".to_owned(),
        key: Some("s3cretkey".to_owned()),
        estimate: 100,
        window: 1000,
    }
}

fn of(status: Option<u16>, body: &str) -> ModelError {
    origin().classify(status, None, body)
}

/// (status, body, currentTokens, maxTokens)
const OVERFLOWS: &[(Option<u16>, &str, u64, u64)] = &[
    (
        Some(400),
        r#"{"error":{"message":"This model's maximum context length is 8192 tokens. However, your messages resulted in 8227 tokens.","type":"invalid_request_error","code":"context_length_exceeded"}}"#,
        8227,
        8192,
    ),
    (
        None,
        r#"{"type":"response.failed","response":{"error":{"code":"context_length_exceeded","message":"Your input exceeds the context window of this model."}}}"#,
        100,
        1000,
    ),
    (
        Some(400),
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 208310 tokens > 200000 maximum"}}"#,
        208_310,
        200_000,
    ),
    (
        Some(400),
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 178959 + 64000 > 200000, decrease input length or `max_tokens` and try again"}}"#,
        242_959,
        200_000,
    ),
    (
        Some(400),
        r#"[{"error":{"code":400,"message":"The input token count (1200293) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}]"#,
        1_200_293,
        1_048_576,
    ),
    (
        Some(400),
        r#"{"error":{"message":"This endpoint's maximum context length is 32768 tokens. However, you requested about 42832 tokens (42832 of text input).","code":400,"metadata":{"provider_name":null}}}"#,
        42_832,
        32_768,
    ),
    (
        Some(400),
        r#"{"error":{"message":"This model's maximum context length is 131072 tokens. However, you requested 131134 tokens (122942 in the messages)","type":"invalid_request_error","code":"invalid_request_error"}}"#,
        131_134,
        131_072,
    ),
    (
        Some(400),
        r#"{"object":"error","message":"This model's maximum context length is 6048 tokens. However, your request has 6616 input tokens","type":"BadRequestError","code":400}"#,
        6616,
        6048,
    ),
    (
        None,
        r#"{"choices":null,"error_type":"BadRequestError","error_message":"This model's maximum context length is 10 tokens."}"#,
        100,
        1000,
    ),
    (
        Some(500),
        r#"{"error":{"code":400,"message":"the request exceeds the available context size. try increasing","type":"exceed_context_size_error","n_prompt_tokens":14429,"n_ctx":8192}}"#,
        14_429,
        8192,
    ),
    (
        None,
        r#"{"error":"The number of tokens to keep from the initial prompt is greater than the context length"}"#,
        100,
        1000,
    ),
    (None, "Trying to keep the first 5000 tokens when context the overflows.", 100, 1000),
    (
        Some(400),
        r#"{"error":"This model's maximum prompt length is 131072 but the request contains 136973 tokens."}"#,
        136_973,
        131_072,
    ),
    (
        Some(413),
        r#"{"error":{"message":"Please reduce the length of the messages or completion.","code":"context_length_exceeded"}}"#,
        100,
        1000,
    ),
    (Some(400), r#"{"message":"Input is too long for requested model."}"#, 100, 1000),
    (
        Some(400),
        r#"{"error":{"message":"Your request exceeded model token limit: 8192 (requested: 9000)"}}"#,
        9000,
        8192,
    ),
    (Some(400), r#"{"error":{"message":"context window exceeds limit (2013)"}}"#, 100, 1000),
    (
        Some(400),
        r#"{"error":{"message":"prompt token count of 130000 exceeds the limit of 128000"}}"#,
        130_000,
        128_000,
    ),
    (
        Some(400),
        r#"{"message":"Prompt contains 40000 tokens, too large for model with 32768 maximum context length"}"#,
        100,
        1000,
    ),
    (Some(400), r#"{"error":"prompt too long; exceeded max context length by 3072 tokens"}"#, 100, 1000),
    (None, r#"{"error":"tokens to keep is greater than the context length (150000>=128000)"}"#, 150_000, 128_000),
];

#[test]
fn overflows_are_told_from_everything_else_with_their_numbers() {
    for (status, body, current, max) in OVERFLOWS {
        let failure = of(*status, body);
        assert_eq!((failure.code, failure.retryable), (ContextOverflow, false), "{body}");
        let details = failure.details.expect("details");
        assert_eq!((&details["currentTokens"], &details["maxTokens"]), (&json!(current), &json!(max)), "{body}");
        assert!(details["suggestion"].is_string());
    }
}

#[test]
fn a_window_that_is_exceeded_by_so_many_tokens_is_what_is_left_of_the_request() {
    let large = CallContext { estimate: 27_458, window: 32_768, ..origin() };
    let said =
        |excess: &str| format!(r#"{{"error":"prompt too long; exceeded max context length by {excess} tokens"}}"#);
    for (excess, max) in [("12737", 14_721), ("12,737", 14_721), ("27458", 32_768), ("0", 32_768)] {
        let failure = large.classify(Some(400), None, &said(excess));
        assert_eq!(failure.code, ContextOverflow, "{excess}");
        assert_eq!(failure.details.expect("details")["maxTokens"], json!(max), "{excess}");
    }
}

#[test]
fn a_refusal_without_words_is_an_overflow_only_when_the_request_nearly_filled_the_window() {
    assert_eq!(of(Some(413), "").code, ProviderBadRequest);
    let large = CallContext { estimate: 900, ..origin() };
    assert_eq!(large.classify(Some(413), None, "").code, ContextOverflow);
    assert_eq!(large.classify(Some(400), None, " ").code, ContextOverflow);
    assert_eq!(large.classify(Some(400), None, r#"{"error":"no such field"}"#).code, ProviderBadRequest);
    assert_eq!((origin().empty().code, origin().empty().retryable), (ProviderUnavailable, true));
    assert_eq!(CallContext { estimate: 1001, ..origin() }.empty().code, ContextOverflow);
}

#[test]
fn only_the_room_for_the_answer_is_missing() {
    assert_eq!(of(Some(400), OVERFLOWS[3].1).fits, Some(200_000 - 178_959 - 64));
    assert_eq!(of(Some(400), OVERFLOWS[2].1).fits, None);
}

#[test]
fn rate_limits_tell_how_long_to_wait() {
    let shapes: &[(Option<u16>, &str, Option<u64>)] = &[
        (
            Some(429),
            r#"{"error":{"message":"Rate limit reached for o4-mini on tokens per min (TPM): Limit 200000. Please try again in 1.574s.","type":"tokens","code":"rate_limit_exceeded"}}"#,
            Some(1574),
        ),
        (
            Some(413),
            r#"{"error":{"message":"Request too large for model m on tokens per minute (TPM): Limit 12000, Requested 11137, please reduce your message size","type":"tokens","code":"rate_limit_exceeded"}}"#,
            None,
        ),
        (
            Some(429),
            r#"{"type":"error","error":{"type":"usage_limit_reached","resets_in_seconds":13872},"status_code":429}"#,
            Some(13_872_000),
        ),
        (
            Some(429),
            r#"{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed the rate limit of 20,000 input tokens per minute"}}"#,
            None,
        ),
        (
            Some(429),
            r#"{"error":{"code":429,"message":"You exceeded your current quota","status":"RESOURCE_EXHAUSTED","details":[{"violations":[{"quotaId":"GenerateRequestsPerMinutePerProjectPerModel-FreeTier"}]},{"retryDelay":"22s"}]}}"#,
            Some(22_000),
        ),
        (None, r#"{"error":{"code":429,"message":"slow down","metadata":{}}}"#, None),
        (Some(429), r#"{"code":"Throttling.AllocationQuota","message":"too many"}"#, None),
        (None, r#"{"error":{"message":"rate limited","code":"rate_limit_exceeded"}}"#, None),
        (Some(429), r#"{"error":"too many"}"#, None),
        (Some(429), "", None),
    ];
    for (status, body, wait) in shapes {
        let failure = of(*status, body);
        assert_eq!((failure.code, failure.retryable), (ProviderRateLimited, true), "{body}");
        assert_eq!(failure.wait.map(|wait| wait.as_millis() as u64), *wait, "{body}");
    }
    let longer = origin().classify(Some(429), Some(Duration::from_secs(9)), shapes[0].1);
    assert_eq!(longer.wait, Some(Duration::from_secs(9)));
}

#[test]
fn a_single_request_over_the_limit_per_minute_is_not_repeated() {
    let failure = of(
        Some(413),
        r#"{"error":{"message":"Request too large for model m on tokens per minute (TPM): Limit 12,000, Requested 14,137, please reduce your message size","type":"tokens","code":"rate_limit_exceeded"}}"#,
    );
    assert_eq!((failure.code, failure.retryable), (ProviderRateLimited, false));
}

#[test]
fn an_empty_purse_is_never_retried() {
    for (status, body) in [
        (
            429,
            r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#,
        ),
        (429, r#"{"error":"You exceeded your current quota, please check your plan and billing details."}"#),
        (402, r#"{"error":{"code":402,"message":"Insufficient credits"}}"#),
        (
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the API."}}"#,
        ),
        (
            429,
            r#"{"error":{"code":429,"status":"RESOURCE_EXHAUSTED","details":[{"violations":[{"quotaId":"GenerateRequestsPerDayPerProject"}]}]}}"#,
        ),
    ] {
        let failure = of(Some(status), body);
        assert_eq!((failure.code, failure.retryable), (ProviderRateLimited, false), "{body}");
        assert!(failure.suggestion.expect("a suggestion").contains("credit"));
    }
}

#[test]
fn the_rest_by_status_and_type() {
    for (status, body, code, retryable) in [
        (
            Some(401),
            r#"{"error":{"message":"Incorrect API key provided: s3cretkey","code":"invalid_api_key"}}"#,
            ProviderAuth,
            false,
        ),
        (Some(403), "forbidden", ProviderAuth, false),
        (
            None,
            r#"{"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"}}"#,
            ProviderAuth,
            false,
        ),
        (
            Some(529),
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            ProviderUnavailable,
            true,
        ),
        (
            None,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            ProviderUnavailable,
            true,
        ),
        (
            Some(503),
            r#"{"error":{"code":503,"status":"UNAVAILABLE","message":"overloaded"}}"#,
            ProviderUnavailable,
            true,
        ),
        (Some(502), "<html>Bad Gateway</html>", ProviderUnavailable, true),
        (Some(408), "", ProviderUnavailable, true),
        (
            Some(404),
            r#"{"error":{"message":"The model m1 does not exist","code":"model_not_found"}}"#,
            ProviderBadRequest,
            false,
        ),
        (
            Some(400),
            r#"{"error":{"message":"Unknown parameter","type":"invalid_request_error"}}"#,
            ProviderBadRequest,
            false,
        ),
        (None, r#"{"error":{"message":"Bad","type":"invalid_request_error"}}"#, ProviderBadRequest, false),
        (Some(400), r#"{"error":{"message":"blocked","code":"content_filter"}}"#, ContentPolicy, false),
        (
            Some(403),
            r#"{"error":{"code":403,"message":"Input was flagged","metadata":{"reasons":["violence"]}}}"#,
            ContentPolicy,
            false,
        ),
        (None, "something odd", ProviderUnavailable, true),
    ] {
        let failure = of(status, body);
        assert_eq!((failure.code, failure.retryable), (code, retryable), "{body}");
        assert!(failure.message.starts_with("acme: "), "{}", failure.message);
        assert!(!failure.message.contains("s3cretkey") && !failure.message.contains('<'), "{}", failure.message);
    }
    assert!(of(Some(401), "").suggestion.expect("a suggestion").contains("daemon-agent key set acme"));
    assert!(of(Some(404), "").suggestion.expect("a suggestion").contains("acme/m1"));
}

#[test]
fn what_looks_like_a_key_is_not_repeated() {
    let failure =
        of(Some(401), r#"{"error":{"message":"Incorrect API key provided: sk-abcd****wxyz. Bearer abc.def-123456"}}"#);
    assert!(!failure.message.contains("abcd") && !failure.message.contains("def-123456"), "{}", failure.message);
}
