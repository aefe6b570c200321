//! Calibration finds the numbers that an emulated server stands for, and leaves nothing behind.

use std::ops::ControlFlow;
use std::path::Path;

use stripewise_layout::ServerId;
use stripewise_model::NameCosts;
use stripewise_store::Pool;
use stripewise_store::calibrate::{CalibrateError, CalibrateOptions, IoPath, Target, calibrate, tiers};
use stripewise_store::emulate::{EmulateConfig, OpProfile, Profile, QUEUE_FILE, preset};
use stripewise_store::pool::{Server, ServerState};

fn target(index: u16, tier: &str, root: &Path, emulate: Option<EmulateConfig>) -> Target {
    let server = Server {
        id: ServerId(index),
        name: format!("{tier}.{index}"),
        tier: 0,
        kind: "directory",
        root: root.into(),
        capacity_bytes: None,
        emulate,
        state: ServerState::Used,
        replaced_by: None,
        seeks: None,
    };
    Target { server, tier: tier.into() }
}

fn names(directory: &Path) -> Vec<String> {
    std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

const QUICK: CalibrateOptions = CalibrateOptions { budget_s: 2.0, scratch_bytes: 8 << 20, max_requests: 120 };

#[test]
fn an_emulated_server_costs_what_it_stands_for() {
    let directory = tempfile::tempdir().unwrap();
    let config = EmulateConfig { dilation: 0.5, ..preset("hdd-7200").unwrap() };
    let mut shares = Vec::new();
    let servers = calibrate(&[target(0, "hdd", directory.path(), Some(config))], &QUICK, |progress| {
        shares.push(progress[0]);
        ControlFlow::Continue(())
    })
    .unwrap();
    let server = &servers[0];
    assert_eq!(server.path, IoPath::Emulated);
    for fit in [&server.read, &server.write] {
        // Never faster than the device; how much slower depends on the machine and is not this test's matter.
        assert!(fit.profile.startup_min_s >= 0.0015, "{fit:?}");
        assert!(fit.profile.startup_max_s >= fit.profile.startup_min_s, "{fit:?}");
        assert!(fit.requests >= 30 && fit.requests <= 126, "{fit:?}");
    }
    assert!(shares.is_sorted() && shares.last() == Some(&1.0), "{shares:?}");
    assert_eq!(names(directory.path()), [QUEUE_FILE]);
}

/// How many are served side by side is a matter of the metadata tier, and no more than the device serves in its time.
#[test]
fn the_metadata_tier_serves_as_many_as_its_device_at_most() {
    let op = |startup_s| OpProfile {
        startup_min_s: startup_s,
        startup_max_s: startup_s,
        transfer_s_per_byte: 1e-9,
        head: None,
    };
    let profile = Profile { read: op(4e-3), write: op(1e-3), network_s_per_byte: 0.0 };
    let config = EmulateConfig { at_once: 4, profile, ..preset("nvme").unwrap() };
    let directories = [0; 2].map(|_| tempfile::tempdir().unwrap());
    let names = Server { id: ServerId::META, ..target(0, "meta", directories[0].path(), Some(config)).server };
    // A pool's own metadata tier has a kind of its own; this one is as good as any directory.
    let targets = [
        Target { server: names, tier: "meta".into() },
        target(0, "ssd", directories[1].path(), Some(EmulateConfig { at_once: 1, ..config })),
    ];
    let servers = calibrate(&targets, &QUICK, |_| ControlFlow::Continue(())).unwrap();
    let alone_s = servers[0].read.profile.startup_max_s;
    let most = (4.0 * alone_s / 4e-3).round() as u32;
    assert!((1..=most).contains(&servers[0].at_once), "{} of {most}", servers[0].at_once);
    assert_eq!((servers[1].at_once, tiers(&servers)[1].at_once), (1, 1));
    // A name costs the startup of a read or a write there.
    let names = tiers(&servers)[0].names.unwrap();
    assert!(names.is_valid() && names.look_s[0] >= 4e-3 && names.change_s[0] >= 1e-3, "{names:?}");
    assert_eq!((servers[1].names, tiers(&servers)[1].names), (None, None));

    let file = directories[0].path().join("pool.toml");
    let text = "name = \"p\" # a\nmount = \"m\"\nnamespace = \"n\"\n[[tier]]\nname = \"t\"\nservers = [\"s\"]\n";
    std::fs::write(&file, text).unwrap();
    assert_eq!(Pool::load(&file).unwrap().meta.at_once, 1);
    Pool::write_at_once(&file, 7).unwrap();
    Pool::write_profile(&file, "meta", &profile).unwrap();
    assert_eq!(Pool::load(&file).unwrap().meta.at_once, 7);
    assert!(std::fs::read_to_string(&file).unwrap().contains("# a"));
    let refused = Pool::write_at_once(&file, 65).unwrap_err().to_string();
    assert!(refused.contains("meta.at_once is 65; write a number from 1 to 64"), "{refused}");
    assert_eq!(Pool::load(&file).unwrap().meta.names, None);
    let names = NameCosts { look_s: [4e-6, 8e-6], change_s: [16e-6, 16e-6] };
    Pool::write_names(&file, &names).unwrap();
    assert_eq!(Pool::load(&file).unwrap().meta.names, Some(names));
    let refused = Pool::write_names(&file, &NameCosts { look_s: [1.0, 0.5], ..names }).unwrap_err().to_string();
    assert!(refused.contains("cannot be what operations on names cost"), "{refused}");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("# a") && text.contains("[meta.names]"), "{text}");
    for (written, wrong) in [("\"16us\", \"16us\"", "\"30us\", \"16us\""), ("\"16us\"", "\"fast\"")] {
        std::fs::write(&file, text.replacen(written, wrong, 1)).unwrap();
        let refused = Pool::load(&file).unwrap_err().to_string();
        assert!(refused.contains("meta.names.change"), "{refused}");
    }
    std::fs::write(&file, text).unwrap();
    assert_eq!(Pool::load(&file).unwrap().meta.at_once, 7);
}

#[test]
fn the_startup_in_order_is_no_less_than_the_device_s() {
    let heads = ["hdd-7200-head", "hdd-7200"].map(|name| {
        let directory = tempfile::tempdir().unwrap();
        let config = EmulateConfig { dilation: 0.5, ..preset(name).unwrap() };
        let servers =
            calibrate(&[target(0, "hdd", directory.path(), Some(config))], &QUICK, |_| ControlFlow::Continue(()));
        tiers(&servers.unwrap())[0].profile.read.head.map(|head| head.sequential_startup_s)
    });
    // Never faster than the device; a machine under load may be so slow that it hides the head.
    assert!(heads[0].is_none_or(|startup_s| startup_s > 45e-6), "{heads:?}");
    assert!(heads[1].is_none_or(|startup_s| startup_s > 1.5e-3), "{heads:?}");
}

#[test]
fn a_real_directory_is_measured() {
    let (a, b) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let targets = [target(0, "disk", a.path(), None), target(1, "other", b.path(), None)];
    let servers = calibrate(&targets, &QUICK, |_| ControlFlow::Continue(())).unwrap();
    let tiers = tiers(&servers);
    assert_eq!(tiers.iter().map(|tier| tier.tier.as_str()).collect::<Vec<_>>(), ["disk", "other"]);
    for (tier, server) in tiers.iter().zip(&servers) {
        assert_ne!(server.path, IoPath::Emulated);
        assert_eq!(tier.profile, server.profile());
        let cached = tier.warnings.iter().any(|warning| warning.contains("refuses direct I/O"));
        assert_eq!(cached, server.path == IoPath::Cached);
    }
    assert!(names(a.path()).is_empty() && names(b.path()).is_empty());
}

#[test]
fn names_of_a_real_namespace_are_measured_and_leave_nothing() {
    let directory = tempfile::tempdir().unwrap();
    // What a killed measurement has left.
    let left = directory.path().join("calibrate-names-1");
    std::fs::create_dir(&left).unwrap();
    std::fs::write(left.join("a"), b"").unwrap();
    let server = Server { id: ServerId::META, ..target(0, "meta", directory.path(), None).server };
    let targets = [Target { server, tier: "meta".into() }];
    let servers = calibrate(&targets, &QUICK, |_| ControlFlow::Continue(())).unwrap();
    let found = servers[0].names.unwrap();
    assert!(found.is_valid() && found.look_s[0] > 0.0 && found.change_s[0] > 0.0, "{found:?}");
    assert_eq!(tiers(&servers)[0].names, Some(found));
    assert!(names(directory.path()).is_empty());
}

#[test]
fn one_server_that_fails_fails_the_whole() {
    let directory = tempfile::tempdir().unwrap();
    let targets =
        [target(0, "disk", directory.path(), None), target(1, "disk", &directory.path().join("missing"), None)];
    let error = calibrate(&targets, &QUICK, |_| ControlFlow::Continue(())).unwrap_err();
    assert!(error.to_string().contains("server disk.1: cannot open"), "{error}");
    assert!(names(directory.path()).is_empty());
}

#[test]
fn a_person_may_stop_it() {
    let directory = tempfile::tempdir().unwrap();
    let options = CalibrateOptions { budget_s: 3600.0, max_requests: usize::MAX, ..QUICK };
    let slow = Some(preset("hdd-7200").unwrap());
    let error = calibrate(&[target(0, "hdd", directory.path(), slow)], &options, |_| ControlFlow::Break(()));
    assert!(matches!(error, Err(CalibrateError::Stopped)));
    assert_eq!(names(directory.path()), [QUEUE_FILE]);
}

#[test]
fn a_server_unlike_its_tier_is_named() {
    let directories: [_; 3] = std::array::from_fn(|_| tempfile::tempdir().unwrap());
    let targets: Vec<Target> = (0..3_u16)
        .map(|i| {
            let dilation = if i == 2 { 0.8 } else { 0.1 };
            let config = EmulateConfig { dilation, ..preset("hdd-7200").unwrap() };
            target(i, "hdd", directories[usize::from(i)].path(), Some(config))
        })
        .collect();
    let options = CalibrateOptions { budget_s: 1.0, ..QUICK };
    let servers = calibrate(&targets, &options, |_| ControlFlow::Continue(())).unwrap();
    let tiers = tiers(&servers);
    let warned = |name: &str| tiers[0].warnings.iter().any(|w| w.starts_with(name) && w.contains("a tier of its own"));
    assert!(warned("hdd.2"), "{:?}", tiers[0].warnings);
}
