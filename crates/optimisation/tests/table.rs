//! The table of optimisations: each is whole, and what it packs or prints it reads again.

use proptest::prelude::*;
use stripewise_optimisation::{OptimisationError, OptimisationSetting, OptimisationType, SMALL, TABLE};

fn setting() -> impl Strategy<Value = OptimisationSetting> {
    (0..TABLE.len(), any::<u64>()).prop_map(|(at, drawn)| {
        let of = &TABLE[at];
        let steps = (of.most_bytes - of.least_bytes) / of.multiple_bytes;
        let bytes = of.least_bytes + drawn % (steps + 1) * of.multiple_bytes;
        OptimisationSetting::new(of, bytes).expect("a parameter in its range")
    })
}

#[test]
fn each_has_a_place_of_its_own_in_a_handle() {
    for (at, each) in TABLE.iter().enumerate() {
        assert!(each.index < 32 && each.parameter_bits <= 59, "{}", each.name);
        assert!(each.most_bytes >> each.parameter_bits == 0, "{}: its greatest parameter does not fit", each.name);
        OptimisationSetting::new(each, each.default_bytes).expect("the default is in the range");
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
    assert_eq!(failed("smal=64K"), "there is no optimisation 'smal': write one of small=SIZE");
    assert_eq!(failed("small=1K"), "small=1KiB: it must be 4KiB to 1GiB, a multiple of 4KiB");
    assert_eq!(failed("small=6K"), "small=6KiB: it must be 4KiB to 1GiB, a multiple of 4KiB");
    assert_eq!(failed("small=2G"), "small=2GiB: it must be 4KiB to 1GiB, a multiple of 4KiB");
    assert_eq!(failed("small=x"), "small: 'x' is not a number of bytes such as 4096, 64KiB or 1.5GB");
    assert_eq!(failed("small="), "small: '' is not a number of bytes such as 4096, 64KiB or 1.5GB");
    assert_eq!(OptimisationSetting::unpack(31, 5), Err(OptimisationError::Index(31)));
    let later = OptimisationSetting::unpack(0, 1 << SMALL.parameter_bits | 4096).unwrap_err();
    assert_eq!(later, OptimisationError::Later { name: "small", parameters: 1 << SMALL.parameter_bits | 4096 });
    assert!(matches!(OptimisationSetting::unpack(0, 4097), Err(OptimisationError::Range { bytes: 4097, .. })));
}

#[test]
fn a_name_alone_has_the_default() {
    assert_eq!(OptimisationSetting::parse("small").unwrap().bytes(), SMALL.default_bytes);
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
            prop_assert!((setting.of().least_bytes..=setting.of().most_bytes).contains(&setting.bytes()));
            prop_assert_eq!(setting.pack(), (index % 32, parameters));
        }
    }
}
