//! From the [`Rule`]s of a site to those that the engine applies.
//!
//! Called by `convert`, and by the checks of a configuration that try rules out. Pure.

use std::ops::RangeInclusive;
use std::sync::Arc;

use flash_engine::{
    Access, AuthRule, Bandwidth, Concurrency, ErrorPage, FieldChanges, PathPattern, PathRule, PathRules,
    Rate, Rates, Redirect, SiteId, Target, Users,
};
use flash_http::response::Status;

use super::admission::Clients;
use super::rule_options::{HeadField, Rule};
use super::text_formats::rate_parts;

/// The rules as the engine has them. Their aliases are numbered from this one on.
pub(crate) fn path_rules(rules: &[Rule], SiteId(first_alias): SiteId) -> PathRules {
    let mut aliases = (first_alias..).map(SiteId);
    let fields = |fields: &[HeadField]| {
        fields.iter().map(|field| (field.name.clone(), field.value.clone())).collect::<Vec<_>>()
    };
    let mut rule = |rule: &Rule| PathRule {
        paths: PathPattern::new(&rule.path),
        hashed: rule.hashed,
        except: rule.except.iter().map(|path| PathPattern::new(path)).collect(),
        access: Access { allow: Clients::networks_of(&rule.allow), deny: Clients::networks_of(&rule.deny) },
        fields: FieldChanges {
            set: fields(&rule.set),
            add: fields(&rule.add),
            remove: rule.remove.clone(),
            origins: rule.cors.clone(),
            with_errors: rule.errors,
        },
        redirect: rule
            .redirect
            .as_ref()
            .map(|target| Redirect { status: Status(rule.status.code()), target: Target::new(target) }),
        rewrite: rule.rewrite.as_deref().map(Target::new),
        extensions: rule.try_extensions.iter().map(|extension| extension.as_str().into()).collect(),
        fallback: rule.fallback.as_ref().map(|path| path.clone().into_bytes()),
        alias: rule.alias.as_ref().and_then(|_| aliases.next()),
        error_page: rule
            .error_html
            .as_deref()
            .map(|html| ErrorPage { statuses: statuses(&rule.statuses), html: html.into() }),
        rates: Rates {
            of_client: rule.rate.as_deref().and_then(|text| rate(text, rule.burst)),
            of_all: rule.total_rate.as_deref().and_then(|text| rate(text, 0)),
        },
        concurrency: Concurrency {
            of_client: bound(rule.concurrency),
            of_all: bound(rule.total_concurrency),
        },
        bandwidth: Bandwidth {
            of_client: bytes_per_s(rule.bandwidth),
            of_all: bytes_per_s(rule.total_bandwidth),
        },
        users: Users::new(rule.stored_users.iter().cloned()).map(Arc::new),
        auth: rule.auth.as_ref().map(|path| AuthRule {
            path: path.clone().into_bytes(),
            fields: rule.auth_fields.clone().into(),
        }),
    };
    PathRules::new(rules.iter().map(&mut rule).collect())
}

/// A bound of bytes per second; None for 0 bits per second.
fn bytes_per_s(bits_per_s: u64) -> Option<u64> {
    (bits_per_s > 0).then_some(bits_per_s / 8)
}

/// A bound of requests; None for 0.
fn bound(most: u64) -> Option<u32> {
    u32::try_from(most).ok().filter(|most| *most > 0)
}

/// The rate that is written so. Without a burst, all requests of its time may come at once.
fn rate(text: &str, burst: u64) -> Option<Rate> {
    let (number, time_us) = rate_parts(text)?;
    let burst = u32::try_from(burst).ok().filter(|burst| *burst > 0).unwrap_or(number);
    Some(Rate { interval_us: (time_us / u64::from(number)).max(1), burst })
}

/// The statuses of errors that are written so; all if there are none.
fn statuses(texts: &[String]) -> Vec<RangeInclusive<u16>> {
    if texts.is_empty() {
        return vec![400..=599];
    }
    let number = |text: &str, digit: &str| text.replace('x', digit).parse().unwrap_or_default();
    texts.iter().map(|text| number(text, "0")..=number(text, "9")).collect()
}
