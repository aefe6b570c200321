//! The table of optimisations: each is whole, and what it packs or prints it reads again.

use proptest::prelude::*;
use stripewise_optimisation::table::MOST_PARAMETERS;
use stripewise_optimisation::{OptimisationError, OptimisationSetting, OptimisationType, TABLE};

fn setting() -> impl Strategy<Value = OptimisationSetting> {
    (0..TABLE.len(), any::<[u64; MOST_PARAMETERS]>()).prop_map(|(at, drawn)| {
        let of = &TABLE[at];
        let value = |(parameter, drawn): (&stripewise_optimisation::ParameterType, u64)| {
            let steps = (parameter.most - parameter.least) / parameter.multiple;
            parameter.least + drawn % (steps + 1) * parameter.multiple
        };
        let values: Vec<u64> = of.parameters.iter().zip(drawn).map(value).collect();
        OptimisationSetting::new(of, &values).expect("parameters in their ranges")
    })
}

#[test]
fn each_has_a_place_of_its_own_in_a_handle() {
    for (at, each) in TABLE.iter().enumerate() {
        let bits: u32 = each.parameters.iter().map(|parameter| parameter.bits).sum();
        assert!(each.index < 32 && bits <= 59, "{}", each.name);
        assert!((1..=MOST_PARAMETERS).contains(&each.parameters.len()), "{}", each.name);
        for parameter in each.parameters {
            assert!(
                parameter.most >> parameter.bits == 0,
                "{}: its greatest {} does not fit",
                each.name,
                parameter.name
            );
            assert!(parameter.allows(parameter.least) && parameter.allows(parameter.most), "{}", each.name);
        }
        OptimisationSetting::new(each, &[]).expect("the defaults are in the range");
        for other in &TABLE[at + 1..] {
            assert!(each.index < other.index && each.name != other.name, "{} and {}", each.name, other.name);
        }
        assert_eq!(OptimisationType::of_index(each.index), Some(each));
        assert_eq!(OptimisationType::of_name(each.name), Some(each));
    }
}

#[test]
fn what_is_wrong_is_named() {
    let failed = |text: &str| OptimisationSetting::parse(text).unwrap_err().to_string();
    let known = "write one of small=SIZE, readahead=WINDOW:DEPTH, writebehind=SIZE:DELAY, cached=MOST, class=RANK, \
                 direct=LEAST";
    assert_eq!(failed("smal=64K"), format!("there is no optimisation 'smal': {known}"));
    for wrong in ["1K", "6K", "2G"] {
        let said = format!("small: size={wrong}iB: it must be 4KiB to 1GiB, a multiple of 4KiB");
        assert_eq!(failed(&format!("small={wrong}")), said);
    }
    assert_eq!(failed("small=x"), "small: 'x' is not a number of bytes such as 4096, 64KiB or 1.5GB");
    assert_eq!(failed("small="), "small: '' is not a number of bytes such as 4096, 64KiB or 1.5GB");
    assert_eq!(failed("small=64K:2"), "small=64K:2: write it as small=SIZE");
    assert_eq!(failed("readahead=1K"), "readahead: window=1KiB: it must be 64KiB to 128MiB, a multiple of 4KiB");
    assert_eq!(failed("readahead=8M:9"), "readahead: depth=9: it must be 1 to 8, a multiple of 1");
    assert_eq!(failed("readahead=8M:deep"), "readahead: 'deep' is not a number such as 2");
    assert_eq!(failed("writebehind=1M:1"), "writebehind: '1' is not a time such as 500ms or 2s");
    assert_eq!(failed("writebehind=1M:2m"), "writebehind: '2m' is not a time such as 500ms or 2s");
    assert_eq!(failed("writebehind=1M:2h"), "writebehind: '2h' is not a time such as 500ms or 2s");
    let range = "it must be 10ms to 60s, a multiple of 10ms";
    assert_eq!(failed("writebehind=1M:61s"), format!("writebehind: delay=61s: {range}"));
    assert_eq!(failed("writebehind=1M:15ms"), format!("writebehind: delay=15ms: {range}"));
    assert_eq!(OptimisationSetting::unpack(31, 5), Err(OptimisationError::Index(31)));
    let later = OptimisationSetting::unpack(0, 1 << 40 | 4096).unwrap_err();
    assert_eq!(later, OptimisationError::Later { name: "small", parameters: 1 << 40 | 4096 });
    assert!(matches!(OptimisationSetting::unpack(0, 4097), Err(OptimisationError::Range { value: 4097, .. })));
}

#[test]
fn what_is_left_out_has_the_default() {
    let printed = |text: &str| OptimisationSetting::parse(text).unwrap().to_string();
    assert_eq!(printed("small"), "small=64KiB");
    assert_eq!(printed("readahead"), "readahead=8MiB:2");
    assert_eq!(printed("readahead=1M"), "readahead=1MiB:2");
    assert_eq!(printed("readahead=1M:4"), "readahead=1MiB:4");
    assert_eq!(printed("writebehind"), "writebehind=4MiB:1s");
    assert_eq!(printed("writebehind=64K:250ms"), "writebehind=64KiB:250ms");
}

proptest! {
    #[test]
    fn what_is_packed_is_read_again(setting in setting()) {
        let (index, parameters) = setting.pack();
        prop_assert!(parameters < 1 << 59);
        prop_assert_eq!(OptimisationSetting::unpack(index, parameters), Ok(setting));
    }

    #[test]
    fn what_is_printed_is_read_again(setting in setting()) {
        prop_assert_eq!(OptimisationSetting::parse(&setting.to_string()), Ok(setting));
    }

    /// A user may write any bits into a handle.
    #[test]
    fn any_word_is_refused_or_within_its_range(index: u32, parameters in 0_u64..1 << 59) {
        if let Ok(setting) = OptimisationSetting::unpack(index % 32, parameters) {
            for (at, parameter) in setting.of().parameters.iter().enumerate() {
                prop_assert!(parameter.allows(setting.value(at)));
            }
            prop_assert_eq!(setting.pack(), (index % 32, parameters));
        }
    }
}
