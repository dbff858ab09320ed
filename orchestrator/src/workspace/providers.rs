//! `/providers/<id>/…`: a streaming proxy to one model provider that swaps the Stand-in for the key (spec X-13,
//! decision 15). The Harness never holds a key, and the key never goes anywhere but to its provider.

use super::SandboxEvent;
use super::outages::Outages;
use axum::body::Body;
use axum::extract::{Path as UrlPath, Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use futures_util::TryStreamExt;
use jr2_shared::harness::{ErrorBody, HEADER_CUSTODIAN, HarnessConfig, Provider};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// Largest request body in bytes: beyond any context window's text.
const REQUEST_MAX_BYTES: u64 = 32 << 20;
/// How long a provider may take to accept a connection; the answer itself has the Harness's own limits.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// What a Stand-in starts with.
const STAND_IN_PREFIX: &str = "jr2-held-";
/// Headers that may carry a key (spec X-1).
const CREDENTIAL_HEADERS: [&str; 4] = ["authorization", "x-api-key", "x-goog-api-key", "api-key"];
/// Headers of one hop, never passed on (RFC 9110 section 7.6.1), and those that name or meter the hop.
const HOP_HEADERS: [&str; 12] = [
    "connection",
    "cookie",
    "expect",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Where a provider's key comes from.
#[derive(Clone, PartialEq, Eq)]
pub enum ProviderKey {
    /// It takes none.
    None,
    /// This environment variable of the Orchestrator, read at each request.
    Env(String),
    /// Given.
    Value(String),
}

impl std::fmt::Debug for ProviderKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Env(name) => write!(f, "Env({name})"),
            Self::Value(_) => f.write_str("Value(…)"),
        }
    }
}

/// A model provider with its key.
#[derive(Clone, Debug, PartialEq)]
pub struct ProviderBinding {
    /// The provider as `jr2.yaml` has it: `base_url` is the real one.
    pub provider: Provider,
    /// Its key.
    pub key: ProviderKey,
}

impl ProviderBinding {
    /// What the Harness sends instead of the key.
    pub fn stand_in(&self) -> Option<String> {
        match &self.key {
            ProviderKey::None => None,
            ProviderKey::Env(name) => Some(format!("{STAND_IN_PREFIX}{name}")),
            ProviderKey::Value(_) => Some(format!("{STAND_IN_PREFIX}{}", self.provider.id)),
        }
    }

    fn key_value(&self) -> Result<Option<HeaderValue>, String> {
        let value = match &self.key {
            ProviderKey::None => return Ok(None),
            ProviderKey::Value(value) => value.clone(),
            ProviderKey::Env(name) => std::env::var(name)
                .map_err(|_| format!("the environment variable {name} with the provider's key is not set"))?,
        };
        let value = value.trim_end_matches(['\r', '\n']);
        let mut header = HeaderValue::from_str(value)
            .ok()
            .filter(|_| !value.is_empty() && value.bytes().all(|b| (0x20..0x7f).contains(&b)))
            .ok_or("the provider's key is empty or not printable ASCII")?;
        header.set_sensitive(true);
        Ok(Some(header))
    }
}

/// Why a provider of the configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProviderError {
    /// Not a plain word.
    #[error("the provider id `{0}` is not made of letters, digits, `-`, `_` and `.`")]
    Id(String),
    /// Twice.
    #[error("the provider `{0}` is there twice")]
    Twice(String),
    /// Not an absolute http or https URL without query and credentials.
    #[error("the base URL of provider `{0}` is no plain http or https URL")]
    BaseUrl(String),
    /// The HTTP client could not be made.
    #[error("provider `{0}`: {1}")]
    Client(String, String),
}

struct Upstream {
    binding: ProviderBinding,
    base: reqwest::Url,
    client: reqwest::Client,
}

/// Every provider of the Instance, ready to be dialled.
pub struct Providers {
    all: BTreeMap<String, Upstream>,
    outages: Outages,
}

impl Providers {
    /// Checks the providers and makes their clients.
    pub fn new(bindings: Vec<ProviderBinding>, events: UnboundedSender<SandboxEvent>) -> Result<Self, ProviderError> {
        // A second call finds the first one's provider: either will do.
        crate::tls::install();
        let mut all = BTreeMap::new();
        for binding in bindings {
            let id = binding.provider.id.clone();
            let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
            if id.is_empty() || id.starts_with('.') || !id.bytes().all(plain) {
                return Err(ProviderError::Id(id.chars().take(64).collect()));
            }
            let base = base_url(&binding.provider.base_url).ok_or_else(|| ProviderError::BaseUrl(id.clone()))?;
            let client = client(&base).map_err(|e| ProviderError::Client(id.clone(), chain(&e)))?;
            if all.insert(id.clone(), Upstream { binding, base, client }).is_some() {
                return Err(ProviderError::Twice(id));
            }
        }
        Ok(Self { all, outages: Outages::new(events) })
    }

    /// What the Harness is told: paths on the Custodian and Stand-ins.
    pub fn harness_config(&self) -> HarnessConfig {
        let providers = self.all.iter().map(|(id, upstream)| Provider {
            base_url: format!("/providers/{id}"),
            stand_in: upstream.binding.stand_in(),
            ..upstream.binding.provider.clone()
        });
        HarnessConfig { providers: providers.collect() }
    }

    /// The routes.
    pub fn router(self: &Arc<Self>, sandbox: &str) -> Router {
        let state = (self.clone(), Arc::from(sandbox));
        Router::new().route("/providers/{id}/{*path}", axum::routing::any(forward)).with_state(state)
    }
}

fn base_url(text: &str) -> Option<reqwest::Url> {
    let url = reqwest::Url::parse(text).ok()?;
    let plain = matches!(url.scheme(), "http" | "https")
        && url.has_host()
        && url.username().is_empty()
        && url.password().is_none()
        && url.query().is_none()
        && url.fragment().is_none();
    plain.then_some(url)
}

fn client(base: &reqwest::Url) -> reqwest::Result<reqwest::Client> {
    let mut builder = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_LIMIT)
        .retry(reqwest::retry::never());
    let host = base.host_str().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    if host == "localhost" || address.is_ok_and(|a| a.is_loopback()) {
        builder = builder.no_proxy();
    }
    if base.scheme() == "http" {
        // Never speaks TLS (no redirect is followed), so a machine without root certificates can still use it.
        builder = builder.tls_danger_accept_invalid_certs(true);
    }
    builder.build()
}

async fn forward(
    State((providers, sandbox)): State<(Arc<Providers>, Arc<str>)>,
    UrlPath((id, _)): UrlPath<(String, String)>,
    request: Request,
) -> Response {
    let Some(upstream) = providers.all.get(&id) else {
        return refuse(StatusCode::NOT_FOUND, format!("there is no provider `{id}`"));
    };
    let (parts, body) = request.into_parts();
    let prefix = format!("/providers/{id}");
    let rest = parts.uri.path().strip_prefix(prefix.as_str()).unwrap_or_default();
    let Some(url) = target(&upstream.base, rest, parts.uri.query()) else {
        return refuse(StatusCode::BAD_REQUEST, "the path leaves the provider's base URL".to_owned());
    };
    let headers = match request_headers(&parts.headers, &upstream.binding) {
        Ok(headers) => headers,
        Err((status, message)) => return refuse(status, message),
    };
    let length = parts.headers.get(header::CONTENT_LENGTH).and_then(|v| v.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|n| n > REQUEST_MAX_BYTES) {
        return refuse(StatusCode::PAYLOAD_TOO_LARGE, "the request is larger than 32 MiB".to_owned());
    }
    let mut outgoing = upstream.client.request(parts.method, url).headers(headers);
    if length != Some(0) {
        outgoing = outgoing.body(bounded(body));
    }
    match outgoing.send().await {
        Ok(answer) => {
            providers.outages.heard(&sandbox, &id, refusal(answer.status()));
            pass_on(answer)
        }
        Err(error) => {
            let cause = if error.is_connect() { "it cannot be reached" } else { "the connection broke" };
            providers.outages.heard(&sandbox, &id, Some(cause.to_owned()));
            tracing::warn!(provider = %id, error = %chain(&error.without_url()), "custodian.provider_unreachable");
            let body = ErrorBody { error: format!("the provider `{id}` cannot be reached"), kept: None };
            (StatusCode::BAD_GATEWAY, [(HEADER_CUSTODIAN, "unreachable")], Json(body)).into_response()
        }
    }
}

/// Why an answer is no word of a model: the server failed, or takes no more.
fn refusal(status: StatusCode) -> Option<String> {
    let refuses = status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS;
    refuses.then(|| format!("HTTP {}", status.as_u16()))
}

/// The target below the base URL, or `None` when the path could mean another place.
fn target(base: &reqwest::Url, rest: &str, query: Option<&str>) -> Option<reqwest::Url> {
    let lower = rest.to_ascii_lowercase();
    let hidden = ["%2e", "%2f", "%5c", "%00"].iter().any(|code| lower.contains(code));
    let climbs = rest.split('/').any(|part| part == ".." || part == ".");
    if hidden || climbs || rest.contains('\\') || !rest.starts_with('/') {
        return None;
    }
    let root = base.path().trim_end_matches('/');
    let mut url = base.clone();
    url.set_path(&format!("{root}{rest}"));
    url.set_query(query);
    let same = url.origin() == base.origin() && url.path().strip_prefix(root).is_some_and(|p| p.starts_with('/'));
    same.then_some(url)
}

/// The request's headers for the provider: no hop headers, no credential but the swapped one (spec X-13).
fn request_headers(given: &HeaderMap, binding: &ProviderBinding) -> Result<HeaderMap, (StatusCode, String)> {
    let mut headers = without_hop(given);
    let stand_in = binding.stand_in();
    let mut swapped = false;
    for name in CREDENTIAL_HEADERS {
        headers.remove(name);
        let mut values = given.get_all(name).iter();
        let (first, second) = (values.next(), values.next());
        if second.is_some() {
            return Err((StatusCode::BAD_REQUEST, format!("the header {name} is there twice")));
        }
        let (Some(value), Some(stand_in)) = (first.and_then(|v| v.to_str().ok()), stand_in.as_deref()) else {
            continue;
        };
        let scheme = match value.split_once(' ') {
            Some((scheme, credential)) if credential == stand_in => Some(scheme),
            None if value == stand_in => None,
            _ => continue,
        };
        let key = binding.key_value().map_err(|why| (StatusCode::FORBIDDEN, format!("jr2 custodian: {why}")))?;
        let Some(key) = key else { continue };
        let value = match scheme {
            Some(scheme) => {
                let mut bytes = format!("{scheme} ").into_bytes();
                bytes.extend_from_slice(key.as_bytes());
                let mut value = HeaderValue::from_bytes(&bytes)
                    .map_err(|_| (StatusCode::FORBIDDEN, "jr2 custodian: the key is no header value".to_owned()))?;
                value.set_sensitive(true);
                value
            }
            None => key,
        };
        headers.insert(HeaderName::from_static(name), value);
        swapped = true;
    }
    match stand_in {
        Some(stand_in) if !swapped => Err((
            StatusCode::FORBIDDEN,
            format!("jr2 custodian: {} needs the stand-in {stand_in}", binding.provider.id),
        )),
        _ => Ok(headers),
    }
}

fn without_hop(given: &HeaderMap) -> HeaderMap {
    let named: Vec<String> = given
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(',').map(|n| n.trim().to_ascii_lowercase()))
        .collect();
    let passes = |name: &str| !HOP_HEADERS.contains(&name) && !named.iter().any(|n| n == name);
    given.iter().filter(|(name, _)| passes(name.as_str())).map(|(n, v)| (n.clone(), v.clone())).collect()
}

fn bounded(body: Body) -> reqwest::Body {
    let mut left = REQUEST_MAX_BYTES;
    let stream = body.into_data_stream().map_err(std::io::Error::other).and_then(move |chunk| {
        let fits = left.checked_sub(chunk.len() as u64);
        left = fits.unwrap_or(0);
        std::future::ready(
            fits.map(|_| chunk).ok_or_else(|| std::io::Error::other("the request is larger than 32 MiB")),
        )
    });
    reqwest::Body::wrap_stream(stream)
}

fn pass_on(answer: reqwest::Response) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = answer.status();
    let mut headers = without_hop(answer.headers());
    headers.remove(header::SET_COOKIE);
    // Only the Custodian itself says this.
    headers.remove(HEADER_CUSTODIAN);
    *response.headers_mut() = headers;
    *response.body_mut() = Body::from_stream(answer.bytes_stream());
    response
}

fn refuse(status: StatusCode, error: String) -> Response {
    (status, Json(ErrorBody { error, kept: None })).into_response()
}

/// An error with its causes in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn binding(key: ProviderKey) -> ProviderBinding {
        let provider =
            serde_json::from_value(serde_json::json!({"id": "p", "baseUrl": "http://127.0.0.1:9/v1"})).unwrap();
        ProviderBinding { provider, key }
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_str(v).unwrap())).collect()
    }

    #[test]
    fn the_stand_in_is_swapped_in_both_spellings() {
        let binding = binding(ProviderKey::Value("sk-real\n".into()));
        let out = request_headers(&headers(&[("authorization", "Bearer jr2-held-p"), ("x-a", "1")]), &binding).unwrap();
        assert_eq!(out["authorization"], "Bearer sk-real");
        assert_eq!(out["x-a"], "1");
        assert_eq!(
            request_headers(&headers(&[("x-api-key", "jr2-held-p")]), &binding).unwrap()["x-api-key"],
            "sk-real"
        );
        let (status, message) = request_headers(&headers(&[("authorization", "Bearer other")]), &binding).unwrap_err();
        assert_eq!(status, StatusCode::FORBIDDEN);
        assert!(!message.contains("sk-real"));
        assert!(!format!("{binding:?}").contains("sk-real"));
    }

    #[test]
    fn a_credential_that_was_not_swapped_is_removed() {
        let out = request_headers(
            &headers(&[("authorization", "Bearer mine"), ("cookie", "c")]),
            &binding(ProviderKey::None),
        );
        assert!(out.unwrap().is_empty());
        let mut twice = headers(&[("authorization", "Bearer a")]);
        twice.append("authorization", HeaderValue::from_static("Bearer b"));
        assert_eq!(request_headers(&twice, &binding(ProviderKey::None)).unwrap_err().0, StatusCode::BAD_REQUEST);
    }

    #[test]
    fn hop_headers_stay_on_their_hop() {
        let out = without_hop(&headers(&[
            ("connection", "close, X-Mine"),
            ("x-mine", "1"),
            ("te", "trailers"),
            ("accept", "a"),
        ]));
        assert_eq!(out.len(), 1);
        assert_eq!(out["accept"], "a");
    }

    #[test]
    fn paths_stay_below_the_base_url() {
        let base = reqwest::Url::parse("https://h/v1/").unwrap();
        assert_eq!(target(&base, "/chat", Some("a=b")).unwrap().as_str(), "https://h/v1/chat?a=b");
        for bad in ["/../x", "/a/..", "/%2e%2e/x", "/a%2Fb", "/a\\b", "x", "/./x"] {
            assert!(target(&base, bad, None).is_none(), "{bad}");
        }
        for bad in ["ftp://h", "https://u:p@h/", "https://h/?q", "/v1", ""] {
            assert!(base_url(bad).is_none(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn no_path_leaves_the_provider(rest in "[/a.%2eEfF\\\\@:?#;]{0,24}") {
            let base = reqwest::Url::parse("https://h/v1").unwrap();
            if let Some(url) = target(&base, &rest, None) {
                prop_assert_eq!(url.origin(), base.origin());
                prop_assert!(url.path().starts_with("/v1/"));
                prop_assert!(!url.path().contains("/.."));
            }
        }
    }
}
