//! Where the store is: `file:///folder`, or `s3://bucket/prefix?endpoint=…&region=…` with the keys in the environment.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use object_store::{
    BackoffConfig, ClientOptions, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder},
};

/// A bucket that sends nothing for this long is given up; readers resume.
pub const BUCKET_SILENCE_TIMEOUT: Duration = Duration::from_secs(20);
/// How often a request to a bucket is repeated.
const MAX_RETRIES: usize = 3;
/// How long a request to a bucket may be repeated.
const RETRY_TIMEOUT: Duration = Duration::from_secs(20);

/// Where the store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreAddress {
    Folder(PathBuf),
    Bucket {
        bucket: String,
        /// Prefix of every key, without slashes at its ends.
        prefix: String,
        /// For a store that is not Amazon's.
        endpoint: Option<String>,
        region: Option<String>,
    },
}

/// Why an address is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadStoreAddress(pub String);

impl StoreAddress {
    /// The folder beside the rest of the Board's data.
    pub fn beside(data: &Path) -> Self {
        let data = std::path::absolute(data).unwrap_or_else(|_| data.to_owned());
        Self::Folder(data.join("artifacts"))
    }

    /// Parses the configured address.
    pub fn parse(text: &str) -> Result<Self, BadStoreAddress> {
        if let Some(path) = text.strip_prefix("file://") {
            let path = PathBuf::from(path);
            return match path.is_absolute() {
                true => Ok(Self::Folder(path)),
                false => Err(BadStoreAddress(format!("{text}: write file:/// and an absolute path"))),
            };
        }
        let Some(rest) = text.strip_prefix("s3://") else {
            return Err(BadStoreAddress(format!("{text}: expected file:///folder or s3://bucket/prefix")));
        };
        let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
        if bucket.is_empty() {
            return Err(BadStoreAddress(format!("{text}: the bucket has no name")));
        }
        let (mut endpoint, mut region) = (None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("endpoint", value)) => endpoint = Some(value.to_owned()),
                Some(("region", value)) => region = Some(value.to_owned()),
                _ => {
                    return Err(BadStoreAddress(format!(
                        "{text}: unknown setting {pair:?}; there are endpoint and region"
                    )));
                }
            }
        }
        if endpoint.as_deref().is_some_and(|endpoint| !endpoint.starts_with("https://") && !is_loopback(endpoint)) {
            return Err(BadStoreAddress(format!("{text}: an endpoint on another machine must be https://…")));
        }
        let (bucket, prefix) = (bucket.to_owned(), prefix.trim_matches('/').to_owned());
        Ok(Self::Bucket { bucket, prefix, endpoint, region })
    }

    /// The client of a bucket. Keys, and what the address leaves open, come from the usual environment variables
    /// (`AWS_ACCESS_KEY_ID` …).
    pub(super) fn bucket(&self) -> io::Result<AmazonS3> {
        let Self::Bucket { bucket, endpoint, region, .. } = self else {
            return Err(io::Error::other("a folder is no bucket"));
        };
        let client = ClientOptions::new()
            .with_timeout_disabled()
            .with_connect_timeout(Duration::from_secs(5))
            .with_read_timeout(BUCKET_SILENCE_TIMEOUT)
            .with_allow_http(endpoint.as_deref().is_some_and(is_loopback));
        let backoff = BackoffConfig { max_backoff: Duration::from_secs(2), ..BackoffConfig::default() };
        let retry = RetryConfig { backoff, max_retries: MAX_RETRIES, retry_timeout: RETRY_TIMEOUT };
        let mut builder =
            AmazonS3Builder::from_env().with_bucket_name(bucket).with_client_options(client).with_retry(retry);
        if let Some(endpoint) = endpoint {
            builder = builder.with_endpoint(endpoint);
        }
        if let Some(region) = region {
            builder = builder.with_region(region);
        }
        Ok(builder.build()?)
    }
}

/// Whether it is plain HTTP to this machine.
fn is_loopback(endpoint: &str) -> bool {
    let Some(rest) = endpoint.strip_prefix("http://") else { return false };
    let host = rest.split(['/', '?', '#']).next().unwrap_or("");
    let host = host.rsplit_once(':').map_or(host, |(host, _)| host);
    matches!(host, "127.0.0.1" | "localhost" | "[::1]")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_a_folder_or_a_bucket() {
        assert_eq!(StoreAddress::parse("file:///srv/blobs"), Ok(StoreAddress::Folder("/srv/blobs".into())));
        let found =
            StoreAddress::parse("s3://team-blobs/viber/a/?region=eu-1&endpoint=http://127.0.0.1:9000").expect("good");
        let StoreAddress::Bucket { bucket, prefix, endpoint, region } = found else { panic!("a bucket") };
        assert_eq!((bucket.as_str(), prefix.as_str()), ("team-blobs", "viber/a"));
        assert_eq!((endpoint.as_deref(), region.as_deref()), (Some("http://127.0.0.1:9000"), Some("eu-1")));
        for bad in ["", "/srv", "file://srv", "s3://", "s3://b?x=1", "s3://b?endpoint=http://10.0.0.1", "gs://b"] {
            assert!(StoreAddress::parse(bad).is_err(), "{bad}");
        }
        assert!(!is_loopback("http://127.0.0.1.evil.example"));
    }
}
