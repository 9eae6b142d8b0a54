//! The sentence above a report: who wins, by how much, and when it cannot be said.

use super::*;

fn sentence_of(run: Run) -> String {
    sentence::sentence(&View::new(&[run])).unwrap_or_default()
}

#[test]
fn the_sentence_names_the_winner_and_the_factor() {
    // At 0.95, the third level, p99 is 3 × 10 ms and 3 × 40 ms, all at 1,000 requests/s.
    let told = "At 1,000 requests/s flash's p99 is 30.0 ms, nginx's 120 ms: 4.00 times";
    assert_eq!(sentence_of(two()), format!("{told}. There is no interval: a rerun may differ."));
    let with_interval = |interval| Run { ratios: vec![p99("nginx", 4.0, Some(interval))], ..two() };
    assert_eq!(
        sentence_of(with_interval([3.5, 4.5])),
        format!("{told} (3.50 to 4.50). Ranges are 95 % intervals.")
    );
    let none = "At 1,000 requests/s flash's p99 is 30.0 ms, nginx's 120 ms: no difference can be told (0.900 to 9.00 times). \
                Ranges are 95 % intervals.";
    assert_eq!(sentence_of(with_interval([0.9, 9.0])), none);
}

#[test]
fn two_that_are_compared_with_a_third_get_the_widest_interval() {
    let mut run = two();
    run.subjects.push(subject("h2o", 2.0, &["0.20", "0.80", "0.95"]));
    run.subjects[0] = subject("flash", 9.0, &["0.20", "0.80", "0.95"]);
    run.ratios = vec![p99("nginx", 0.4, Some([0.3, 0.5])), p99("h2o", 0.2, Some([0.1, 0.25]))];
    let told = sentence_of(run);
    // nginx over h2o: 0.4 / 0.2, from 0.3 / 0.25 to 0.5 / 0.1. flash over h2o: 1 / 0.2.
    let wanted = "h2o's p99 is 60.0 ms, nginx's 120 ms: 2.00 times (1.20 to 5.00); flash's 270 ms: 5.00 times (4.00 to \
                  10.0). Ranges are 95 % intervals.";
    assert!(told.ends_with(wanted), "{told}");
}

#[test]
fn a_level_that_does_not_count_wins_nothing() {
    let mut run = two();
    run.subjects[0].levels[2].counts.failed = [("reset".to_owned(), 500)].into();
    let wanted = "nginx's p99 is 120 ms, flash's 30.0 ms: 5.00 % of the requests failed.";
    assert!(sentence_of(run.clone()).contains(wanted), "{}", sentence_of(run));
    run.subjects[1].levels[2].answered_per_s = 900.0;
    let told = sentence_of(run.clone());
    assert!(
        told.contains("no winner can be told") && told.contains("nginx: overloaded, with 90.0 %"),
        "{told}"
    );
    run.subjects[1].levels[2] = Measures { answered_per_s: 900.0, ..measures("0.95", 12.0) };
    run.subjects[0].levels[2] = measures("0.95", 3.0);
    let told = sentence_of(run);
    assert!(
        told.contains(
            "nginx's 120 ms: 4.00 times, overloaded, with 90.0 % of the requests answered in time."
        ),
        "{told}"
    );
}

#[test]
fn phases_of_one_server_are_compared_as_the_run_compares_them() {
    let mut run = run_of(vec![subject("flash", 1.0, &["hot alone", "hot with cold", "cold"])]);
    assert!(sentence_of(run.clone()).starts_with("The p99 of each level: hot alone 10.0 ms"));
    let ratio = p99("hot with cold", 2.0, Some([0.8, 3.0]));
    run.ratios = vec![Ratio { base: "hot alone".to_owned(), level: None, ..ratio }];
    let mut judged = run.clone();
    let words = "cannot be told: the rounds differ too much";
    judged.settings.insert("verdict on flash".to_owned(), words.to_owned());
    assert_eq!(sentence_of(judged), format!("flash: {words}."), "the verdict that was printed");
    let wanted = "The p99 from hot alone to hot with cold: on flash 10.0 ms to 20.0 ms: no difference can be told \
                  (0.800 to 3.00 times). Ranges are 95 % intervals.";
    assert_eq!(sentence_of(run.clone()), wanted);
    // Several servers have ratios of their own, and are shown at the compared phase, not at the last one.
    let ratio = run.ratios.remove(0);
    let of = |server: &str, ratio: Ratio| Ratio {
        subject: format!("{server}, hot with cold"),
        base: format!("{server}, hot alone"),
        ..ratio
    };
    run.subjects.insert(0, subject("nginx", 2.0, &["hot alone", "hot with cold", "cold"]));
    run.ratios = vec![of("nginx", ratio.clone()), of("flash", Ratio { interval: Some([1.5, 3.0]), ..ratio })];
    run.subjects[0].levels[1].answered_per_s = 500.0;
    let wanted = "The p99 from hot alone to hot with cold: on flash 10.0 ms to 20.0 ms: 2.00 times (1.50 to 3.00); on \
                  nginx 20.0 ms to 40.0 ms: no difference can be told (0.800 to 3.00 times), overloaded, with 50.0 % of the \
                  requests answered in time. Ranges are 95 % intervals.";
    assert_eq!(sentence_of(run.clone()), wanted);
    assert_eq!(View::new(&[run]).level, Some("hot with cold"));
}

#[test]
fn servers_without_a_common_level_are_not_compared() {
    let levels = |name, level| subject(name, 1.0, &[level]);
    let told = sentence_of(run_of(vec![levels("a", "0.20"), levels("b", "0.95")]));
    assert!(told.starts_with("No winner can be told"), "{told}");
}

#[test]
fn a_load_of_anything_but_the_own_capacity_is_not_called_that() {
    let own = "load, fraction of the server";
    let mut run = two();
    for subject in &mut run.subjects {
        for level in &mut subject.levels {
            level.asked_per_s = level.load_level.map(|load| load * 1234.0);
        }
    }
    let page_of = |run: &Run| html(std::slice::from_ref(run));
    assert!(page_of(&run).contains(own) && page_of(&run).contains("Load 1 is each server's own"));
    // As with --relative-to: the same rates for all, whatever each can do.
    run.subjects[1].capacity.as_mut().unwrap().requests_per_s = 2000.0;
    assert!(!page_of(&run).contains(own) && !page_of(&run).contains("Load 1 is each server's own"));
    run.subjects[1].capacity = None;
    assert!(!page_of(&run).contains(own));
}

#[test]
fn subjects_are_compared_at_the_highest_level_that_all_have() {
    let mut run = two();
    run.subjects[1].levels.truncate(2);
    run.subjects.push(subject("gone", 1.0, &[]));
    let runs = [run];
    let view = View::new(&runs);
    assert_eq!(view.level, Some("0.80"));
    let p99s: Vec<f64> = view.picked().iter().map(|picked| picked.measures.latency.p99_ms).collect();
    assert_eq!(p99s, [20.0, 80.0]);
}
