//! The options by themselves: names, defaults, sources and paths.

use std::ffi::OsStr;
use std::path::Path;

use super::super::table::{Given, Origin};
use super::*;

#[test]
fn names_follow_from_the_key() {
    let spec = find("cache_memory").unwrap();
    assert_eq!(spec.flag(), "cache-memory");
    assert_eq!(spec.variable(), "FLASH_CACHE_MEMORY");
    assert!(find("cache-memory").is_none());
}

#[test]
fn every_default_is_a_value_of_its_option() {
    for spec in OPTIONS {
        if let DefaultValue::Text(text) = spec.default {
            let mut into = Overrides::default();
            assert_eq!(spec.set(&mut into, &[OsStr::new(text)], Origin::Default), Ok(()), "{}", spec.key);
            assert_ne!(into, Overrides::default(), "{}", spec.key);
        }
    }
    assert_eq!(Overrides::defaults().helper_idle.unwrap().value, 10_000);
}

#[test]
fn the_upper_source_wins() {
    let given = |value| Some(Given { value, origin: Origin::Flag });
    let upper = Overrides { workers: given(1), ..Overrides::defaults() };
    let below = Overrides { workers: given(2), helpers_max: given(3), ..Overrides::defaults() };
    let merged = Overrides { helpers_max: None, ..upper }.or(below);
    assert_eq!(merged.workers.unwrap().value, 1);
    assert_eq!(merged.helpers_max.unwrap().value, 3);
}

#[test]
fn paths_start_where_they_were_named() {
    let mut overrides = Overrides::defaults();
    for (key, text) in [("root", "./www/."), ("config", "/etc/flash.toml"), ("log_file", "-")] {
        find(key).unwrap().set(&mut overrides, &[OsStr::new(text)], Origin::Flag).unwrap();
    }
    table::rebase(&mut overrides, Path::new("/home/me"));
    assert_eq!(overrides.root.unwrap().value, Path::new("/home/me/www"));
    assert_eq!(overrides.config.unwrap().value, Path::new("/etc/flash.toml"));
    assert_eq!(overrides.log_file.unwrap().value, PathOrWord::Word);
}
