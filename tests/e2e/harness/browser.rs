//! Chromium without a window.

use std::process::Command;

use super::Folder;
use super::skip;

/// The document at an address after the browser has run its scripts; None, with the reason printed, without a browser.
pub(crate) fn browse(folder: &Folder, url: &str, words: &[&str]) -> Option<String> {
    if Command::new("chromium").arg("--version").output().is_err() {
        skip("chromium is not installed");
        return None;
    }
    let profile = format!("--user-data-dir={}", folder.path("profile").display());
    let own = ["120", "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom", &profile];
    let output = Command::new("timeout").args(own).args(words).arg(url).output().expect("timeout");
    Some(String::from_utf8(output.stdout).expect("UTF-8"))
}
