//! The error responses of providers and their kinds.
//!
//! The bodies are written from the published error formats of the providers; recorded ones are in the
//! conformance suite.

use minke_llm::classify::{RetryDelay, classify_error_json, classify_response};
use minke_llm::{ProviderError, ProviderErrorKind, WireScheme};
use minke_model::ModelErrorKind;
use serde_json::json;

const SCHEMES: [WireScheme; 4] =
    [WireScheme::Anthropic, WireScheme::OpenaiResponses, WireScheme::OpenaiChat, WireScheme::Gemini];

/// The most shown bytes of the provider's text.
const SHOWN_BYTES: usize = 500;

fn classify_answer(scheme: WireScheme, status: u16, body: &str) -> ProviderError {
    classify_response(scheme, status, RetryDelay::default(), body.as_bytes())
}

#[test]
fn statuses_are_retried_as_the_specification_says() {
    let retried = [408, 409, 425, 429, 500, 502, 503, 504, 529];
    let not_retried = [400, 401, 403, 404, 422];
    for scheme in SCHEMES {
        for body in ["", "{}", r#"{"error":{"message":"Something happened."}}"#, "plain words", "<p>page</p>"]
        {
            for status in retried {
                let problem = classify_answer(scheme, status, body);
                assert_eq!(
                    problem.kind.model_error_kind(),
                    ModelErrorKind::Transient,
                    "{scheme:?} {status} {body}"
                );
                assert_eq!(problem.status, Some(status));
                assert!(!problem.text.is_empty());
            }
            for status in not_retried {
                let kind = classify_answer(scheme, status, body).kind.model_error_kind();
                assert_eq!(kind, ModelErrorKind::Permanent, "{scheme:?} {status} {body}");
            }
            assert_eq!(
                classify_answer(scheme, 413, body).kind,
                ProviderErrorKind::ContextTooLong,
                "{scheme:?} {body}"
            );
        }
    }
}

#[test]
fn words_say_what_a_status_does_not() {
    use ProviderErrorKind::*;
    use WireScheme::{Anthropic, Gemini, OpenaiChat, OpenaiResponses};
    let cases = [
        (
            OpenaiChat,
            429,
            r#"{"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","code":"insufficient_quota"}}"#,
            NoCredit,
        ),
        (
            OpenaiChat,
            429,
            r#"{"error":{"message":"Request too large for m on tokens per min (TPM): Limit 30000, Requested 40000.","code":"rate_limit_exceeded"}}"#,
            ContextTooLong,
        ),
        (
            OpenaiChat,
            429,
            r#"{"error":{"message":"Rate limit reached for m on tokens per min. Limit 30000, Used 28000","code":"rate_limit_exceeded"}}"#,
            RateLimited,
        ),
        (OpenaiChat, 402, r#"{"error":{"message":"Insufficient Balance","type":"unknown_error"}}"#, NoCredit),
        (
            OpenaiChat,
            429,
            r#"{"error":{"message":"Too many tokens per minute for the context window of this tier"}}"#,
            RateLimited,
        ),
        (
            OpenaiChat,
            402,
            r#"{"error":{"code":402,"message":"This request requires more credits, or fewer max_tokens."}}"#,
            NoCredit,
        ),
        (
            Anthropic,
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the API."}}"#,
            NoCredit,
        ),
        (
            Anthropic,
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 205000 tokens > 200000 maximum"}}"#,
            ContextTooLong,
        ),
        (
            Anthropic,
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000"}}"#,
            ContextTooLong,
        ),
        (
            Anthropic,
            400,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"max_tokens: 90000 > 64000, which is the maximum allowed number of output tokens"}}"#,
            BadRequest,
        ),
        (
            Anthropic,
            404,
            r#"{"type":"error","error":{"type":"not_found_error","message":"model: m-9"}}"#,
            UnknownModel,
        ),
        (Anthropic, 403, r#"{"type":"error","error":{"type":"permission_error","message":"no"}}"#, Forbidden),
        (
            Anthropic,
            500,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            Overloaded,
        ),
        (
            OpenaiResponses,
            400,
            r#"{"error":{"message":"Your input exceeds the context window of this model.","code":"context_length_exceeded"}}"#,
            ContextTooLong,
        ),
        (
            OpenaiResponses,
            400,
            r#"{"error":{"message":"The requested model 'm-9' does not exist.","code":"model_not_found"}}"#,
            UnknownModel,
        ),
        (
            OpenaiChat,
            404,
            r#"{"error":{"message":"model \"m-9\" not found, try pulling it first","type":"api_error"}}"#,
            UnknownModel,
        ),
        (OpenaiChat, 400, r#"{"error":{"message":"m-9 is not a valid model ID","code":400}}"#, UnknownModel),
        (OpenaiChat, 404, r#"{"detail":"Not Found"}"#, BadRequest),
        (OpenaiChat, 404, "404 page not found", BadRequest),
        (
            OpenaiChat,
            400,
            r#"{"error":{"code":400,"message":"the request exceeds the available context size","type":"exceed_context_size_error"}}"#,
            ContextTooLong,
        ),
        (
            OpenaiChat,
            400,
            r#"{"code":"Client specified an invalid argument","error":"Incorrect API key provided: xx"}"#,
            InvalidKey,
        ),
        (
            OpenaiChat,
            400,
            r#"{"error":{"message":"The response was filtered","code":"content_filter","innererror":{"code":"ResponsibleAIPolicyViolation"}}}"#,
            Refused,
        ),
        (
            OpenaiChat,
            400,
            r#"{"error":{"message":"Provider returned error","code":400,"metadata":{"raw":"{\"error\":{\"message\":\"prompt is too long: 9 tokens > 8\"}}","provider_name":"X"}}}"#,
            ContextTooLong,
        ),
        (
            OpenaiChat,
            422,
            r#"{"detail":[{"loc":["body"],"msg":"Field required","type":"missing"}]}"#,
            BadRequest,
        ),
        (
            Gemini,
            400,
            r#"{"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"reason":"API_KEY_INVALID"}]}}"#,
            InvalidKey,
        ),
        (
            Gemini,
            403,
            r#"{"error":{"code":403,"message":"Method doesn't allow unregistered callers (callers without established identity).","status":"PERMISSION_DENIED"}}"#,
            NoKey,
        ),
        (
            Gemini,
            400,
            r#"{"error":{"code":400,"message":"The input token count (9) exceeds the maximum number of tokens allowed (8).","status":"INVALID_ARGUMENT"}}"#,
            ContextTooLong,
        ),
        (
            Gemini,
            400,
            r#"[{"error":{"code":400,"message":"Request payload size exceeds the limit: 20971520 bytes.","status":"INVALID_ARGUMENT"}}]"#,
            ContextTooLong,
        ),
        (
            Gemini,
            404,
            r#"{"error":{"code":404,"message":"models/m-9 is not found for API version v1beta","status":"NOT_FOUND"}}"#,
            UnknownModel,
        ),
        (
            Gemini,
            429,
            r#"{"error":{"code":429,"message":"You exceeded your current quota, please check your plan.\n* Quota exceeded for metric: x, limit: 50","status":"RESOURCE_EXHAUSTED"}}"#,
            RateLimited,
        ),
        (
            Gemini,
            429,
            r#"{"error":{"code":429,"message":"You exceeded your current quota.\n* Quota exceeded for metric: x, limit: 0, model: m","status":"RESOURCE_EXHAUSTED"}}"#,
            NoCredit,
        ),
        (
            Gemini,
            504,
            r#"{"error":{"code":504,"message":"Deadline expired","status":"DEADLINE_EXCEEDED"}}"#,
            Timeout,
        ),
        (Anthropic, 524, "<html><title>524: A timeout occurred</title></html>", Timeout),
        (Anthropic, 501, "", BadRequest),
    ];
    for (scheme, status, body, reason) in cases {
        assert_eq!(classify_answer(scheme, status, body).kind, reason, "{status} {body}");
    }
}

#[test]
fn an_error_inside_a_stream_is_sorted_by_its_words() {
    for (error, reason) in [
        (json!({"type": "overloaded_error", "message": "Overloaded"}), ProviderErrorKind::Overloaded),
        (json!({"type": "api_error", "message": "Internal server error"}), ProviderErrorKind::Server),
        (json!({"type": "rate_limit_error", "message": "slow"}), ProviderErrorKind::RateLimited),
        (json!({"type": "timeout_error", "message": "slow"}), ProviderErrorKind::Timeout),
        (json!({"type": "permission_error", "message": "no"}), ProviderErrorKind::Forbidden),
        (json!({"type": "authentication_error", "message": "no"}), ProviderErrorKind::InvalidKey),
        (json!({"type": "invalid_request_error", "message": "no"}), ProviderErrorKind::BadRequest),
        (json!({"code": "server_error", "message": "sorry"}), ProviderErrorKind::Server),
        (json!({"code": "rate_limit_exceeded", "message": "sorry"}), ProviderErrorKind::RateLimited),
        (json!({"code": 502, "message": "Provider returned error"}), ProviderErrorKind::Server),
        (json!({"code": "429", "message": "sorry"}), ProviderErrorKind::RateLimited),
        (
            json!({"error": {"code": 503, "status": "UNAVAILABLE", "message": "busy"}}),
            ProviderErrorKind::Overloaded,
        ),
        (json!({"status": "UNAVAILABLE", "message": "busy"}), ProviderErrorKind::Overloaded),
        (json!("something broke"), ProviderErrorKind::Server),
        (json!(null), ProviderErrorKind::Server),
        (
            json!({"message": "This model's maximum context length is 8 tokens."}),
            ProviderErrorKind::ContextTooLong,
        ),
    ] {
        let problem = classify_error_json(WireScheme::OpenaiChat, None, &error);
        assert_eq!(problem.kind, reason, "{error}");
        assert!(!problem.text.is_empty());
    }
}

#[test]
fn a_wait_comes_from_the_header_before_the_words() {
    let body = br#"{"error":{"message":"Please try again in 6s.","code":"rate_limit_exceeded"}}"#;
    let hint = |after_ms| RetryDelay { after_ms };
    assert_eq!(classify_response(WireScheme::OpenaiChat, 429, hint(None), body).retry_after_ms, Some(6_000));
    assert_eq!(classify_response(WireScheme::OpenaiChat, 429, hint(Some(9)), body).retry_after_ms, Some(9));
    let google = r#"{"error":{"code":429,"message":"Please retry in 5s","status":"RESOURCE_EXHAUSTED",
        "details":[{"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"34.4s"}]}}"#;
    assert_eq!(classify_answer(WireScheme::Gemini, 429, google).retry_after_ms, Some(34_400));
    let wrong = r#"{"error":{"message":"Wrong key, try again in 6s","type":"authentication_error"}}"#;
    assert_eq!(
        classify_answer(WireScheme::Anthropic, 401, wrong).retry_after_ms,
        None,
        "a wrong key is not retried"
    );
}

#[test]
fn what_is_shown_is_bounded_plain_and_never_nothing() {
    let page =
        "<html><head><title>502 Bad Gateway</title></head><body><h1>502 Bad Gateway</h1></body></html>";
    assert_eq!(classify_answer(WireScheme::Anthropic, 502, page).text, "502 Bad Gateway");
    assert_eq!(classify_answer(WireScheme::Anthropic, 502, "<h1>Bad  day</h1>").text, "Bad day");
    assert_eq!(classify_answer(WireScheme::Anthropic, 502, "").text, "status 502, without a message");
    let long = format!(r#"{{"error":{{"message":"{}"}}}}"#, "ü\\u001b[31m ".repeat(100_000));
    for body in [long.as_str(), &"x".repeat(1 << 20), &"<p>".repeat(1 << 18)] {
        let text = classify_answer(WireScheme::OpenaiChat, 500, body).text;
        assert!(!text.is_empty() && text.len() <= SHOWN_BYTES, "{}", text.len());
        assert!(!text.contains(char::is_control));
    }
    let bytes = classify_response(WireScheme::Gemini, 500, RetryDelay::default(), &[0xff, 0xfe, 0x00, b'a']);
    assert!(bytes.text.contains('a') && !bytes.text.contains('\0'), "{bytes:?}");
    let quoted = format!("{}{}{}", r#"{"error":"#.repeat(100), r#""deep""#, "}".repeat(100));
    assert_eq!(classify_answer(WireScheme::OpenaiChat, 500, &quoted).kind, ProviderErrorKind::Server);
}
